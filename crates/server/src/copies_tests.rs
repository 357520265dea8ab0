//! Copies, and what becomes of them when their files change.

use super::*;
use nearside::{FormatOptions, Pool, SliceSpec};
use rustix::fs::{FallocateFlags, fallocate};
use std::os::unix::fs::MetadataExt;

fn pool() -> (tempfile::TempDir, Pool) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("pool");
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 32 << 20,
        process: true,
        ..FormatOptions::default()
    };
    Pool::format(&dir, &options).unwrap();
    let pool = Pool::open(&dir).unwrap();
    (root, pool)
}

/// As somebody whom the service need not trust.
const USER: u32 = 4321;

fn map(copies: &Copies, pool: &Pool, file: &nearside::File, number: u64, bytes: u64) -> File {
    let mut given = None;
    let give = |memory: BorrowedFd<'_>| {
        given = Some(File::from(memory.try_clone_to_owned()?));
        Ok(())
    };
    copies.map(pool.fs(), (number, USER), file.handle().unwrap(), (0, bytes), give).unwrap();
    given.unwrap()
}

fn page(memory: &File, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    memory.read_exact_at(&mut bytes, page * PAGE).unwrap();
    bytes
}

/// Pages that are there.
fn there(memory: &File) -> u64 {
    memory.metadata().unwrap().blocks() * 512 / PAGE
}

#[test]
fn a_page_that_is_there_has_what_the_file_has() {
    let (_root, pool) = pool();
    let copies = Copies::new(Room::new(1 << 20));
    let file = pool.create_file("/f").unwrap();
    file.write_all_at(&[1; 3 * 4096], 0).unwrap();
    let memory = map(&copies, &pool, &file, 7, 4 * PAGE);
    assert_eq!(there(&memory), 0);
    copies.fill(pool.fs(), 7, (0, 4), |_| ()).unwrap();
    assert_eq!(there(&memory), 4);
    assert_eq!((page(&memory, 2), page(&memory, 3)), (vec![1; 4096], vec![0; 4096]));
    // written, over the end of a page
    file.write_all_at(b"new bytes", 4092).unwrap();
    assert_eq!((&page(&memory, 0)[4092..], &page(&memory, 1)[..5]), (&b"new "[..], &b"bytes"[..]));
    // gone
    file.set_len(4096).unwrap();
    assert!(there(&memory) <= 2, "what was cut off is not shown");
    copies.fill(pool.fs(), 7, (1, 1), |_| ()).unwrap();
    assert_eq!(page(&memory, 1), vec![0; 4096]);
    copies.unmap(pool.fs(), 7);
    assert!(copies.fill(pool.fs(), 7, (0, 1), |_| ()).is_err());
    pool.close().unwrap();
}

#[test]
fn no_more_pages_are_there_than_there_is_room_for() {
    let (_root, pool) = pool();
    let room = Room::new(8 * PAGE);
    let copies = Copies::new(room.clone());
    let file = pool.create_file("/f").unwrap();
    file.write_all_at(&[5; 64 * 4096], 0).unwrap();
    let memories = [1, 2].map(|number| map(&copies, &pool, &file, number, 64 * PAGE));
    for round in 0..200u64 {
        copies.fill(pool.fs(), 1 + round % 2, (round * 7 % 64, 3), |_| ()).unwrap();
        let sum: u64 = memories.iter().map(there).sum();
        assert!(sum <= 8 && room.bytes() == sum * PAGE, "round {round}: {sum}");
    }
    copies.end(pool.fs());
    assert_eq!(room.bytes(), 0);
    pool.close().unwrap();
}

/// Whoever has the descriptor can neither change the memory nor its length.
#[test]
fn the_descriptor_of_a_copy_is_for_loading_only() {
    let (_root, pool) = pool();
    let copies = Copies::new(Room::new(1 << 20));
    let file = pool.create_file("/f").unwrap();
    let memory = map(&copies, &pool, &file, 1, PAGE);
    assert!(memory.write_all_at(b"mine", 0).is_err());
    assert!(memory.set_len(0).is_err());
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(fallocate(&memory, flags, 0, PAGE).is_err());
    assert_eq!(memory.metadata().unwrap().mode() & 0o777, 0o400);
    drop(file);
    copies.end(pool.fs());
    pool.close().unwrap();
}
