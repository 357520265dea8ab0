//! Locks of open files.

use std::sync::atomic::{AtomicU64, Ordering};

use nearside::files::{LIBRARY_DOOR, LockChange, LockClass, LockOwner};
use nearside::{File, LockKind, OpenFlags, Pool};

use crate::scratch::Scratch;

fn open(pool: &Pool, path: &str) -> File {
    pool.open_file(path, &OpenFlags::new().read(true).write(true).create(true)).unwrap()
}

#[test]
fn a_lock_belongs_to_an_open_file_and_ends_with_it() {
    let pool = Scratch::new();
    let (one, other) = (open(&pool, "/f"), open(&pool, "/f"));
    let clone = one.clone();
    one.lock(LockKind::Write, ..).unwrap();
    assert!(clone.try_lock(LockKind::Write, 5..=5).unwrap(), "the same open file");
    assert!(!other.try_lock(LockKind::Read, 7..).unwrap());
    drop(one);
    assert!(!other.try_lock(LockKind::Read, 7..).unwrap(), "a clone is left");
    drop(clone);
    assert!(other.try_lock(LockKind::Read, 7..).unwrap());
    for empty in [other.try_lock(LockKind::Read, 3..3), other.try_lock(LockKind::Read, 0..0)] {
        assert_eq!(empty.unwrap_err().errno(), libc::EINVAL);
    }
    let reader = pool.open_file("/f", &OpenFlags::new().read(true)).unwrap();
    assert_eq!(reader.lock(LockKind::Write, ..).unwrap_err().errno(), libc::EBADF);
}

#[test]
fn a_lock_of_another_door_is_in_the_way_and_names_its_process() {
    let pool = Scratch::new();
    let file = open(&pool, "/f");
    let ino = pool.engine().lookup(nearside::files::Ino::ROOT, b"f").unwrap().ino;
    let owner = LockOwner { door: LIBRARY_DOOR + 1, key: 1 };
    let class = LockClass::Posix;
    let foreign = LockChange { class, owner, kind: LockKind::Write, start: 0, end: 9, pid: 77 };
    pool.engine().lock(ino, &foreign).unwrap();
    assert!(!file.try_lock(LockKind::Read, ..).unwrap());
    assert!(file.try_lock(LockKind::Read, 10..).unwrap());
    let owner = LockOwner { door: LIBRARY_DOOR, key: u64::MAX };
    let asked = LockChange { owner, ..foreign };
    assert_eq!(pool.engine().lock_holder(ino, &asked), Some(foreign));
    pool.engine().unlock_door(foreign.owner.door);
    assert!(file.try_lock(LockKind::Read, ..).unwrap());
}

#[test]
fn threads_wait_for_each_other_and_a_deadlock_is_refused() {
    let pool = Scratch::new();
    let turns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let file = open(&pool, "/count");
                for _ in 0..500 {
                    file.lock(LockKind::Write, ..).unwrap();
                    let seen = turns.load(Ordering::Relaxed);
                    std::thread::yield_now();
                    turns.store(seen + 1, Ordering::Relaxed);
                    file.unlock(..).unwrap();
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 2000, "one at a time");

    let (one, other) = (open(&pool, "/one"), open(&pool, "/one"));
    one.lock(LockKind::Write, 0..1).unwrap();
    other.lock(LockKind::Write, 1..2).unwrap();
    // whoever comes second closes the circle, is refused, and lets go: the first goes on
    let meet = |file: &File, own: std::ops::Range<u64>, wanted: std::ops::Range<u64>| {
        let result = file.lock(LockKind::Write, wanted);
        file.unlock(own).unwrap();
        result.map_err(|error| error.errno())
    };
    let results = std::thread::scope(|scope| {
        let first = scope.spawn(|| meet(&one, 0..1, 1..2));
        let second = meet(&other, 1..2, 0..1);
        [first.join().unwrap(), second]
    });
    let refused = results.iter().filter(|result| **result == Err(libc::EDEADLK)).count();
    assert_eq!((refused, results.iter().filter(|r| r.is_ok()).count()), (1, 1), "{results:?}");
}
