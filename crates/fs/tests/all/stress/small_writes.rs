//! Small writes change blocks in place, under readers that take no lock: a read sees each of them
//! whole or not at all.

use crate::common::{find, make, random};
use crate::stress::{Clock, pool};
use fs::FileSystem;
use std::time::Duration;

const BLOCK: u64 = 4096;
/// Bytes of a write.
const LEN: usize = 600;

/// One thread fills `LEN` bytes at `offset` with one number after another, readers look at the
/// blocks around; `others` are written meanwhile.
fn filled_over(offset: u64, others: &[u64], memory_bytes: Option<u64>) {
    let mut pool = pool(memory_bytes);
    let fs = pool.start();
    let file = make(&fs, "file");
    let last = others.iter().copied().fold(offset, u64::max);
    fs.write(&file, 0, &vec![0; (last + 2 * BLOCK) as usize]).unwrap();
    drop(file);
    let clock = Clock::start();
    let from = offset / BLOCK * BLOCK;
    let look = |fs: &FileSystem| {
        let mut bytes = vec![0xEE; 2 * BLOCK as usize];
        assert_eq!(fs.read(&find(fs, "file"), from, &mut bytes).unwrap(), bytes.len());
        let own = &bytes[(offset - from) as usize..][..LEN];
        let torn = own.iter().position(|byte| *byte != own[0]);
        assert_eq!(torn, None, "a write of {} is seen in half", own[0]);
        own[0]
    };
    std::thread::scope(|scope| {
        let (fs, clock, look) = (&fs, &clock, &look);
        scope.spawn(move || {
            let handle = find(fs, "file");
            for round in (0..=u8::MAX).cycle() {
                fs.write(&handle, offset, &[round; LEN]).unwrap();
                assert_eq!(look(fs), round, "a write that returned is not seen");
                if !clock.runs() {
                    break;
                }
            }
        });
        scope.spawn(move || {
            let (handle, mut state) = (find(fs, "file"), 7);
            while clock.runs() {
                let at = others[random(&mut state) as usize % others.len()];
                fs.write(&handle, at, &[0xDD; 64]).unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(move || {
                while clock.runs() {
                    look(fs);
                }
            });
        }
        scope.spawn(move || clock.checkpoints(fs, Duration::from_millis(3)));
    });
    let seen = look(&fs);
    pool.kill();
    drop(fs);
    pool.assert_clean();
    assert_eq!(look(&pool.start()), seen, "the last write that returned");
}

#[test]
fn inside_one_block() {
    filled_over(200, &[1000, 3 * BLOCK], None);
}

#[test]
fn across_two_blocks() {
    filled_over(BLOCK - 300, &[0, 3 * BLOCK], None);
}

#[test]
fn across_two_leaves() {
    filled_over(128 * BLOCK - 300, &[0, 126 * BLOCK, 131 * BLOCK], None);
}

#[test]
fn while_leaves_are_let_go_for_want_of_memory() {
    filled_over(128 * BLOCK - 300, &[0, 126 * BLOCK, 131 * BLOCK], Some(1));
}

/// In the `sync` domain, the blocks of a file that is synced often are in the log until a
/// checkpoint writes them, under writers who replace them and readers.
#[test]
fn while_checkpoints_write_blocks_that_the_log_holds() {
    let mut options = crate::common::options(2, 24 << 20);
    options.process = false;
    options.log_bytes = Some(4 << 20);
    let mut pool = crate::common::TestPool::with(&options);
    let fs = pool.start();
    drop(make(&fs, "file"));
    let clock = Clock::start();
    let look = |fs: &FileSystem, block: u64| {
        let mut bytes = vec![0xEE; BLOCK as usize];
        if fs.read(&find(fs, "file"), block * BLOCK, &mut bytes).unwrap() == 0 {
            return 0;
        }
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a write is seen in half");
        bytes[0]
    };
    let write = |fs: &FileSystem, own: u64| {
        let handle = find(fs, "file");
        for round in (0..=u8::MAX).cycle() {
            let block = own * 4 + u64::from(round) % 4;
            fs.write(&handle, block * BLOCK, &[round; BLOCK as usize]).unwrap();
            if round % 8 == 0 {
                fs.fsync(&handle).unwrap();
            }
            assert_eq!(look(fs, block), round, "a write that returned is not seen");
            if !clock.runs() {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        let (fs, clock, look, write) = (&fs, &clock, &look, &write);
        scope.spawn(move || write(fs, 0));
        scope.spawn(move || write(fs, 1));
        scope.spawn(move || {
            while clock.runs() {
                for block in 0..8 {
                    look(fs, block);
                }
            }
        });
        scope.spawn(move || clock.checkpoints(fs, Duration::from_millis(3)));
    });
    let seen: Vec<u8> = (0..8).map(|block| look(&fs, block)).collect();
    let fs = pool.killed(fs);
    let after: Vec<u8> = (0..8).map(|block| look(&fs, block)).collect();
    assert_eq!(after, seen, "the last writes that returned");
}
