//! The `sync` domain on another medium in the same boot of the machine: a snapshot, a copy, a disk
//! that was taken away. It has what was synced, and of the rest any sectors, as after a crash.

use crate::sync_crash::{ANOTHER_BOOT, history, on_medium};
use fs::FileSystem;
use pmem::{MapOptions, Mapping};
use pool::{Candidate, OpenOptions};
use std::cell::Cell;
use std::path::Path;

/// In the boot in which the pool was open.
fn open_files(dir: &Path, images: &[Vec<u8>]) -> Result<FileSystem, fs::Error> {
    let candidates = images.iter().enumerate().map(|(slice, image)| {
        let path = dir.join(format!("slice.{slice}"));
        std::fs::write(&path, image).unwrap();
        let mapping = Mapping::open(&path, &MapOptions::default()).unwrap();
        Candidate::from_mapping(&path, mapping, false).unwrap()
    });
    let options = OpenOptions { boot: Some(ANOTHER_BOOT), ..OpenOptions::default() };
    FileSystem::open_candidates(candidates.collect(), &options, false)
}

#[test]
fn what_another_medium_has_is_a_prefix_of_history_with_all_that_was_synced() {
    let refused = Cell::new(0);
    let reopen = |mut images: Vec<Vec<u8>>| {
        let dir = tempfile::tempdir().unwrap();
        // where it is not known which medium it was, a torn record is damage
        images.iter_mut().for_each(|image| on_medium(image, 1));
        refused.set(refused.get() + u32::from(open_files(dir.path(), &images).is_err()));
        images.iter_mut().for_each(|image| on_medium(image, 2));
        open_files(dir.path(), &images).unwrap()
    };
    let crashes: usize = (1..=6).map(|seed| history(seed * 104_729, 300, &reopen)).sum();
    assert!(crashes > 60, "only {crashes} media were tried");
    assert!(refused.get() > 0, "no medium had torn records");
}

/// A killed pool on its own medium has all that was written, synced or not.
#[test]
fn a_killed_pool_on_its_own_medium_has_all() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        let mapping = Mapping::open(path, &MapOptions::default()).unwrap();
        let candidate = Candidate::from_mapping(path, mapping, false).unwrap();
        FileSystem::open_candidates(vec![candidate], &OpenOptions::default(), false).unwrap()
    };
    let options = pool::FormatOptions {
        slices: vec![pool::SliceSpec::default()],
        slice_bytes: 2 << 20,
        ..pool::FormatOptions::default()
    };
    let pool = dir.path().join("pool");
    fs::format(&pool, &options).unwrap();
    let slice = pool.join("slice.0");
    let by = fs::Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let made = |fs: &FileSystem, name: &[u8]| {
        fs.create(fs::Ino::ROOT, name, fs::NewNode::File, by).unwrap();
    };
    let is_there = |fs: &FileSystem, name: &[u8]| fs.lookup(fs::Ino::ROOT, name).is_ok();
    let fs = open(&slice);
    made(&fs, b"synced");
    fs.sync().unwrap();
    made(&fs, b"written");
    // as a kill leaves it
    let copy = dir.path().join("copy");
    std::fs::copy(&slice, &copy).unwrap();
    drop(fs);
    let is_told =
        |fs: &FileSystem| fs.info().notes.iter().any(|note| note.contains("another medium"));
    let fs = open(&slice);
    assert!(is_there(&fs, b"synced") && is_there(&fs, b"written"));
    assert!(!is_told(&fs));
    fs.close().unwrap();
    let fs = open(&copy);
    assert!(is_there(&fs, b"synced") && !is_there(&fs, b"written"), "a copy has what was synced");
    assert!(is_told(&fs));
    fs.close().unwrap();
}
