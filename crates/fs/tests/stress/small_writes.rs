//! Small writes change blocks in place, under readers that take no lock: a read sees each of them
//! whole or not at all.

use crate::common::{find, make, random};
use crate::{Clock, pool};
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
