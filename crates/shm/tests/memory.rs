//! Memory that goes from one user to the next.

#![allow(missing_docs, clippy::unwrap_used)]

use std::os::fd::AsFd;

use shm::{Error, create, map};

const PAGE_BYTES: usize = 4096;

#[test]
fn the_next_one_finds_what_was_stored() {
    let memory = create("test", 4 * PAGE_BYTES as u64).unwrap();
    let mut cutter = map(memory.as_fd()).unwrap();
    let mut first = cutter.cut(10).unwrap();
    let mut second = cutter.cut(2 * PAGE_BYTES).unwrap();
    first.fill(1);
    second.fill(2);
    second.store(PAGE_BYTES, 7);
    drop((cutter, first, second));
    let mut cutter = map(memory.try_clone().unwrap().as_fd()).unwrap();
    let all = cutter.cut(4 * PAGE_BYTES).unwrap();
    assert!(all[..PAGE_BYTES].iter().all(|byte| *byte == 1));
    assert!(all[PAGE_BYTES..2 * PAGE_BYTES].iter().all(|byte| *byte == 2));
    assert_eq!(all[2 * PAGE_BYTES..][..5], [7, 0, 0, 0, 2]);
    assert!(all[3 * PAGE_BYTES..].iter().all(|byte| *byte == 0));
}

#[test]
fn areas_are_disjoint_and_end_with_the_memory() {
    let memory = create("test", 2 * PAGE_BYTES as u64).unwrap();
    let mut cutter = map(memory.as_fd()).unwrap();
    let (mut one, mut other) = (cutter.cut(1).unwrap(), cutter.cut(PAGE_BYTES).unwrap());
    assert_eq!((one.len(), other.len()), (PAGE_BYTES, PAGE_BYTES));
    one.fill(1);
    other.fill(2);
    assert!(one.iter().all(|byte| *byte == 1));
    assert!(cutter.cut(1).is_none());
    assert!(cutter.cut(usize::MAX).is_none());
    other.store(0, u32::MAX);
    assert_eq!(other[..5], [255, 255, 255, 255, 2]);
}

/// Two that had the same bytes at once would each hold references to them.
#[test]
fn one_at_a_time_and_the_lock_ends_with_the_last_area() {
    let memory = create("test", PAGE_BYTES as u64).unwrap();
    let mut cutter = map(memory.as_fd()).unwrap();
    let area = cutter.cut(1).unwrap();
    drop(cutter);
    let again = map(memory.try_clone().unwrap().as_fd());
    assert!(matches!(again, Err(Error::InUse)), "{again:?}");
    drop(area);
    assert!(map(memory.as_fd()).is_ok());
}

#[test]
fn a_word_outside_is_refused() {
    let memory = create("test", PAGE_BYTES as u64).unwrap();
    for at in [2, PAGE_BYTES, PAGE_BYTES - 2] {
        let mut area = map(memory.as_fd()).unwrap().cut(1).unwrap();
        let stored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| area.store(at, 1)));
        assert!(stored.is_err(), "{at}");
    }
}

#[test]
fn descriptors_of_other_things_are_refused() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(PAGE_BYTES as u64).unwrap();
    assert!(matches!(map(file.as_fd()), Err(Error::Foreign)));
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&unsealed, PAGE_BYTES as u64).unwrap();
    let refused = map(unsealed.as_fd());
    assert!(matches!(refused, Err(Error::Foreign)), "{refused:?}");
    let empty = create("test", 0).unwrap();
    assert!(matches!(map(empty.as_fd()), Err(Error::Foreign)));
    assert!(rustix::fs::ftruncate(&empty, 1).is_err());
}
