//! Blocks that move from slice to slice: what is seen is the same, and nothing is lost.

use crate::common::{TestPool, content, find, free, make, pattern, random, watched};
use fs::{ExtentOn, FileSystem, Handle, Ino, Layout, Migrated};
use pool::BLOCK_BYTES;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOCK: usize = BLOCK_BYTES as usize;
const MIB: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(120);

/// Blocks of a file on each of two slices.
fn blocks_on(fs: &FileSystem, ino: Ino) -> [u64; 2] {
    let mut blocks = [0; 2];
    let mut from = Some(0);
    while let Some(offset) = from {
        let (extents, next) = fs.extents(ino, offset, 64).unwrap();
        for extent in extents {
            let ExtentOn::Slice(slice) = extent.on else { panic!("{extent:?}") };
            blocks[usize::from(slice)] += extent.bytes / BLOCK_BYTES;
        }
        from = next;
    }
    blocks
}

fn moved(blocks: u64) -> Migrated {
    Migrated { moved: blocks, ..Migrated::default() }
}

fn all(fs: &FileSystem, file: &Handle, to: u8) -> Migrated {
    fs.migrate(file.ino(), 0..u64::MAX, to).unwrap()
}

#[test]
fn a_file_goes_to_another_slice_and_back_and_stays_what_it_was() {
    for mut pool in [TestPool::new(2, 32 << 20), TestPool::synced(2, 32 << 20)] {
        let fs = pool.start_alone();
        let file = make(&fs, "file");
        fs.set_layout(file.ino(), Layout::Node(0)).unwrap();
        // three leaves, of which the last is not whole; and a hole
        let bytes = pattern(1, 300 * BLOCK - 1000);
        fs.write(&file, 0, &bytes).unwrap();
        fs.write(&file, 400 * BLOCK_BYTES, b"far").unwrap();
        let whole = content(&fs, &file);
        let before = free(&fs);
        assert_eq!(blocks_on(&fs, file.ino())[1], 0);
        let there = fs.migrate(file.ino(), 10 * BLOCK_BYTES..20 * BLOCK_BYTES, 1).unwrap();
        assert_eq!((there, blocks_on(&fs, file.ino())[1]), (moved(10), 10));
        let rest = all(&fs, &file, 1);
        assert_eq!((rest.moved, rest.there, rest.stayed), (290, 10, 0));
        assert_eq!(blocks_on(&fs, file.ino()), [0, 300]);
        assert!(content(&fs, &file) == whole);
        assert_eq!(all(&fs, &file, 1), Migrated { there: 300, ..Migrated::default() });
        assert_eq!(free(&fs), before, "what moved left its place");
        // in the log, and then in the trees
        all(&fs, &file, 0);
        fs.migrate(file.ino(), 0..MIB as u64, 1).unwrap();
        fs.fsync(&file).unwrap();
        drop(file);
        for round in 0..2 {
            pool.kill();
            pool.assert_clean();
            let fs = pool.start_alone();
            let file = find(&fs, "file");
            assert_eq!(blocks_on(&fs, file.ino()), [300 - 256, 256], "life {round}");
            assert!(content(&fs, &file) == whole, "life {round}");
            fs.checkpoint().unwrap();
        }
        drop(fs);
    }
}

#[test]
fn what_was_changed_in_place_goes_along() {
    let mut pool = TestPool::new(2, 32 << 20);
    let fs = pool.start_alone();
    let file = make(&fs, "file");
    fs.set_layout(file.ino(), Layout::Node(0)).unwrap();
    let mut bytes = pattern(2, 8 * BLOCK);
    fs.write(&file, 0, &bytes).unwrap();
    fs.checkpoint().unwrap();
    for round in 0..8u64 {
        let at = (round as usize * 5000) % (8 * BLOCK - 100);
        let small = pattern(round, 100);
        fs.write(&file, at as u64, &small).unwrap();
        bytes[at..at + 100].copy_from_slice(&small);
        assert_eq!(all(&fs, &file, 1 - (round % 2) as u8), moved(8));
        let small = pattern(round + 100, 60);
        fs.write(&file, at as u64 + 20, &small).unwrap();
        bytes[at + 20..at + 80].copy_from_slice(&small);
        assert!(content(&fs, &file) == bytes, "{round}");
    }
    drop(file);
    let fs = pool.killed(fs);
    assert!(content(&fs, &find(&fs, "file")) == bytes);
}

#[test]
fn what_others_share_stays() {
    let pool = TestPool::new(2, 32 << 20);
    let fs = pool.start_alone();
    let (file, copy) = (make(&fs, "file"), make(&fs, "copy"));
    fs.set_layout(file.ino(), Layout::Node(0)).unwrap();
    fs.write(&file, 0, &pattern(3, 20 * BLOCK)).unwrap();
    let half = 10 * BLOCK_BYTES;
    assert_eq!(fs.copy((&file, 0), (&copy, 0), half).unwrap(), half);
    let done = all(&fs, &file, 1);
    assert_eq!((done.moved, done.stayed), (10, 10));
    assert!(content(&fs, &file) == pattern(3, 20 * BLOCK));
    fs.close().unwrap();
    drop((file, copy, fs));
    pool.assert_clean();
}

#[test]
fn a_slice_keeps_room_for_those_who_are_near_it() {
    let pool = TestPool::new(2, 32 << 20);
    let fs = pool.start_alone();
    let (file, other) = (make(&fs, "file"), make(&fs, "other"));
    fs.set_layout(file.ino(), Layout::Node(0)).unwrap();
    fs.set_layout(other.ino(), Layout::Node(1)).unwrap();
    fs.write(&file, 0, &pattern(4, 16 * MIB)).unwrap();
    fs.write(&other, 0, &pattern(5, 16 * MIB)).unwrap();
    let done = all(&fs, &file, 1);
    assert!(done.moved > 0 && done.stayed > 0 && done.moved + done.stayed == 4096, "{done:?}");
    let free = fs.stats().slices[1].blocks_free;
    assert!(free >= (32 << 20) / BLOCK_BYTES / 16 - 16, "{free} blocks are free");
    assert!(content(&fs, &file) == pattern(4, 16 * MIB));
    assert!(content(&fs, &other) == pattern(5, 16 * MIB));
}

#[test]
fn what_cannot_move_is_refused() {
    let pool = TestPool::new(2, 32 << 20);
    let fs = pool.start_alone();
    let file = make(&fs, "file");
    assert!(fs.migrate(file.ino(), 0..1, 2).is_err(), "there is no such slice");
    assert!(fs.migrate(Ino::ROOT, 0..1, 1).is_err(), "a directory");
    assert_eq!(fs.migrate(file.ino(), 9..9, 1).unwrap(), Migrated::default());
    assert_eq!(all(&fs, &file, 1), Migrated::default());
}

/// A version of a block: every eight bytes say which.
fn version(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK / 8)
}

/// Those who write meanwhile win, those who read see one version of each call, and a kill leaves
/// what was acknowledged.
#[test]
fn blocks_move_beside_writers_and_readers() {
    watched(LIMIT, "beside writers and readers", || {
        let mut pool = TestPool::new(2, 32 << 20);
        let mut fs = pool.start();
        drop(make(&fs, "file"));
        let count = 300;
        let mut expected = vec![1; count];
        fs.write(&find(&fs, "file"), 0, &version(1).repeat(count)).unwrap();
        for round in 1..5u64 {
            let file = find(&fs, "file");
            let ends = AtomicBool::new(false);
            let last: Vec<Vec<u64>> = std::thread::scope(|threads| {
                let writers: Vec<_> = (0..2)
                    .map(|odd| {
                        threads.spawn({
                            let (fs, file, ends) = (&fs, &file, &ends);
                            move || write_versions(fs, file, (round, odd, count), ends)
                        })
                    })
                    .collect();
                threads.spawn(|| read_versions(&fs, &file, count, &ends));
                let mut moved = 0;
                for pass in 0..40 {
                    moved += all(&fs, &file, (pass % 2) as u8).moved;
                }
                ends.store(true, Ordering::SeqCst);
                assert!(moved > 1000, "{moved} blocks moved");
                writers.into_iter().map(|writer| writer.join().unwrap()).collect()
            });
            drop(file);
            fs = pool.killed(fs);
            let bytes = content(&fs, &find(&fs, "file"));
            for (block, bytes) in bytes.chunks(BLOCK).enumerate() {
                let written = last[block % 2][block / 2];
                expected[block] = if written == 0 { expected[block] } else { written };
                assert_eq!(version_of(bytes), expected[block], "block {block}");
            }
        }
    });
}

fn version_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == version(number), "one version of a block");
    number
}

/// Writes every other block, whole or a version's bytes in two halves that are one call; gives
/// what it wrote last to each.
fn write_versions(
    fs: &FileSystem,
    file: &Handle,
    (round, odd, count): (u64, u64, usize),
    ends: &AtomicBool,
) -> Vec<u64> {
    let mut last = vec![0; count / 2];
    let mut state = round * 2 + odd + 1;
    let mut number = 1;
    while !ends.load(Ordering::SeqCst) {
        let at = random(&mut state) as usize % last.len();
        let is = round << 40 | odd << 32 | number;
        fs.write(file, (at * 2) as u64 * BLOCK_BYTES + odd * BLOCK_BYTES, &version(is)).unwrap();
        last[at] = is;
        number += 1;
    }
    last
}

fn read_versions(fs: &FileSystem, file: &Handle, count: usize, ends: &AtomicBool) {
    let (mut state, mut read) = (99, vec![0; 8 * BLOCK]);
    let mut newest = vec![0; count];
    while !ends.load(Ordering::SeqCst) {
        let at = random(&mut state) as usize % (count - 8);
        fs.read(file, at as u64 * BLOCK_BYTES, &mut read).unwrap();
        for (index, bytes) in read.chunks(BLOCK).enumerate() {
            let number = version_of(bytes);
            assert!(number >= newest[at + index], "an older version than was read before");
            newest[at + index] = number;
        }
    }
}
