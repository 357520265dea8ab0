//! Payloads that are not as they were written.

use crate::common::{self, TestPool, content, find, make, options, pattern, slices};
use crate::long_records::{BLOCK, filled, write};
use crate::repair::planted::{mended_but_for, older_copy, reads_as_error};
use fs::{FileSystem, Ino};
use pool::FormatOptions;
use std::os::unix::fs::FileExt;

/// Where in the image of a slice the blocks of a payload lie that says much of an inode.
fn blocks_about(image: &[u8], ino: Ino) -> Vec<usize> {
    // an item that writes one block, and the inode
    let is_item =
        |words: &[&[u8]]| words[0][..4] == [1, 0, 1, 0] && *words[1] == ino.0.to_le_bytes();
    let is_about = |block: &[u8]| {
        let words: Vec<&[u8]> = block.chunks(8).collect();
        words.windows(2).filter(|words| is_item(words)).count() > 50
    };
    let blocks = image.chunks(BLOCK).enumerate().filter(|(_, block)| is_about(block));
    blocks.map(|(at, _)| at * BLOCK).collect()
}

/// This thread takes the same lane of the log from now on.
fn stay_on_one_cpu() {
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
    let mut own = rustix::thread::CpuSet::new();
    own.set(cpu);
    rustix::thread::sched_setaffinity(None, &own).unwrap();
}

/// The first file that is made in a pool.
const FIRST: Ino = Ino(256);

/// Turns one bit of the first copy of a payload that is about the first file.
fn flip_payload(pool: &TestPool, data_copies: usize) {
    // first copies lie in the first part of each file
    let found = slices(&pool.dir()).into_iter().find_map(|path| {
        let mut image = std::fs::read(&path).unwrap();
        image.truncate(image.len() / data_copies);
        let blocks = blocks_about(&image, FIRST);
        // far behind the log
        let is_payload = blocks.len() > 30 && blocks[0] > 32 << 20;
        is_payload.then(|| (path, blocks[blocks.len() / 2] + 1000, image))
    });
    let (path, at, image) = found.expect("blocks of a payload");
    let slice = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    slice.write_all_at(&[image[at] ^ 4], at as u64).unwrap();
}

/// A pool whose log ends with a record in blocks, or goes on behind it; of the payload one bit is
/// wrong. What the file held before, and with the record.
fn damaged_payload(goes_on: bool, data_copies: usize) -> (TestPool, Vec<u8>, Vec<u8>) {
    stay_on_one_cpu();
    let mut pool = TestPool::with(&FormatOptions {
        data_copies: data_copies as u32,
        ..options(data_copies, 192 << 20)
    });
    let fs = pool.start_alone();
    let (file, before) = filled(&fs, "file", 56 << 20);
    let mut after = before.clone();
    // each second block, whole: what lies there before stays
    let new = pattern(9, BLOCK);
    let writes: Vec<_> = (0..7000).map(|i| write(&file, i * 2 * BLOCK as u64, &new)).collect();
    fs.commit(&writes, &[]).unwrap();
    writes.iter().for_each(|it| {
        after[it.offset as usize..it.offset as usize + BLOCK].copy_from_slice(&new);
    });
    if goes_on {
        // on the same lane
        drop(make(&fs, "more"));
    }
    assert_eq!(file.ino(), FIRST);
    drop(writes);
    drop(file);
    pool.kill();
    drop(fs);
    flip_payload(&pool, data_copies);
    (pool, before, after)
}

#[test]
fn a_torn_payload_at_the_end_of_a_lane_is_as_if_the_call_had_not_been_made() {
    let (pool, before, _) = damaged_payload(false, 1);
    pool.assert_clean();
    let fs = pool.start_alone();
    assert!(content(&fs, &find(&fs, "file")) == before);
    drop(fs);
    pool.assert_clean();
}

#[test]
fn a_damaged_payload_within_a_lane_is_refused() {
    let (pool, ..) = damaged_payload(true, 1);
    let error = FileSystem::open_pool(&pool.dir(), &pool.open).map(drop).unwrap_err();
    assert!(error.to_string().contains("the log's record with stamp"), "{error}");
    assert!(!pool.check().findings.is_empty());
}

#[test]
fn a_payload_is_read_from_the_copy_that_is_whole() {
    let (pool, _, after) = damaged_payload(true, 2);
    let fs = pool.start_alone();
    assert!(content(&fs, &find(&fs, "file")) == after);
    drop(fs);
    pool.assert_clean();
}

/// A repair leaves out a record whose payload is damaged, puts the file aside that it changed, and
/// keeps what came later; one that is whole is applied.
#[test]
fn a_repair_leaves_out_damaged_payloads_only() {
    let (pool, before, after) = damaged_payload(true, 1);
    let (done, fs) = mended_but_for(&pool, &["/file"]);
    assert!(reads_as_error(&fs, FIRST), "{done:?}");
    assert!(older_copy(&fs, FIRST) == before);
    assert!(fs.lookup(Ino::ROOT, b"more").is_ok(), "what came later");
    drop(fs);
    let (pool, ..) = damaged_payload(true, 1);
    flip_payload(&pool, 1);
    let report = fs::repair_candidates(common::candidates(&pool.dir(), false).unwrap()).unwrap();
    assert!(report.left.is_empty(), "{report:?}");
    let said = format!("{:?}", report.done);
    assert!(!said.contains("left out"), "{said}");
    let fs = pool.start_alone();
    assert!(content(&fs, &find(&fs, "file")) == after);
}
