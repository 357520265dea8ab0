//! Overwriting on a full pool.

use crate::common::{TestPool, content, find, pattern, random};
use crate::full::{MIB, fill};
use fs::{FileSystem, Handle};

/// Overwrites blocks and pieces of blocks of a full pool's largest file, more than the log holds
/// many times over.
fn overwrite(fs: &FileSystem, handle: &Handle, model: &mut [u8], len: usize, rounds: u64) {
    let mut state = len as u64;
    for round in 0..rounds {
        let slots = (model.len() / len) as u64;
        let at = (random(&mut state) % slots) as usize * len;
        let bytes = pattern(round, len);
        assert_eq!(fs.write(handle, at as u64, &bytes).unwrap(), len, "round {round}");
        model[at..at + len].copy_from_slice(&bytes);
    }
}

fn full_pool_takes_overwrites(len: usize, rounds: u64) {
    overwrites(TestPool::new(1, 12 * MIB), len, rounds);
}

fn overwrites(mut pool: TestPool, len: usize, rounds: u64) {
    let fs = pool.start();
    let written = fill(&fs, 0);
    let (name, ..) = written.iter().max_by_key(|(.., len)| *len).unwrap();
    let handle = find(&fs, name);
    let mut model = content(&fs, &handle);
    overwrite(&fs, &handle, &mut model, len, rounds);
    fs.checkpoint().unwrap();
    overwrite(&fs, &handle, &mut model, len, rounds / 4);
    assert!(content(&fs, &handle) == model);
    drop(handle);
    let fs = pool.killed(fs);
    assert!(content(&fs, &find(&fs, name)) == model);
    for (name, ..) in &written {
        fs.unlink(fs::Ino::ROOT, name.as_bytes()).unwrap();
    }
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn whole_blocks_are_overwritten_on_a_full_pool() {
    full_pool_takes_overwrites(4096, 8000);
}

#[test]
fn small_pieces_are_overwritten_on_a_full_pool() {
    full_pool_takes_overwrites(512, 8000);
}

/// In the domain `sync`, where what is freed waits for a sync.
#[test]
fn blocks_and_pieces_are_overwritten_on_a_full_pool_of_plain_files() {
    for (len, rounds) in [(4096, 2000), (100, 1000), (5000, 500), (100_000, 50)] {
        overwrites(TestPool::synced(1, 12 * MIB), len, rounds);
    }
}

/// Larger than what a full pool has to lend.
#[test]
fn large_pieces_are_overwritten_on_a_full_pool() {
    full_pool_takes_overwrites(200_000, 400);
}

#[test]
fn unaligned_pieces_are_overwritten_on_a_full_pool() {
    full_pool_takes_overwrites(1000, 4000);
}

/// What is lent to one is not to be missing to another for good.
#[test]
fn many_threads_overwrite_on_a_full_pool() {
    let pool = TestPool::new(1, 12 * MIB);
    let fs = pool.start();
    let written = fill(&fs, 0);
    let (name, _, bytes) = written.iter().max_by_key(|(.., len)| *len).unwrap();
    let handle = find(&fs, name);
    let share = bytes / 4;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fs, handle) = (&fs, &handle);
            scope.spawn(move || {
                let mut state = thread as u64 + 1;
                let mut model = vec![0; share];
                fs.read(handle, (thread * share) as u64, &mut model).unwrap();
                for round in 0..600 {
                    let len = [4096, 700, 65_536][round % 3];
                    let at = random(&mut state) as usize % (share - len);
                    let bytes = pattern(round as u64, len);
                    let done = fs.write(handle, (thread * share + at) as u64, &bytes);
                    assert_eq!(done.unwrap(), len, "thread {thread}, round {round}");
                    model[at..at + len].copy_from_slice(&bytes);
                }
                let mut found = vec![0; share];
                fs.read(handle, (thread * share) as u64, &mut found).unwrap();
                assert!(found == model, "thread {thread}");
            });
        }
    });
    drop(handle);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}
