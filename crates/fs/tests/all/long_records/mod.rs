//! Transactions that no chunk of the log holds: their records' payloads lie in blocks.

mod damage;

use crate::common::{TestPool, content, find, free, make, pattern, random, slices, watched};
use fs::{Error, Expected, FileSystem, Handle, SetAttr, Write};
use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const BLOCK: usize = 4096;

fn write<'d>(file: &'d Handle, offset: u64, data: &'d [u8]) -> Write<'d> {
    Write { file, offset, data }
}

/// A file of so many bytes that are known, folded into the trees.
fn filled(fs: &FileSystem, name: &str, bytes: usize) -> (Arc<Handle>, Vec<u8>) {
    let file = make(fs, name);
    let data = pattern(bytes as u64, bytes);
    fs.write(&file, 0, &data).unwrap();
    fs.checkpoint().unwrap();
    (file, data)
}

/// So many places of 8 bytes, in no order, no two in one block.
fn scattered(blocks: usize, places: usize) -> Vec<usize> {
    let (mut state, mut all) = (7, HashSet::new());
    while all.len() < places {
        all.insert(random(&mut state) as usize % blocks);
    }
    let mut all: Vec<usize> = all.into_iter().collect();
    all.sort_by_key(|block| block.wrapping_mul(0x9E37_79B9) & 0xFFFF);
    all.into_iter().map(|block| block * BLOCK + block % 500 * 8).collect()
}

/// Writes a seed's bytes to all of these places in one transaction, and to the shadow.
fn change(fs: &FileSystem, file: &Handle, shadow: &mut [u8], places: &[usize], seed: u64) {
    let bytes = pattern(seed, places.len() * 8);
    let writes: Vec<Write<'_>> = places
        .iter()
        .zip(bytes.chunks(8))
        .map(|(place, bytes)| write(file, *place as u64, bytes))
        .collect();
    fs.commit(&writes, &[]).unwrap();
    for (place, bytes) in places.iter().zip(bytes.chunks(8)) {
        shadow[*place..*place + 8].copy_from_slice(bytes);
    }
}

#[test]
fn a_kill_keeps_all_of_a_transaction_that_no_chunk_holds() {
    let bytes = 48 << 20;
    for mut pool in [TestPool::new(2, 96 << 20), TestPool::synced(2, 96 << 20)] {
        let fs = pool.start_alone();
        let (file, mut shadow) = filled(&fs, "file", bytes);
        let places = scattered(bytes / BLOCK, 5000);
        change(&fs, &file, &mut shadow, &places, 1);
        assert!(content(&fs, &file) == shadow, "before the kill");
        drop(file);
        pool.kill();
        drop(fs);
        pool.assert_clean();
        let fs = pool.start_alone();
        assert!(fs.replayed() > 0, "the log was to be replayed");
        let file = find(&fs, "file");
        assert!(content(&fs, &file) == shadow, "after the kill");
        // where there was nothing
        let (mut holes, hole) = (vec![0; bytes], make(&fs, "holes"));
        fs.setattr(hole.ino(), &SetAttr { size: Some(bytes as u64), ..SetAttr::default() })
            .unwrap();
        change(&fs, &hole, &mut holes, &places, 7);
        assert!(content(&fs, &hole) == holes, "in holes");
        // and another one over it, that the next checkpoint folds
        change(&fs, &file, &mut shadow, &places, 2);
        fs.checkpoint().unwrap();
        assert!(content(&fs, &file) == shadow, "folded");
        drop((file, hole));
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
}

/// One write of many blocks is a transaction of one piece, and several items of a record.
#[test]
fn a_transaction_of_one_long_piece_is_one_record() {
    let mut pool = TestPool::new(1, 512 << 20);
    let fs = pool.start_alone();
    let file = make(&fs, "file");
    let data = pattern(3, (160 << 20) + 77);
    fs.commit(&[write(&file, 4000, &data)], &[]).unwrap();
    drop(file);
    let fs = pool.killed(fs);
    let held = content(&fs, &find(&fs, "file"));
    assert_eq!(held.len(), 4000 + data.len());
    assert!(held[4000..] == data && held[..4000].iter().all(|byte| *byte == 0));
}

#[test]
fn blocks_of_a_payload_are_free_when_its_record_is_folded() {
    let pool = TestPool::new(1, 128 << 20);
    let fs = pool.start_alone();
    let (file, mut shadow) = filled(&fs, "file", 32 << 20);
    let before = free(&fs);
    let places = scattered(8192, 4000);
    for seed in 0..20 {
        change(&fs, &file, &mut shadow, &places, seed);
    }
    // 20 times 4000 places of 8 bytes are 3 MiB of records
    assert!(before - fs.statfs().blocks_free > 700, "nothing was put into blocks");
    assert_eq!(free(&fs), before, "blocks were lost");
    assert!(content(&fs, &file) == shadow);
}

/// What no checkpoint could fold for certain is refused, and nothing of it happens.
#[test]
fn more_than_a_checkpoint_folds_is_refused() {
    let pool = TestPool::new(1, 32 << 20);
    let fs = pool.start();
    let file = make(&fs, "file");
    // each in a leaf of its own: half a megabyte apart
    let data = [7; 8];
    let far: Vec<Write<'_>> = (0..20_000).map(|i| write(&file, i << 19, &data)).collect();
    let error = fs.commit(&far, &[]).unwrap_err();
    assert!(matches!(error, Error::TooLong), "{error}");
    assert_eq!(error.errno(), libc::E2BIG);
    assert_eq!(fs.getattr(file.ino()).unwrap().size, 0);
    let large = vec![1; 64 << 20];
    let error = fs.commit(&[write(&file, 0, &large)], &[]).unwrap_err();
    assert!([libc::ENOSPC, libc::E2BIG].contains(&error.errno()), "{error}");
    assert_eq!(fs.getattr(file.ino()).unwrap().size, 0);
    fs.commit(&far[..40], &[]).unwrap();
    assert_eq!(fs.getattr(file.ino()).unwrap().size, (39 << 19) + 8);
    drop(file);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

/// Writers that never stop leave room for one that changes much.
#[test]
fn a_long_transaction_gets_in_beside_short_ones() {
    watched(Duration::from_secs(120), "long beside short", || {
        let pool = TestPool::new(1, 64 << 20);
        let fs = Arc::new(pool.start());
        let (file, _) = filled(&fs, "long", 1 << 20);
        let (ends, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writers: Vec<_> = (0..4u64)
            .map(|number| {
                let (fs, ends, written) = (fs.clone(), ends.clone(), written.clone());
                std::thread::spawn(move || {
                    let file = make(&fs, &format!("short{number}"));
                    let mut state = number + 1;
                    while !ends.load(Ordering::Relaxed) {
                        // a leaf of its own each time
                        let at = (random(&mut state) % 4000) << 21;
                        fs.write(&file, at, &[1; 8]).unwrap();
                        fs.setattr(file.ino(), &SetAttr { size: Some(at), ..SetAttr::default() })
                            .unwrap();
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while written.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        let data = [9; 8];
        for round in 0..5 {
            let writes: Vec<_> = (0..60).map(|i| write(&file, i << 19, &data)).collect();
            fs.commit(&writes, &[]).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        ends.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(fs.getattr(file.ino()).unwrap().size, (59 << 19) + 8);
        drop(file);
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    });
}

/// On a pool without room, neither what is written later nor recovery takes a payload's blocks: it
/// can be cut short and begin anew.
#[test]
fn nobody_writes_over_a_payload_before_it_is_folded() {
    let mut pool = TestPool::new(1, 64 << 20);
    let fs = pool.start_alone();
    let (file, mut shadow) = filled(&fs, "file", 16 << 20);
    let small: Vec<_> = (0..1500).map(|i| make(&fs, &format!("small{i}"))).collect();
    fs.checkpoint().unwrap();
    // the payload lies where the pool's free space ends, among what is left for checkpoints
    let full = make(&fs, "full");
    fill(&fs, &full, 48);
    change(&fs, &file, &mut shadow, &scattered(4096, 3000), 5);
    fill(&fs, &full, 0);
    for it in &small {
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        fs.setattr(it.ino(), &mode).unwrap();
    }
    drop((file, full, small));
    pool.kill();
    drop(fs);
    pool.assert_clean();
    let path = &slices(&pool.dir())[0];
    let before = std::fs::read(path).unwrap();
    let fs = pool.start_alone();
    assert!(content(&fs, &find(&fs, "file")) == shadow, "after the kill");
    pool.kill();
    drop(fs);
    // as if recovery had written all but the roots
    let path = &slices(&pool.dir())[0];
    let slice = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    slice.write_all_at(&before[..16 * BLOCK], 0).unwrap();
    drop(slice);
    pool.assert_clean();
    let fs = pool.start_alone();
    assert!(content(&fs, &find(&fs, "file")) == shadow, "recovered twice");
}

/// Takes all blocks but so many.
fn fill(fs: &FileSystem, file: &Handle, left: u64) {
    let block = pattern(1, BLOCK);
    while fs.statfs().blocks_free > left {
        let end = fs.getattr(file.ino()).unwrap().size;
        if fs.write(file, end, &block).is_err() {
            break;
        }
    }
}

/// What is expected may be much, too.
#[test]
fn expectations_of_a_long_transaction_hold_or_nothing_happens() {
    let pool = TestPool::new(1, 64 << 20);
    let fs = pool.start();
    let (file, mut shadow) = filled(&fs, "file", 16 << 20);
    let places = scattered(4096, 3000);
    let old = shadow.clone();
    let all: Vec<Expected<'_>> = places
        .iter()
        .map(|at| Expected { file: &file, offset: *at as u64, data: &old[*at..*at + 8] })
        .collect();
    let writes: Vec<_> = places.iter().map(|at| write(&file, *at as u64, b"replaced")).collect();
    fs.commit(&writes, &all).unwrap();
    places.iter().for_each(|at| shadow[*at..*at + 8].copy_from_slice(b"replaced"));
    assert!(content(&fs, &file) == shadow);
    assert!(matches!(fs.commit(&writes, &all), Err(Error::Conflict)));
    assert!(content(&fs, &file) == shadow);
}

/// Free blocks that lie one by one, and hardly more of them than a payload takes with the table of
/// its places: it has them all, or nothing happens.
#[test]
fn a_payload_and_its_table_have_blocks_or_nothing_happens() {
    let (bytes, mut outcomes) = (16 << 20, Vec::new());
    for left in (290..302).chain([330]) {
        let mut pool = TestPool::new(1, 64 << 20);
        let fs = pool.start_alone();
        let (file, mut shadow) = filled(&fs, "file", bytes);
        let full = make(&fs, "full");
        fill(&fs, &full, 0);
        fs.checkpoint().unwrap();
        for block in 0..left {
            let hole = fs::Fallocate::PunchHole;
            fs.fallocate(&full, hole, block * 2 * BLOCK as u64, BLOCK as u64).unwrap();
        }
        fs.checkpoint().unwrap();
        let data = pattern(left, 250);
        let places: Vec<usize> = (0..bytes / BLOCK).map(|block| block * BLOCK + 9).collect();
        let writes: Vec<_> = places.iter().map(|at| write(&file, *at as u64, &data)).collect();
        let done = fs.commit(&writes, &[]);
        outcomes.push(done.is_ok());
        match done {
            Ok(()) => places.iter().for_each(|at| shadow[*at..*at + 250].copy_from_slice(&data)),
            Err(error) => assert!(matches!(error, Error::NoSpace), "{left}: {error}"),
        }
        drop(writes);
        drop((file, full));
        pool.kill();
        drop(fs);
        pool.assert_clean();
        let fs = pool.start_alone();
        assert!(content(&fs, &find(&fs, "file")) == shadow, "{left}");
    }
    assert!(outcomes.contains(&true) && outcomes.contains(&false), "{outcomes:?}");
}
