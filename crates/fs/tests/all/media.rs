//! Memory that fails under a pool: each page of it, one after the other, raises SIGBUS at the next
//! load. No process dies, what is kept twice is read from its other copy, and of data only the
//! range that was hit cannot be read.

use crate::common::{BY, TestPool, snapshot};
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
    let scratch = crate::common::scratch();
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
    // several pages of it
    for number in 0..60 {
        let name = format!("{number:02}-{}", "x".repeat(100));
        fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
    }
    fs.create(Ino::ROOT, last.as_bytes(), NewNode::File, BY).unwrap();
    let log_blocks = fs.info().slices[0].log_bytes / BLOCK as u64;
    pool.kill();
    drop(fs);
    let (mut refused, mut whole) = (0, 0);
    for slice in 0..SLICES {
        for block in LOG..LOG + log_blocks {
            let scratch = crate::common::scratch();
            snapshot(&pool.dir(), scratch.path());
            match open_with_failing(scratch.path(), slice, block) {
                Ok(fs) => {
                    assert!(fs.lookup(Ino::ROOT, last.as_bytes()).is_ok());
                    assert_eq!(read_all(&fs, &files), []);
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(error.errno(), libc::EIO, "{error}");
                    // or the chunk behind it says that it is missed
                    let told = ["cannot be read", "lost the chunk", "is damaged"];
                    assert!(told.iter().any(|what| error.to_string().contains(what)), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused >= 3 && whole >= 16, "{refused} refused, {whole} opened");
}

/// The server goes on while memory fails under it: reads of the range fail, and nothing else.
#[test]
fn memory_fails_while_the_pool_is_in_use() {
    let dir = crate::common::scratch();
    let path = dir.path().join("slice.0");
    fs::format(dir.path(), &crate::common::options(1, SLICE_BYTES)).unwrap();
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

/// The pool in this directory with the memory of these blocks of slice 0 failing.
fn failing(dir: &Path, blocks: &[u64], read_only: bool) -> Candidate {
    let path = dir.join("slice.0");
    let options = MapOptions { process: true, ..MapOptions::default() };
    let mapping = Mapping::open(&path, &options).unwrap();
    let candidate = Candidate::from_mapping(&path, mapping, read_only).unwrap();
    for block in blocks {
        candidate.mapping.poison(block * BLOCK as u64, BLOCK).unwrap();
    }
    candidate
}

/// A closed pool of one slice, the blocks of a file in it, and those of the trees' pages.
fn closed() -> (TestPool, Files, Vec<u64>, Vec<u64>) {
    let pool = TestPool::new(1, SLICE_BYTES);
    let fs = pool.start_alone();
    let files = plant(&fs);
    fs.close().unwrap();
    drop(fs);
    let image = std::fs::read(pool.dir().join("slice.0")).unwrap();
    let all = || image.chunks(BLOCK).zip(0u64..);
    let large = pattern(12, 3 * BLOCK);
    let data = all().filter(|(bytes, _)| large.chunks(BLOCK).any(|block| block == *bytes));
    let trees = all().filter(|(bytes, _)| bytes.starts_with(b"NSTP"));
    let (data, trees) = (data.map(|at| at.1).collect(), trees.map(|at| at.1).collect());
    (pool, files, data, trees)
}

/// Data that cannot be read is a finding of each of its blocks, whoever looks: a check of the
/// closed pool, one of the pool in use, a scrub.
#[test]
fn data_whose_memory_fails_is_found_block_by_block() {
    let (pool, _, data, _) = closed();
    assert_eq!(data.len(), 3);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let report = fs::check_candidates(vec![failing(&pool.dir(), &data, true)], &options).unwrap();
    let candidates = vec![failing(&pool.dir(), &data, false)];
    let fs = FileSystem::open_candidates(candidates, &OpenOptions::default(), false).unwrap();
    let live = fs.check(&mut |_, _| true).unwrap().unwrap();
    let scrubbed = fs.scrub(None, &mut |_, _| true).unwrap().unwrap();
    for findings in [report.findings, live.findings, scrubbed.findings] {
        assert_eq!(findings.len(), 3, "{findings:?}");
        let fails = |finding: &fs::Finding| finding.what.contains("cannot be read");
        assert!(findings.iter().all(fails), "{findings:?}");
    }
}

/// A repair of a pool under which memory fails, in the log and wherever pages of the trees have a
/// second copy: all comes back.
#[test]
fn a_repair_reads_what_it_can_of_memory_that_fails() {
    let (pool, files, _, trees) = closed();
    let image = std::fs::read(pool.dir().join("slice.0")).unwrap();
    let bytes = |block: &u64| &image[*block as usize * BLOCK..][..BLOCK];
    let is_second =
        |at: &usize| trees[..*at].iter().any(|other| bytes(other) == bytes(&trees[*at]));
    let second: Vec<u64> = (0..trees.len()).filter(is_second).map(|at| trees[at]).collect();
    assert!(second.len() > 3);
    let log = LOG..LOG + 8;
    let fail: Vec<u64> = second.into_iter().chain(log).collect();
    let report = fs::repair_candidates(vec![failing(&pool.dir(), &fail, false)]).unwrap();
    assert!(report.left.is_empty(), "{report:?}");
    let fs = pool.start_alone();
    assert_eq!(read_all(&fs, &files), []);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}
