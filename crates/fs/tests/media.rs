//! Memory that fails under a pool: each page of it, one after the other, raises SIGBUS at the next
//! load. No process dies, what is kept twice is read from its other copy, and of data only the
//! range that was hit cannot be read.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{BY, TestPool, snapshot};
use fs::{FileSystem, Handle, Ino, NewNode, SetAttr};
use pmem::{MapOptions, Mapping};
use pool::{Candidate, OpenOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK: usize = 4096;
const SLICE_BYTES: u64 = 1 << 20;
const SLICES: usize = 2;
/// Where the log begins, and the data behind it.
const LOG: u64 = 16;

/// What files hold, by name.
type Files = BTreeMap<String, Vec<u8>>;

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

fn open(fs: &FileSystem, name: &str) -> Arc<Handle> {
    fs.open(fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino).unwrap()
}

/// Files of some blocks, and so many that the trees have several pages.
fn plant(fs: &FileSystem) -> Files {
    let mut files = Files::new();
    for number in 0..120 {
        let name = format!("file-{number:03}-{}", "x".repeat(60));
        let len = if number % 12 == 0 { 3 * BLOCK + 100 } else { number * 3 };
        fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
        let content = pattern(number, len);
        assert_eq!(fs.write(&open(fs, &name), 0, &content).unwrap(), len);
        files.insert(name, content);
    }
    files
}

/// Opens the pool in `dir` with the memory of one block failing.
fn open_with_failing(dir: &Path, slice: usize, block: u64) -> fs::Result<FileSystem> {
    let options = MapOptions { process: true, ..MapOptions::default() };
    let mut candidates = Vec::new();
    for (index, path) in paths(dir).iter().enumerate() {
        let mapping = Mapping::open(path, &options).unwrap();
        if index == slice {
            mapping.poison(block * BLOCK as u64, BLOCK).unwrap();
        }
        candidates.push(Candidate::from_mapping(path, mapping, false)?);
    }
    FileSystem::open_candidates(candidates, &OpenOptions::default(), false)
}

fn paths(dir: &Path) -> Vec<PathBuf> {
    (0..SLICES).map(|slice| dir.join(format!("slice.{slice}"))).collect()
}

/// Reads all files block by block; gives the name and the block of what cannot be read.
fn read_all(fs: &FileSystem, files: &Files) -> Vec<(String, usize)> {
    let mut lost = Vec::new();
    for (name, content) in files {
        let handle = open(fs, name);
        for (block, expected) in content.chunks(BLOCK).enumerate() {
            let mut bytes = vec![0; expected.len()];
            match fs.read(&handle, (block * BLOCK) as u64, &mut bytes) {
                Ok(read) => assert!(read == expected.len() && bytes == *expected, "{name} {block}"),
                Err(error) => {
                    assert_eq!(error.errno(), libc::EIO, "{error}");
                    lost.push((name.clone(), block));
                }
            }
        }
    }
    lost
}

#[derive(Default, Debug)]
struct Seen {
    untouched: u32,
    repaired: u32,
    data: u32,
}

/// One block fails in a pool that was closed.
fn one_block(master: &Path, files: &Files, (slice, block): (usize, u64), seen: &mut Seen) {
    let scratch = common::scratch();
    snapshot(master, scratch.path());
    let fs = open_with_failing(scratch.path(), slice, block).unwrap();
    let lost = read_all(&fs, files);
    let unreadable = fs.info().slices[slice].unreadable.clone();
    let notes = fs.info().notes;
    let range = (block * BLOCK as u64, BLOCK as u64);
    match lost.as_slice() {
        [] if unreadable.is_empty() && notes.is_empty() => seen.untouched += 1,
        [] => {
            assert!(unreadable.is_empty() || unreadable == [range], "{unreadable:?}");
            seen.repaired += 1;
        }
        [(name, at)] => {
            assert_eq!(unreadable, [range], "info lists it");
            // what is written over all of it is there again; of a part the rest would be missing
            let (handle, from) = (open(&fs, name), at * BLOCK);
            let content = &files[name][from..];
            if content.len() < BLOCK {
                assert_eq!(fs.write(&handle, from as u64, b"a").unwrap_err().errno(), libc::EIO);
                let cut = SetAttr { size: Some(from as u64), ..SetAttr::default() };
                fs.setattr(handle.ino(), &cut).unwrap();
            }
            let content = &content[..content.len().min(BLOCK)];
            assert_eq!(fs.write(&handle, from as u64, content).unwrap(), content.len());
            assert_eq!(read_all(&fs, files), []);
            seen.data += 1;
        }
        more => panic!("one block, and {} cannot be read", more.len()),
    }
    fs.checkpoint().unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = FileSystem::open_pool(scratch.path(), &OpenOptions::default()).unwrap();
    assert_eq!(read_all(&fs, files), []);
    drop(fs);
    let report = fs::check(scratch.path()).unwrap();
    let copies = report.findings.iter().all(|finding| finding.what.contains("second copy"));
    assert!(copies && report.findings.len() <= 1, "{:?}", report.findings);
}

#[test]
fn each_page_of_a_closed_pool_fails_once() {
    let pool = TestPool::new(SLICES, SLICE_BYTES);
    let fs = pool.start_alone();
    let files = plant(&fs);
    fs.close().unwrap();
    drop(fs);
    let mut seen = Seen::default();
    for slice in 0..SLICES {
        for block in 0..SLICE_BYTES / BLOCK as u64 {
            one_block(&pool.dir(), &files, (slice, block), &mut seen);
        }
    }
    assert!(seen.data >= 30 && seen.repaired >= 10 && seen.untouched >= 100, "{seen:?}");
}

/// A log that is needed and cannot be read is refused, with its place: what it held is not passed
/// over.
#[test]
fn a_page_of_the_log_that_fails_in_a_pool_that_was_killed_is_named() {
    let mut pool = TestPool::new(SLICES, SLICE_BYTES);
    let fs = pool.start_alone();
    let files = plant(&fs);
    fs.checkpoint().unwrap();
    let last = "one more";
    fs.create(Ino::ROOT, last.as_bytes(), NewNode::File, BY).unwrap();
    let log_blocks = fs.info().slices[0].log_bytes / BLOCK as u64;
    pool.kill();
    drop(fs);
    let (mut refused, mut whole) = (0, 0);
    for slice in 0..SLICES {
        for block in LOG..LOG + log_blocks {
            let scratch = common::scratch();
            snapshot(&pool.dir(), scratch.path());
            match open_with_failing(scratch.path(), slice, block) {
                Ok(fs) => {
                    assert!(fs.lookup(Ino::ROOT, last.as_bytes()).is_ok());
                    assert_eq!(read_all(&fs, &files), []);
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(error.errno(), libc::EIO, "{error}");
                    assert!(error.to_string().contains("cannot be read"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused >= 1 && whole >= 22, "{refused} refused, {whole} opened");
}

/// The server goes on while memory fails under it: reads of the range fail, and nothing else.
#[test]
fn memory_fails_while_the_pool_is_in_use() {
    let dir = common::scratch();
    let path = dir.path().join("slice.0");
    fs::format(dir.path(), &common::options(1, SLICE_BYTES)).unwrap();
    let options = MapOptions { process: true, ..MapOptions::default() };
    let mapping = Mapping::open(&path, &options).unwrap();
    // nothing lies there yet
    let first = 160;
    let candidate = Candidate::from_mapping(&path, mapping, false).unwrap();
    let data: Vec<u64> = (first..first + 64).collect();
    for block in &data {
        candidate.mapping.poison(block * BLOCK as u64, BLOCK).unwrap();
    }
    let fs = FileSystem::open_candidates(vec![candidate], &OpenOptions::default(), false).unwrap();
    // writes make pages whole that nobody has read
    let files = plant(&fs);
    assert_eq!(read_all(&fs, &files), []);
    fs.checkpoint().unwrap();
    fs.close().unwrap();
    drop(fs);
    assert_eq!(fs::check(dir.path()).unwrap().findings.len(), 0);
}
