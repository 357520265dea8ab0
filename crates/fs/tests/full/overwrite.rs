//! Overwriting on a full pool.

use crate::common::{TestPool, content, find, pattern, random};
use crate::{MIB, fill};
use fs::{FileSystem, Handle};

/// Overwrites blocks and pieces of blocks of a full pool's largest file, more than the log holds
/// many times over. Each is done or refused for want of space; the pool stays in order.
fn overwrite(fs: &FileSystem, handle: &Handle, model: &mut [u8], len: usize, rounds: u64) -> u64 {
    let mut state = len as u64;
    let mut refused = 0;
    for round in 0..rounds {
        let slots = (model.len() / len) as u64;
        let at = (random(&mut state) % slots) as usize * len;
        let bytes = pattern(round, len);
        match fs.write(handle, at as u64, &bytes) {
            Ok(done) => {
                assert_eq!(done, len);
                model[at..at + len].copy_from_slice(&bytes);
            }
            Err(error) => {
                assert_eq!(error.errno(), libc::ENOSPC, "round {round}: {error}");
                refused += 1;
            }
        }
    }
    refused
}

fn full_pool_takes_overwrites(len: usize, rounds: u64) {
    let mut pool = TestPool::new(1, 12 * MIB);
    let fs = pool.start();
    let written = fill(&fs, 0);
    let (name, ..) = written.iter().max_by_key(|(.., len)| *len).unwrap();
    let handle = find(&fs, name);
    let mut model = content(&fs, &handle);
    let refused = overwrite(&fs, &handle, &mut model, len, rounds);
    fs.checkpoint().unwrap();
    overwrite(&fs, &handle, &mut model, len, rounds / 4);
    assert!(content(&fs, &handle) == model);
    drop(handle);
    pool.kill();
    drop(fs);
    pool.assert_clean();
    let fs = pool.start();
    assert!(content(&fs, &find(&fs, name)) == model, "{refused} refused");
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

#[test]
fn unaligned_pieces_are_overwritten_on_a_full_pool() {
    full_pool_takes_overwrites(1000, 4000);
}
