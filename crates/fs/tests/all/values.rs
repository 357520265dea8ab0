//! Values that no Nearside wrote, put into the trees or the log through the pool's own interface,
//! so that all checksums fit.
#![allow(dead_code)]

use fs::FileKind;
use pool::tree::{Change, Key};
use pool::{BlockAddr, DataBlocks, KIND_CHANGE, OpenOptions, Pool, RecordBuffer, SliceBatch};
use std::path::Path;

/// Kinds of keys (docs/FORMAT.md).
pub const INODE: u8 = 1;
pub const MAP: u8 = 2;
pub const PATCH: u8 = 3;
pub const DIRENT: u8 = 4;
pub const XATTR: u8 = 5;
pub const SYMLINK: u8 = 6;
/// Of object 0.
pub const ORPHAN: u8 = 1;
pub const TICKET: u8 = 2;
pub const REFERENCES: u8 = 3;

/// Of a leaf's run: its blocks may have other places.
pub const SHARED: u8 = 0x80;

#[derive(Debug)]
struct NoBlocks;

impl DataBlocks for NoBlocks {
    fn data_blocks(&self, _: &Key, _: &[u8], _: &mut dyn FnMut(BlockAddr)) {}
}

/// An inode's value: kind, links, size, blocks, parent, stamp.
pub fn inode(
    kind: FileKind,
    links: u32,
    size: u64,
    blocks: u64,
    parent: u64,
    stamp: u64,
) -> Vec<u8> {
    let mut value = vec![0; 88];
    value[0] = kind as u8;
    value[2..4].copy_from_slice(&0o644u16.to_le_bytes());
    value[4..8].copy_from_slice(&links.to_le_bytes());
    for (at, word) in [(24, size), (32, blocks), (72, parent), (80, stamp)] {
        value[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    value
}

/// A leaf of one run of blocks.
pub fn leaf(first: u8, more: u8, addr: u64) -> Vec<u8> {
    let mut value = vec![1, first, more];
    value.extend_from_slice(&addr.to_le_bytes()[..6]);
    value.extend_from_slice(&vec![0; 4 * (usize::from(more) + 1)]);
    value
}

/// An entry of a directory.
pub fn entry(ino: u64, kind: FileKind, name: &[u8]) -> Vec<u8> {
    [&ino.to_le_bytes()[..], &[kind as u8], name].concat()
}

/// References to `more` + 1 blocks from `first` of 128 on.
pub fn references(first: u8, more: u8, count: u32) -> Vec<u8> {
    [&[1, first, more][..], &count.to_le_bytes()].concat()
}

/// Changes the tree of slice 0.
pub fn change_tree(dir: &Path, mut changes: Vec<(Key, Change)>) {
    let (pool, _) = Pool::open(dir, &OpenOptions::default()).unwrap();
    changes.sort_by_key(|(key, _)| *key);
    let batch = [SliceBatch { changes, ..SliceBatch::default() }];
    let closed = pool.close_gate();
    let cut = pool.cut(&closed, 10);
    drop(closed);
    pool.commit(cut, &batch, &NoBlocks).unwrap();
}

/// Puts values into the tree of slice 0.
pub fn into_tree(dir: &Path, values: Vec<(Key, Vec<u8>)>) {
    change_tree(dir, values.into_iter().map(|(key, value)| (key, Change::Put(value))).collect());
}

/// What the tree of slice 0 says.
pub fn of_tree(dir: &Path, key: &Key) -> Option<Vec<u8>> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    Pool::open(dir, &options).unwrap().0.get(0, key).unwrap()
}

/// Appends one record with these items to the log.
pub fn into_log(dir: &Path, items: &[u8]) {
    let (pool, _) = Pool::open(dir, &OpenOptions::default()).unwrap();
    let mut record = RecordBuffer::new(KIND_CHANGE, 0);
    record.push(items);
    let (mut lane, slice) = pool.lane();
    let done = lane.append(&slice.mapping, &mut record, 1 << 20, pmem::InFlight::none());
    assert!(done.is_ok());
}

/// An item's first word: tag, second, short, long.
pub fn head(tag: u8, second: u8, short: u16, long: u32) -> u64 {
    u64::from(tag) | u64::from(second) << 8 | u64::from(short) << 16 | u64::from(long) << 32
}
