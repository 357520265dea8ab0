//! Tests of the table of locks; against a model: `locks_model_tests.rs`.

use crate::error::{Error, Result};
use crate::lock_types::{LockChange, LockClass, LockKind, LockOwner, LockTicket};
use crate::locks::Locks;
use crate::types::Ino;
use LockKind::{Read, Unlock, Write};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Bytes of the models' files.
pub const BYTES: u64 = 12;
pub const FILE: Ino = Ino(256);

pub fn owner(key: u64) -> LockOwner {
    LockOwner { door: 1 + key % 2, key }
}

pub fn range(key: u64, kind: LockKind, start: u64, end: u64) -> LockChange {
    let pid = key as u32;
    LockChange { class: LockClass::Posix, owner: owner(key), kind, start, end, pid }
}

fn flock(key: u64, kind: LockKind) -> LockChange {
    LockChange { class: LockClass::Flock, ..range(key, kind, 3, 3) }
}

/// A wait, and what it was told.
#[derive(Clone)]
pub struct Wait {
    ticket: LockTicket,
    pub told: Arc<Mutex<Vec<Option<i32>>>>,
}

impl Wait {
    /// Asks for a lock.
    pub fn begin(locks: &Locks, ino: Ino, change: &LockChange) -> Wait {
        let told: Arc<Mutex<Vec<Option<i32>>>> = Arc::default();
        let own = told.clone();
        let done = move |result: Result<()>| own.lock().push(result.err().map(|e| e.errno()));
        Wait { ticket: locks.lock_wait(ino, change, Box::new(done)), told }
    }

    pub fn waits(&self) -> bool {
        self.told.lock().is_empty()
    }

    pub fn granted(&self) -> bool {
        *self.told.lock() == [None]
    }

    pub fn failed(&self, errno: i32) -> bool {
        *self.told.lock() == [Some(errno)]
    }
}

#[test]
fn who_comes_first_is_served_first_and_who_is_in_nobodys_way_passes() {
    let locks = Locks::default();
    locks.lock(FILE, &range(1, Read, 0, 9)).unwrap();
    let writer = Wait::begin(&locks, FILE, &range(2, Write, 0, 4));
    let reader = Wait::begin(&locks, FILE, &range(3, Read, 4, 4));
    let elsewhere = Wait::begin(&locks, FILE, &range(4, Read, 5, 9));
    assert!(writer.waits() && reader.waits(), "the reader does not overtake the writer");
    assert!(elsewhere.granted(), "bytes that nobody waits for");
    locks.lock(FILE, &range(1, Unlock, 0, 4)).unwrap();
    assert!(writer.granted() && reader.waits());
    locks.lock(FILE, &range(2, Read, 4, 4)).unwrap();
    assert!(reader.granted(), "a weaker lock lets it in");
}

#[test]
fn a_circle_over_two_files_is_refused_and_broken_by_letting_go() {
    let locks = Locks::default();
    let (one, two) = (Ino(1), Ino(2));
    locks.lock(one, &range(1, Write, 0, 0)).unwrap();
    locks.lock(two, &range(2, Write, 0, 0)).unwrap();
    let first = Wait::begin(&locks, two, &range(1, Read, 0, 5));
    let second = Wait::begin(&locks, one, &range(2, Read, 0, 5));
    assert!(first.waits() && second.failed(libc::EDEADLK));
    locks.lock(two, &range(2, Unlock, 0, 0)).unwrap();
    assert!(first.granted());
    let again = Wait::begin(&locks, one, &range(2, Read, 0, 5));
    assert!(again.waits(), "the first runs now");
}

/// A reader that becomes a writer while another waits to write: by its place in the queue it would
/// wait for one that waits for it. So would owners in a longer circle.
#[test]
fn fairness_makes_no_deadlock() {
    let locks = Locks::default();
    locks.lock(FILE, &range(1, Read, 0, 0)).unwrap();
    let writer = Wait::begin(&locks, FILE, &range(2, Write, 0, 0));
    let upgrade = Wait::begin(&locks, FILE, &range(1, Write, 0, 0));
    assert!(upgrade.granted() && writer.waits());
    locks.unlock_all(FILE, owner(1), LockClass::Posix);
    assert!(writer.granted());

    for class in [LockClass::Posix, LockClass::Flock] {
        let (one, two) = (Ino(11), Ino(12));
        let locks = Locks::default();
        let lock = |key, kind| LockChange { class, ..range(key, kind, 0, 0) };
        locks.lock(one, &lock(1, Read)).unwrap();
        locks.lock(two, &lock(3, Write)).unwrap();
        let writer = Wait::begin(&locks, one, &lock(2, Write));
        let behind = Wait::begin(&locks, one, &lock(3, Read));
        assert!(writer.waits() && behind.waits());
        let closing = Wait::begin(&locks, two, &lock(1, Read));
        assert!(closing.waits() && behind.granted() && writer.waits(), "{class:?}");
        locks.unlock_all(two, owner(3), class);
        assert!(closing.granted());
    }
}

/// flock(2) looks for no circles: who waits in one waits until it is interrupted.
#[test]
fn a_circle_of_flocks_is_not_refused() {
    let locks = Locks::default();
    let (one, two) = (Ino(1), Ino(2));
    locks.lock(one, &flock(1, Write)).unwrap();
    locks.lock(two, &flock(2, Write)).unwrap();
    let first = Wait::begin(&locks, two, &flock(1, Write));
    let second = Wait::begin(&locks, one, &flock(2, Write));
    assert!(first.waits() && second.waits());
    locks.cancel(second.ticket);
    locks.unlock_all(two, owner(2), LockClass::Flock);
    assert!(second.failed(libc::EINTR) && first.granted());
}

/// An owner with two threads: one waits for a weaker lock than the owner holds.
#[test]
fn a_grant_that_gives_something_up_lets_those_ahead_go_on() {
    let locks = Locks::default();
    locks.lock(FILE, &range(1, Write, 0, 0)).unwrap();
    locks.lock(FILE, &range(2, Write, 5, 5)).unwrap();
    let ahead = Wait::begin(&locks, FILE, &range(3, Read, 0, 0));
    let weaker = Wait::begin(&locks, FILE, &range(1, Read, 0, 5));
    assert!(ahead.waits() && weaker.waits());
    locks.unlock_all(FILE, owner(2), LockClass::Posix);
    assert!(weaker.granted() && ahead.granted());
}

#[test]
fn a_flock_that_is_converted_is_let_go_first() {
    let locks = Locks::default();
    locks.lock(FILE, &flock(1, Read)).unwrap();
    locks.lock(FILE, &flock(2, Read)).unwrap();
    assert!(matches!(locks.lock(FILE, &flock(1, Write)), Err(Error::Locked)));
    assert_eq!(locks.held(FILE).len(), 1, "lost, as in Linux");
    locks.lock(FILE, &flock(1, Read)).unwrap();
    let first = Wait::begin(&locks, FILE, &flock(1, Write));
    assert!(first.waits());
    let second = Wait::begin(&locks, FILE, &flock(2, Write));
    // each let go of what the other waits for
    assert!(second.granted() || first.granted());
    assert_eq!(locks.held(FILE).len(), 1);
    // down again, though another waits to write
    let mut holder = locks.held(FILE)[0];
    holder.kind = Read;
    locks.lock(FILE, &holder).unwrap();
    assert_eq!(locks.held(FILE), [LockChange { start: 0, end: u64::MAX, ..holder }]);
}

#[test]
fn the_classes_know_nothing_of_each_other() {
    let locks = Locks::default();
    locks.lock(FILE, &flock(1, Write)).unwrap();
    locks.lock(FILE, &range(2, Write, 0, u64::MAX)).unwrap();
    assert_eq!(locks.holder(FILE, &range(3, Read, 7, 7)).map(|lock| lock.pid), Some(2));
    assert_eq!(locks.holder(FILE, &flock(3, Read)).map(|lock| lock.pid), Some(1));
    locks.unlock_all(FILE, owner(2), LockClass::Posix);
    assert!(locks.holder(FILE, &flock(3, Read)).is_some());
    assert!(matches!(locks.lock(FILE, &range(2, Read, 5, 4)), Err(Error::Invalid(_))));
}

#[test]
fn a_cancelled_wait_is_told_so_once_and_lets_others_pass() {
    let locks = Locks::default();
    locks.lock(FILE, &range(1, Read, 0, 9)).unwrap();
    let writer = Wait::begin(&locks, FILE, &range(2, Write, 0, 9));
    let reader = Wait::begin(&locks, FILE, &range(3, Read, 0, 9));
    locks.cancel(writer.ticket);
    assert!(writer.failed(libc::EINTR) && reader.granted());
    locks.cancel(writer.ticket);
    locks.cancel(reader.ticket);
    assert!(writer.failed(libc::EINTR) && reader.granted(), "told once");
}

#[test]
fn a_door_that_goes_away_leaves_nothing() {
    let locks = Locks::default();
    let told: Arc<Mutex<Vec<LockChange>>> = Arc::default();
    locks.lock(FILE, &range(1, Write, 0, 4)).unwrap();
    locks.lock(FILE, &flock(1, Write)).unwrap();
    locks.lock(FILE, &range(3, Write, 6, 9)).unwrap();
    locks.lock(FILE, &range(1, Write, 11, 11)).unwrap();
    let own = Wait::begin(&locks, FILE, &range(5, Write, 6, 6));
    let other = Wait::begin(&locks, FILE, &range(2, Write, 0, 9));
    let watched = told.clone();
    locks.observe(Arc::new(move |_, change| watched.lock().push(*change)));
    locks.unlock_door(owner(1).door);
    assert!(own.failed(libc::EINTR) && other.granted());
    assert_eq!(locks.held(FILE), [range(2, Write, 0, 9)]);
    let kinds: Vec<LockKind> = told.lock().iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [Unlock, Unlock, Unlock, Write]);
    locks.clear();
    assert!(locks.is_empty());
}

#[test]
fn restored_locks_hold_whatever_is_in_their_way() {
    let locks = Locks::default();
    locks.lock(FILE, &range(1, Write, 0, 4)).unwrap();
    locks.restore(FILE, &range(2, Write, 2, 6)).unwrap();
    assert_eq!(locks.held(FILE).len(), 2);
    assert!(locks.restore(FILE, &range(2, Write, 1, 0)).is_err());
    let waits = Wait::begin(&locks, FILE, &range(3, Read, 5, 5));
    locks.clear();
    assert!(waits.failed(libc::EINTR), "the end of the pool ends waits");
}

/// Readers of each byte, or -1 for a writer.
type Bytes = [AtomicI64; BYTES as usize];

fn enter(bytes: &Bytes, change: &LockChange) {
    for byte in change.start..=change.end {
        let count = &bytes[byte as usize];
        let before = if change.kind == Write {
            count.compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst).unwrap_or(7)
        } else {
            count.fetch_add(1, Ordering::SeqCst)
        };
        let fine = if change.kind == Write { before == 0 } else { before >= 0 };
        assert!(fine, "byte {byte}: {before} held it when {change:?} was granted");
    }
}

fn leave(bytes: &Bytes, change: &LockChange) {
    for byte in change.start..=change.end {
        let less = if change.kind == Write { -1 } else { 1 };
        bytes[byte as usize].fetch_sub(less, Ordering::SeqCst);
    }
}

/// Waits are granted, cancelled and refused by several threads at once: each is told once, and
/// what was granted excludes what it has to.
#[test]
fn grants_and_cancellations_race_without_harm() {
    const OWNERS: u64 = 6;
    let locks = Locks::default();
    let files: [Bytes; 2] = std::array::from_fn(|_| std::array::from_fn(|_| AtomicI64::new(0)));
    let current: Mutex<Vec<Wait>> = Mutex::default();
    let (granted, interrupted) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for key in 1..=OWNERS {
            let (locks, files, current) = (&locks, &files, &current);
            let (granted, interrupted) = (&granted, &interrupted);
            scope.spawn(move || {
                let mut dice = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                for _ in 0..2000 {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(key);
                    let (one, other) = ((dice >> 33) % BYTES, (dice >> 43) % BYTES);
                    let kind = if dice >> 62 == 0 { Write } else { Read };
                    let change = range(key, kind, one.min(other), one.max(other));
                    let file = (dice >> 53) % 2;
                    let (tell, told) = std::sync::mpsc::channel();
                    let done = move |result: Result<()>| tell.send(result).unwrap_or(());
                    let ticket = locks.lock_wait(Ino(file), &change, Box::new(done));
                    let wait = Wait { ticket, told: Arc::default() };
                    let mut others = current.lock();
                    others.push(wait);
                    let victim = (others.len() > 3).then(|| others.remove(0));
                    drop(others);
                    if let Some(victim) = victim {
                        locks.cancel(victim.ticket);
                    }
                    match told.recv().expect("told once") {
                        Ok(()) => {
                            granted.fetch_add(1, Ordering::Relaxed);
                            enter(&files[file as usize], &change);
                            leave(&files[file as usize], &change);
                            let all = LockChange { kind: Unlock, start: 0, end: BYTES, ..change };
                            locks.lock(Ino(file), &all).expect("letting go is granted");
                        }
                        Err(error) => {
                            assert_eq!(error.errno(), libc::EINTR);
                            interrupted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    assert!(told.recv().is_err(), "told a second time");
                }
            });
        }
    });
    let (granted, interrupted) = (granted.into_inner(), interrupted.into_inner());
    assert_eq!(granted + interrupted, OWNERS * 2000);
    assert!(granted > 0, "{interrupted} interrupted");
    assert!(locks.is_empty());
}
