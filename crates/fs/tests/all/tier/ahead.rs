//! Reading ahead: who reads in order waits for few calls, and others for what they asked.

use crate::common::{content, make, pattern, random, scratch};
use crate::tier::MIB;
use crate::tier::faulty::{Fault, Faulty, opened, write_back_all};
use fs::{FileSystem, Handle};
use std::sync::Arc;

/// A pool, its device, and a file of so many blocks that lies there and nowhere else.
fn away(blocks: u64) -> (tempfile::TempDir, FileSystem, Arc<Faulty>, Arc<Handle>, Vec<u8>) {
    let scratch = scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    let file = make(&fs, "file");
    let data = pattern(1, blocks as usize * 4096);
    fs.write(&file, 0, &data).unwrap();
    write_back_all(&fs, blocks);
    fs.evict_caches();
    device.take_reads();
    (scratch, fs, device, file, data)
}

fn assert_block(fs: &FileSystem, file: &Handle, data: &[u8], block: u64) {
    let (mut read, at) = ([0; 4096], block as usize * 4096);
    assert_eq!(fs.read(file, at as u64, &mut read).unwrap(), 4096);
    assert!(read[..] == data[at..at + 4096], "block {block}");
}

#[test]
fn who_reads_in_order_waits_for_few_calls() {
    let (_scratch, fs, device, file, data) = away(1000);
    (0..1000).for_each(|block| assert_block(&fs, &file, &data, block));
    // windows of 1, 8, 16, 32, 64, then of 128
    assert_eq!(device.take_reads(), 12);
    let stats = fs.tier_stats().unwrap();
    assert_eq!((stats.read_blocks, stats.ahead_blocks), (1000, 988), "each once: {stats:?}");
    (0..1000).for_each(|block| assert_block(&fs, &file, &data, block));
    assert_eq!(device.take_reads(), 0);
}

#[test]
fn others_get_what_they_asked_for() {
    let (_scratch, fs, device, file, data) = away(2000);
    let (mut state, mut seen) = (7, std::collections::HashSet::new());
    while seen.len() < 200 {
        // never the one behind the last one
        let block = random(&mut state) % 1000 * 2;
        if seen.insert(block) {
            assert_block(&fs, &file, &data, block);
        }
    }
    let stats = fs.tier_stats().unwrap();
    assert_eq!((stats.read_blocks, stats.ahead_blocks), (200, 0), "{stats:?}");
    assert_eq!(device.take_reads(), 200);
    // from the end to the beginning is no order, either
    (0..50).rev().for_each(|block| assert_block(&fs, &file, &data, 1501 + 2 * block));
    assert_eq!(fs.tier_stats().unwrap().ahead_blocks, 0);
}

/// Holes, blocks in slices and the file's end are no reason to wait or to fail.
#[test]
fn only_what_is_away_is_read_ahead() {
    let (_scratch, fs, device, file, mut data) = away(300);
    fs.fallocate(&file, fs::Fallocate::PunchHole, 10 * 4096, 20 * 4096).unwrap();
    data[10 * 4096..30 * 4096].fill(0);
    let new = pattern(2, 50 * 4096);
    fs.write(&file, 100 * 4096, &new).unwrap();
    data[100 * 4096..150 * 4096].copy_from_slice(&new);
    (0..300).for_each(|block| assert_block(&fs, &file, &data, block));
    let stats = fs.tier_stats().unwrap();
    assert_eq!(stats.read_blocks, 230, "{stats:?}");
    assert!(device.take_reads() < 20, "{stats:?}");
}

/// A device that fails is an error of who asked, and of nobody else.
#[test]
fn what_is_read_ahead_fails_nobody() {
    let (_scratch, fs, device, file, data) = away(64);
    (0..2).for_each(|block| assert_block(&fs, &file, &data, block));
    assert_eq!(device.take_reads(), 2);
    device.set(Fault::Reads);
    (2..9).for_each(|block| assert_block(&fs, &file, &data, block));
    assert_eq!(device.take_reads(), 0);
    assert_eq!(fs.read(&file, 9 * 4096, &mut [0; 4096]).unwrap_err().errno(), libc::EIO);
    assert_eq!(device.take_reads(), 2, "with those behind it, then without");
    device.set(Fault::None);
    (9..64).for_each(|block| assert_block(&fs, &file, &data, block));
    assert!(fs.tier_stats().unwrap().cached_bytes <= MIB);
}

/// A transaction that must see much of the tier waits for few calls, not for one a block.
#[test]
fn a_transaction_over_blocks_that_are_away_waits_for_few_calls() {
    let (_scratch, fs, device, file, mut data) = away(3000);
    let before = data.clone();
    let places: Vec<usize> = (0..1400).map(|at| at * 2 * 4096 + at).collect();
    let writes: Vec<fs::Write<'_>> = places
        .iter()
        .map(|at| fs::Write { file: &file, offset: *at as u64, data: b"replaced" })
        .collect();
    let expected: Vec<fs::Expected<'_>> = places[..700]
        .iter()
        .map(|at| fs::Expected {
            file: &file,
            offset: *at as u64 + 8,
            data: &before[at + 8..at + 9],
        })
        .collect();
    fs.commit(&writes, &expected).unwrap();
    let calls = device.take_reads();
    assert!(calls < 40, "{calls} calls");
    places.iter().for_each(|at| data[*at..*at + 8].copy_from_slice(b"replaced"));
    assert!(content(&fs, &file) == data);
}
