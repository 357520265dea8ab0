//! What happens to files between the look at their blocks and the record that moves them.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Creation, FileSystem, Handle, NewNode};
use pool::{Candidate, FormatOptions, OpenOptions, SliceSpec};
use std::collections::HashSet;
use std::path::Path;
use tier::BlockList;

const BYTES: usize = 3 * BLOCK;
const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };

/// A pool over one slice and one device, without threads of its own.
pub fn made(dir: &Path) -> FileSystem {
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 16 << 20,
        capacity: vec![SliceSpec { path: None, bytes: Some(16 << 20) }],
        virtual_nodes: Some(1),
        process: true,
        ..FormatOptions::default()
    };
    crate::format(dir, &options).unwrap();
    opened(dir)
}

fn opened(dir: &Path) -> FileSystem {
    let devices = tier::open_devices(dir, false).unwrap();
    let options = OpenOptions { devices, ..OpenOptions::default() };
    let (found, _) = pool::candidates(dir, &|path| Candidate::open(path, false)).unwrap();
    FileSystem::open_candidates(found, &options, false).unwrap()
}

fn file(fs: &FileSystem) -> Arc<Handle> {
    let attr = fs.create(Ino::ROOT, b"file", NewNode::File, BY).unwrap();
    let handle = fs.open(attr.ino).unwrap();
    fs.write(&handle, 0, &[7; BYTES]).unwrap();
    handle
}

/// What can be moved of the file; the first look lets it off.
fn cold(fs: &FileSystem, file: &Handle, data: &mut BlockList) -> ColdLeaf {
    let (leaf, none) = ((file.inode.ino, 0), HashSet::new());
    let looks = [0, 1].map(|_| fs.core.cold_blocks(leaf, 0, false, &none, data).unwrap());
    looks.into_iter().flatten().last().unwrap()
}

fn moved(fs: &FileSystem, cold: ColdLeaf, data: &[u8]) -> u64 {
    fs.core.move_batch(fs.core.tier.as_ref().unwrap(), &[cold], data).unwrap()
}

fn places_in_use(fs: &FileSystem) -> u64 {
    let stats = fs.tier_stats().unwrap();
    stats.device_blocks - stats.device_blocks_free
}

#[test]
fn what_was_removed_meanwhile_is_not_moved() {
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pool");
    let fs = made(&pool);
    let handle = file(&fs);
    let mut data = BlockList::default();
    let found = cold(&fs, &handle, &mut data);
    assert_eq!((found.blocks.len(), data.len()), (3, 3));
    fs.unlink(Ino::ROOT, b"file").unwrap();
    drop(handle);
    assert_eq!(moved(&fs, found, data.bytes()), 0);
    assert_eq!(places_in_use(&fs), 0, "the places were given back");
    // as killed: what the log says is replayed
    drop(fs);
    let fs = opened(&pool);
    assert_eq!(places_in_use(&fs), 0);
    fs.close().unwrap();
    drop(fs);
    assert!(crate::check(&pool).unwrap().findings.is_empty());
}

#[test]
fn what_changed_meanwhile_is_not_moved() {
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pool");
    let fs = made(&pool);
    let handle = file(&fs);
    let mut data = BlockList::default();
    let found = cold(&fs, &handle, &mut data);
    // one block anew, one in place
    fs.write(&handle, 0, &[8; BLOCK]).unwrap();
    fs.write(&handle, BLOCK as u64 + 9, b"in place").unwrap();
    assert_eq!(moved(&fs, found, data.bytes()), 1);
    assert_eq!(places_in_use(&fs), 1);
    let mut seen = vec![0; BYTES];
    fs.read(&handle, 0, &mut seen).unwrap();
    let mut want = vec![7; BYTES];
    want[..BLOCK].fill(8);
    want[BLOCK + 9..][..8].copy_from_slice(b"in place");
    assert!(seen == want);
    drop((handle, fs));
    let fs = opened(&pool);
    let handle = fs.open(fs.lookup(Ino::ROOT, b"file").unwrap().ino).unwrap();
    fs.read(&handle, 0, &mut seen).unwrap();
    assert!(seen == want);
}
