//! Truncation against writers and readers.

use crate::common::{content, find, make, random};
use crate::stress::{Clock, pool};
use fs::{Fallocate, SetAttr};
use std::time::Duration;

/// Writers put `W` and `V` everywhere, others cut and extend: a reader sees those or zeros, and
/// zeros behind every cut.
#[test]
fn behind_a_truncation_there_are_zeros_and_nothing_else() {
    let mut pool = pool(Some(20_000));
    let fs = pool.start();
    drop(make(&fs, "file"));
    let clock = Clock::start();
    let legal = |bytes: &[u8]| {
        let odd = bytes.iter().position(|byte| ![0, b'W', b'V'].contains(byte));
        assert!(odd.is_none(), "a byte that nobody wrote at {odd:?}");
    };
    std::thread::scope(|scope| {
        for letter in [b'W', b'V'] {
            let (fs, clock) = (&fs, &clock);
            scope.spawn(move || {
                let handle = find(fs, "file");
                let mut state = u64::from(letter);
                while clock.runs() {
                    let dice = random(&mut state);
                    let bytes = vec![letter; (dice >> 20) as usize % 9000];
                    fs.write(&handle, dice % 700_000, &bytes).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let handle = find(&fs, "file");
            let mut state = 5;
            while clock.runs() {
                let size = random(&mut state) % 700_000;
                let change = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(handle.ino(), &change).unwrap();
                let punch = random(&mut state) % 600_000;
                fs.fallocate(&handle, Fallocate::PunchHole, punch, 30_000).unwrap();
            }
        });
        scope.spawn(|| {
            let handle = find(&fs, "file");
            let mut bytes = vec![0xEE; 700_000];
            while clock.runs() {
                let read = fs.read(&handle, 0, &mut bytes).unwrap();
                legal(&bytes[..read]);
            }
        });
        scope.spawn(|| clock.checkpoints(&fs, Duration::from_millis(3)));
    });
    let before = content(&fs, &find(&fs, "file"));
    let fs = pool.killed(fs);
    let after = content(&fs, &find(&fs, "file"));
    assert!(after == before, "another content after the kill");
    legal(&after);
}

/// One thread alone cuts and extends while another writes far away: what was cut off is zero.
#[test]
fn what_was_cut_off_is_zero_when_the_file_grows_again() {
    let pool = pool(Some(4096));
    let fs = pool.start();
    drop(make(&fs, "file"));
    let clock = Clock::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let handle = find(&fs, "file");
            let mut state = 3;
            while clock.runs() {
                let size = random(&mut state) % 200_000;
                fs.write(&handle, 0, &vec![b'A'; 200_000]).unwrap();
                for size in [size, 200_000] {
                    let change = SetAttr { size: Some(size), ..SetAttr::default() };
                    fs.setattr(handle.ino(), &change).unwrap();
                }
                let bytes = content(&fs, &handle);
                let (kept, cut) = bytes.split_at(size as usize);
                assert!(kept.iter().all(|byte| *byte == b'A'));
                assert!(cut.iter().all(|byte| *byte == 0));
            }
        });
        scope.spawn(|| clock.checkpoints(&fs, Duration::from_millis(1)));
    });
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

/// The sizes that a reader sees are those that somebody set.
#[test]
fn a_file_is_never_seen_with_a_size_that_nobody_set() {
    let pool = pool(None);
    let fs = pool.start();
    let ino = make(&fs, "file").ino();
    let clock = Clock::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while clock.runs() {
                for size in [0, 5000, 1 << 40] {
                    let change = SetAttr { size: Some(size), ..SetAttr::default() };
                    fs.setattr(ino, &change).unwrap();
                }
            }
        });
        scope.spawn(|| {
            while clock.runs() {
                let size = fs.getattr(ino).unwrap().size;
                assert!([0, 5000, 1 << 40].contains(&size), "size {size}");
            }
        });
    });
}

/// Parts of blocks, whole blocks and several leaves become zero by one call: a reader sees all of
/// it or nothing.
#[test]
fn what_becomes_zero_is_zero_at_one_moment() {
    const OFFSET: u64 = 120 * 4096 + 100;
    const BYTES: usize = 150 * 4096;
    let mut pool = pool(None);
    let fs = pool.start();
    drop(make(&fs, "file"));
    let clock = Clock::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let handle = find(&fs, "file");
            while clock.runs() {
                for mode in [Fallocate::PunchHole, Fallocate::Zero { keep_size: true }] {
                    fs.write(&handle, OFFSET, &vec![b'A'; BYTES]).unwrap();
                    fs.fallocate(&handle, mode, OFFSET, BYTES as u64).unwrap();
                }
            }
        });
        for len in [BYTES, 8192] {
            let (fs, clock) = (&fs, &clock);
            scope.spawn(move || {
                let handle = find(fs, "file");
                let mut bytes = vec![0xEE; len];
                while clock.runs() {
                    let read = fs.read(&handle, OFFSET, &mut bytes).unwrap();
                    let odd = bytes[..read].iter().position(|byte| *byte != bytes[0]);
                    assert!(odd.is_none(), "{} and, at {odd:?} of {len}, another", bytes[0]);
                }
            });
        }
        scope.spawn(|| clock.checkpoints(&fs, Duration::from_millis(3)));
    });
    drop(pool.killed(fs));
    pool.assert_clean();
}
