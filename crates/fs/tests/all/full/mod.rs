//! Pools filled to the last block, and back: nothing written before is lost, removing works on a
//! full pool, all space comes back, and the pool never stops working.

mod names;
mod overwrite;
mod reserved;

use crate::common::{TestPool, content, find, make, pattern};
use fs::{FileSystem, Ino, SetAttr};

const MIB: u64 = 1 << 20;
/// Pages of the trees of the smallest pool, when it is full.
const TREE_PAGES: usize = 16;

/// A file that was written: name, seed, bytes.
type Written = (String, u64, usize);

/// Writes files of several sizes until the pool is full; gives what was acknowledged.
fn fill(fs: &FileSystem, round: u64) -> Vec<Written> {
    let mut written = Vec::new();
    let sizes = [700_000usize, 100_000, 4096, 60_000, 5000, 2_500_000, 1];
    let mut refused = 0;
    for number in 0.. {
        let len = if refused == 0 { sizes[number % sizes.len()] } else { 4096 };
        let (name, seed) = (format!("f{round}-{number}"), round << 32 | number as u64);
        let handle =
            match fs.create(Ino::ROOT, name.as_bytes(), fs::NewNode::File, crate::common::BY) {
                Ok(attr) => fs.open(attr.ino).unwrap(),
                Err(error) => {
                    assert_eq!(error.errno(), libc::ENOSPC, "create: {error}");
                    return written;
                }
            };
        let done = match fs.write(&handle, 0, &pattern(seed, len)) {
            Ok(done) => done,
            Err(error) => {
                assert_eq!(error.errno(), libc::ENOSPC, "write: {error}");
                0
            }
        };
        written.push((name, seed, done));
        if done < len {
            refused += 1;
            if refused > 3 {
                return written;
            }
        }
    }
    written
}

fn intact(fs: &FileSystem, written: &[Written]) {
    for (name, seed, len) in written {
        let bytes = content(fs, &find(fs, name));
        assert_eq!(bytes.len(), *len, "{name}");
        assert!(bytes == pattern(*seed, *len), "{name} has another content");
    }
}

fn remove(fs: &FileSystem, written: &[Written]) {
    for (name, ..) in written {
        fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
}

/// Free blocks once everything that waits has come back.
fn settled(fs: &FileSystem) -> u64 {
    // a tree that shrank lets go of its topmost page at the next change
    for _ in 0..3 {
        let root = fs.getattr(Ino::ROOT).unwrap();
        fs.setattr(Ino::ROOT, &SetAttr { mode: Some(root.mode), ..SetAttr::default() }).unwrap();
        fs.checkpoint().unwrap();
    }
    fs.statfs().blocks_free
}

fn fill_and_empty(slices: usize, slice_bytes: u64) {
    let mut pool = TestPool::new(slices, slice_bytes);
    let fs = pool.start();
    let empty = settled(&fs);
    let mut fs = Some(fs);
    let mut first = 0;
    for round in 0..4 {
        let now = fs.take().unwrap();
        let written = fill(&now, round);
        let bytes: usize = written.iter().map(|(.., len)| len).sum();
        // a full pool is full: what is left is less than one file's block and its share of a tree
        let left = now.statfs().blocks_free;
        assert!(left <= 8, "round {round}: {left} blocks are free when a write is refused");
        // a tree's pages may lie on the other slice's reserve, and more data on its own then; and
        // blocks that are free in one round may have been found in another
        let less = (first / 50).max(TREE_PAGES * 4096) + left as usize * 4096;
        assert!(bytes + less >= first, "round {round}: {bytes}, {left} free, {first} at first");
        first = first.max(bytes);
        intact(&now, &written);
        if round % 2 == 1 {
            pool.kill();
        } else {
            now.close().unwrap();
        }
        drop(now);
        pool.assert_clean();
        let now = pool.start();
        intact(&now, &written);
        remove(&now, &written);
        assert_eq!(settled(&now), empty, "round {round}: space was lost");
        now.close().unwrap();
        drop(now);
        pool.assert_clean();
        fs = Some(pool.start());
        let free = fs.as_ref().unwrap().statfs().blocks_free;
        assert_eq!(free, empty, "round {round}: space was lost over a restart");
    }
}

#[test]
fn a_pool_of_one_slice_is_filled_and_emptied_again_and_again() {
    fill_and_empty(1, 12 * MIB);
}

#[test]
fn a_pool_of_three_slices_is_full_only_when_all_are() {
    fill_and_empty(3, 6 * MIB);
}

#[test]
fn a_pool_of_the_smallest_slices_is_filled_and_emptied() {
    fill_and_empty(2, MIB);
}

/// Truncation and punching give space back on a full pool, though they write a block themselves.
#[test]
fn truncating_on_a_full_pool_gives_space_back() {
    let pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start();
    let written = fill(&fs, 0);
    for (name, _, len) in written.iter().filter(|(.., len)| *len > 10_000) {
        let size = Some(*len as u64 / 2 + 1);
        let ino = fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino;
        fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).unwrap();
    }
    let handle = make(&fs, "new");
    assert_eq!(fs.write(&handle, 0, &pattern(9, 1 << 20)).unwrap(), 1 << 20);
    drop(handle);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}
