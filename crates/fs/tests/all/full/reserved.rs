//! Space that is reserved in time can be written when the pool is full.

use crate::common::{TestPool, content, find, make, pattern, random};
use crate::full::{MIB, fill, settled};
use fs::{Fallocate, FileSystem, Handle, Ino};

const BLOCK: usize = 4096;
const ALLOCATE: Fallocate = Fallocate::Allocate { keep_size: false };
const KEEP_SIZE: Fallocate = Fallocate::Allocate { keep_size: true };

fn sectors(fs: &FileSystem, handle: &Handle) -> u64 {
    fs.getattr(handle.ino()).unwrap().sectors
}

/// Writes all of `handle`'s bytes from the beginning, in pieces of `len`, and then some of them
/// again and again.
fn write_all(fs: &FileSystem, handle: &Handle, model: &mut [u8], len: usize) {
    let mut state = len as u64;
    let pieces = model.len().div_ceil(len);
    for round in 0..pieces + 500 {
        let piece = if round < pieces { round } else { random(&mut state) as usize % pieces };
        let at = piece * len;
        let end = model.len().min(at + len);
        let bytes = pattern(round as u64, end - at);
        let done = fs.write(handle, at as u64, &bytes);
        assert_eq!(done.unwrap(), bytes.len(), "round {round}, at {at}");
        model[at..end].copy_from_slice(&bytes);
    }
}

/// A file is reserved, the pool is filled, and the file is written all over in pieces of `len`.
/// With `restart`, the pool is opened again in between, after a kill.
fn reserved_bytes_are_written_on_a_full_pool(len: usize, restart: bool) {
    reserved_bytes_are_written(TestPool::new(2, 12 * MIB), len, restart);
}

fn reserved_bytes_are_written(mut pool: TestPool, len: usize, restart: bool) {
    let fs = pool.start();
    let empty = settled(&fs);
    let handle = make(&fs, "reserved");
    let bytes = 3 * MIB as usize - 100;
    // bytes that are patches, and ones that are a block, are reserved around
    fs.write(&handle, 20_000, b"a patch").unwrap();
    fs.write(&handle, 1 << 20, &pattern(1, 9000)).unwrap();
    let mut model = vec![0; bytes];
    model[20_000..20_007].copy_from_slice(b"a patch");
    model[1 << 20..][..9000].copy_from_slice(&pattern(1, 9000));
    fs.fallocate(&handle, ALLOCATE, 0, bytes as u64).unwrap();
    assert_eq!(sectors(&fs, &handle), (bytes.div_ceil(BLOCK) * 8) as u64);
    assert!(content(&fs, &handle) == model);
    let written = fill(&fs, 0);
    drop(handle);
    let fs = if restart { pool.killed(fs) } else { fs };
    let handle = find(&fs, "reserved");
    assert!(content(&fs, &handle) == model);
    write_all(&fs, &handle, &mut model, len);
    assert!(content(&fs, &handle) == model);
    assert_eq!(sectors(&fs, &handle), (bytes.div_ceil(BLOCK) * 8) as u64);
    drop(handle);
    let fs = pool.killed(fs);
    assert!(content(&fs, &find(&fs, "reserved")) == model);
    fs.unlink(Ino::ROOT, b"reserved").unwrap();
    crate::full::remove(&fs, &written);
    // a page that was written while the pool was full has no second copy yet
    let free = settled(&fs);
    assert!((empty..=empty + 2).contains(&free), "{free} blocks are free, {empty} were");
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

/// In the domain `sync`, where what is freed waits for a sync.
#[test]
fn reserved_bytes_are_written_on_a_full_pool_of_plain_files() {
    for (len, restart) in [(BLOCK, false), (90, false), (9000, true)] {
        reserved_bytes_are_written(TestPool::synced(2, 12 * MIB), len, restart);
    }
}

#[test]
fn reserved_blocks_are_written_on_a_full_pool() {
    reserved_bytes_are_written_on_a_full_pool(BLOCK, false);
}

#[test]
fn reserved_blocks_are_written_on_a_full_pool_that_was_killed() {
    reserved_bytes_are_written_on_a_full_pool(BLOCK, true);
}

#[test]
fn reserved_bytes_are_written_in_small_pieces_on_a_full_pool() {
    reserved_bytes_are_written_on_a_full_pool(700, true);
}

#[test]
fn reserved_bytes_are_written_in_large_pieces_on_a_full_pool() {
    reserved_bytes_are_written_on_a_full_pool(10_000, false);
}

#[test]
fn reserved_bytes_are_written_in_pieces_that_no_full_pool_has_blocks_for() {
    reserved_bytes_are_written_on_a_full_pool(1_000_000, true);
}

#[test]
fn what_is_not_to_be_had_is_not_reserved() {
    let mut pool = TestPool::new(1, 12 * MIB);
    let fs = pool.start();
    let (handle, other) = (make(&fs, "f"), make(&fs, "other"));
    let free = settled(&fs);
    for (mode, offset) in
        [(ALLOCATE, 0), (KEEP_SIZE, 1 << 40), (Fallocate::Zero { keep_size: false }, 5)]
    {
        let refused = fs.fallocate(&handle, mode, offset, (free + 1) * 4096).unwrap_err();
        assert_eq!(refused.errno(), libc::ENOSPC, "{mode:?}");
        let attr = fs.getattr(handle.ino()).unwrap();
        assert_eq!((attr.size, attr.sectors), (0, 0), "{mode:?}");
    }
    assert_eq!(settled(&fs), free);
    // all that is free can be
    fs.fallocate(&handle, KEEP_SIZE, 0, free * 4096).unwrap();
    assert_eq!(fs.getattr(handle.ino()).unwrap().size, 0);
    assert_eq!(fs.statfs().blocks_free, 0);
    assert_eq!(fs.write(&other, 0, &[1; BLOCK]).unwrap_err().errno(), libc::ENOSPC);
    assert_eq!(fs.write(&handle, 5 * 4096, &[1; 3 * BLOCK]).unwrap(), 3 * BLOCK);
    drop((handle, other));
    let fs = pool.killed(fs);
    let handle = find(&fs, "f");
    assert_eq!(sectors(&fs, &handle), free * 8);
    fs.fallocate(&handle, Fallocate::PunchHole, 0, free * 4096).unwrap();
    assert_eq!(settled(&fs), free);
    fs.close().unwrap();
    drop((handle, fs));
    pool.assert_clean();
}

/// A hole that is reserved is a hole: to reads, to seeks, and to copies.
#[test]
fn what_is_reserved_is_a_hole() {
    let mut pool = TestPool::new(1, 12 * MIB);
    let fs = pool.start();
    let (one, two) = (make(&fs, "one"), make(&fs, "two"));
    fs.fallocate(&one, ALLOCATE, 0, 1 << 20).unwrap();
    fs.fallocate(&two, ALLOCATE, 0, 1 << 20).unwrap();
    fs.write(&one, 500_000, &[7; 10_000]).unwrap();
    assert_eq!(fs.seek(&one, 0, true).unwrap(), 500_000 / 4096 * 4096);
    assert_eq!(fs.seek(&one, 0, false).unwrap(), 0);
    assert_eq!(fs.seek(&one, 500_000, false).unwrap(), 510_000u64.next_multiple_of(4096));
    assert_eq!(fs.copy((&one, 0), (&two, 0), 1 << 20).unwrap(), 1 << 20);
    assert!(content(&fs, &two) == content(&fs, &one));
    assert_eq!(sectors(&fs, &two), 3 * 8, "what was reserved there has made way for holes");
    assert_eq!(sectors(&fs, &one), 2048);
    let zero = Fallocate::Zero { keep_size: true };
    fs.fallocate(&one, zero, 0, 1 << 20).unwrap();
    assert_eq!(sectors(&fs, &one), 2048, "what is zeroed is reserved");
    assert!(fs.seek(&one, 0, true).is_err());
    fs.checkpoint().unwrap();
    drop((one, two));
    let fs = pool.killed(fs);
    let one = find(&fs, "one");
    assert!(content(&fs, &one) == vec![0; 1 << 20]);
    assert_eq!(sectors(&fs, &one), 2048);
    fs.close().unwrap();
    drop((one, fs));
    pool.assert_clean();
}
