//! Overlapping and disjoint writes with readers: a read sees every write call whole or not at all.

use crate::common::{content, find, make, pattern, random, write_seeded};
use crate::stress::{Clock, pool};
use fs::FileSystem;
use std::time::Duration;

const BLOCK: usize = 4096;

/// A write of `blocks` blocks: each block says of which write it is, and the content follows.
fn version(id: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = pattern(id, BLOCK).repeat(blocks);
    for (index, block) in bytes.chunks_mut(BLOCK).enumerate() {
        block[..8].copy_from_slice(&id.to_le_bytes());
        block[8..16].copy_from_slice(&(index as u64).to_le_bytes());
        block[16..24].copy_from_slice(&(blocks as u64).to_le_bytes());
    }
    bytes
}

/// What the block says: id, its place in the write, blocks of the write. The block is whole.
fn parse(block: &[u8]) -> Option<(u64, usize, usize)> {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let (id, index, blocks) = (word(0), word(8) as usize, word(16) as usize);
    if id == 0 {
        assert!(block.iter().all(|byte| *byte == 0), "half zeros");
        return None;
    }
    let mut expected = pattern(id, BLOCK);
    expected[..24].copy_from_slice(&block[..24]);
    assert!(block == &expected[..], "a block of write {id:x} is torn");
    assert!(index < blocks && blocks < 600, "write {id:x}: block {index} of {blocks}");
    Some((id, index, blocks))
}

/// Every write that covers the range alone is seen whole: here all writes cover exactly it.
fn whole(bytes: &[u8]) {
    let parsed: Vec<_> = bytes.chunks(BLOCK).map(parse).collect();
    for (at, pair) in parsed.windows(2).enumerate() {
        let ids = (pair[0].map(|block| block.0), pair[1].map(|block| block.0));
        assert_eq!(ids.0, ids.1, "blocks {at} and {} are of different writes", at + 1);
    }
}

/// Threads write the same `blocks` blocks from `first` on, readers look.
fn one_range(first: u64, blocks: usize, memory_bytes: Option<u64>) {
    let mut pool = pool(memory_bytes);
    let fs = pool.start();
    drop(make(&fs, "file"));
    let clock = Clock::start();
    let offset = first * BLOCK as u64;
    let look = |fs: &FileSystem| {
        let mut bytes = vec![0xEE; blocks * BLOCK];
        let read = fs.read(&find(fs, "file"), offset, &mut bytes).unwrap();
        assert!(read == 0 || read == bytes.len(), "{read} bytes: a half of a write");
        whole(&bytes[..read]);
    };
    std::thread::scope(|scope| {
        for thread in 1..3u64 {
            let (fs, clock) = (&fs, &clock);
            scope.spawn(move || {
                let handle = find(fs, "file");
                for round in 0u64.. {
                    let bytes = version(thread << 32 | round, blocks);
                    let written = match thread {
                        1 => fs.write(&handle, offset, &bytes),
                        _ => write_seeded(fs, &handle, offset, &bytes, 2 * round + 8),
                    };
                    assert_eq!(written.unwrap(), bytes.len());
                    if !clock.runs() {
                        break;
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while clock.runs() {
                    look(&fs);
                }
            });
        }
        scope.spawn(|| clock.checkpoints(&fs, Duration::from_millis(3)));
    });
    look(&fs);
    pool.kill();
    drop(fs);
    pool.assert_clean();
    look(&pool.start());
}

#[test]
fn a_read_within_one_leaf_sees_whole_writes() {
    one_range(3, 5, None);
}

#[test]
fn a_read_over_two_leaves_sees_whole_writes() {
    one_range(126, 4, None);
}

#[test]
fn a_read_over_two_leaves_sees_whole_writes_while_leaves_are_evicted() {
    one_range(126, 4, Some(4096));
}

#[test]
fn the_largest_atomic_write_is_seen_whole() {
    one_range(100, 512, None);
}

/// Writes of other lengths at any place: a block is of one write, and a later block of the same
/// write is only missing where another write covered it.
#[test]
fn overlapping_writes_leave_whole_blocks_in_order() {
    let mut pool = pool(Some(100_000));
    let fs = pool.start();
    drop(make(&fs, "file"));
    let clock = Clock::start();
    std::thread::scope(|scope| {
        for thread in 1..4u64 {
            let (fs, clock) = (&fs, &clock);
            scope.spawn(move || {
                let handle = find(fs, "file");
                let mut state = thread;
                for round in 0u64.. {
                    let dice = random(&mut state);
                    let (first, blocks) = (dice % 300, 1 + (dice >> 32) as usize % 9);
                    let bytes = version(thread << 32 | round, blocks);
                    fs.write(&handle, first * BLOCK as u64, &bytes).unwrap();
                    if !clock.runs() {
                        break;
                    }
                }
            });
        }
        scope.spawn(|| {
            while clock.runs() {
                content(&fs, &find(&fs, "file")).chunks(BLOCK).for_each(|block| {
                    parse(block);
                });
            }
        });
        scope.spawn(|| clock.checkpoints(&fs, Duration::from_millis(2)));
    });
    let before = content(&fs, &find(&fs, "file"));
    let fs = pool.killed(fs);
    assert!(content(&fs, &find(&fs, "file")) == before, "another content after the kill");
}

/// Threads that own disjoint ranges, down to bytes of one block, each see their own last write.
#[test]
fn disjoint_small_writes_of_one_block_all_stay() {
    let mut pool = pool(Some(50_000));
    let fs = pool.start();
    drop(make(&fs, "file"));
    let clock = Clock::start();
    let last: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (fs, clock) = (&fs, &clock);
                scope.spawn(move || {
                    let handle = find(fs, "file");
                    let mut bytes = Vec::new();
                    for round in 0u64.. {
                        bytes = pattern(thread << 40 | round, 100 + thread as usize * 250);
                        fs.write(&handle, thread * 1000, &bytes).unwrap();
                        let mut seen = vec![0; bytes.len()];
                        fs.read(&handle, thread * 1000, &mut seen).unwrap();
                        assert!(seen == bytes, "thread {thread} does not see its own write");
                        if !clock.runs() {
                            break;
                        }
                    }
                    bytes
                })
            })
            .collect();
        scope.spawn(|| clock.checkpoints(&fs, Duration::from_millis(2)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let fs = pool.killed(fs);
    let found = content(&fs, &find(&fs, "file"));
    for (thread, bytes) in last.iter().enumerate() {
        assert!(found[thread * 1000..][..bytes.len()] == bytes[..], "thread {thread}");
    }
}
