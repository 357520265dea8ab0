//! What one server leaves and the next one finds. A kill is a copy of the memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nearside::files::{Ino, LockChange, LockClass, LockOwner};
use nearside::{FormatOptions, LockKind, Pool, SliceSpec};

use super::ask::Ask;
use super::asked::{Asked, Begun, Signal};
use super::journal::{JOURNAL_BYTES, Journal};
use crate::wire::{Channel, LateReply};

const ASKED_BYTES: usize = 4096;
/// Requests that it has room for.
const ROOM: u64 = 32;

/// Memory that can be looked at as the next server finds it.
struct Memory(OwnedFd);

impl Memory {
    fn new(bytes: usize) -> Memory {
        Memory(shm::create("test", bytes as u64).unwrap())
    }

    fn area(&self, bytes: usize) -> shm::Area {
        shm::map(self.0.as_fd()).unwrap().cut(bytes).unwrap()
    }

    /// As a kill now would leave it.
    fn killed(&self) -> Memory {
        let size = rustix::fs::fstat(&self.0).unwrap().st_size as usize;
        let mut bytes = vec![0; size];
        rustix::io::pread(&self.0, &mut bytes[..], 0).unwrap();
        let copy = Memory::new(size);
        rustix::io::pwrite(&copy.0, &bytes, 0).unwrap();
        copy
    }
}

fn asked(memory: &Memory, owed: &[u64]) -> (Asked, super::asked::Left) {
    Asked::take_over(memory.area(ASKED_BYTES), owed).unwrap()
}

/// A place for an answer, and what was said there: number and errno.
struct Kernel(std::fs::File);

impl Kernel {
    fn new() -> Kernel {
        Kernel(tempfile::tempfile().unwrap())
    }

    fn late(&self, unique: u64) -> LateReply {
        LateReply::new(Arc::new(Channel::new(self.0.try_clone().unwrap().into())), unique)
    }

    fn told(&self) -> Vec<(u64, i32)> {
        let len = self.0.metadata().unwrap().len() as usize;
        let mut bytes = vec![0; len];
        rustix::io::pread(&self.0, &mut bytes[..], 0).unwrap();
        let reply = |head: &[u8]| {
            let errno = i32::from_ne_bytes(head[4..8].try_into().unwrap());
            (u64::from_ne_bytes(head[8..16].try_into().unwrap()), -errno)
        };
        bytes.chunks(16).map(reply).collect()
    }
}

fn ask(unique: u64, waits: bool) -> Ask {
    let (kind, waits) = (libc::F_WRLCK, u32::from(waits));
    let (order, node, handle, owner, pid, flock) = (0, 9, 7, 5, 1, 0);
    Ask { unique, order, node, handle, owner, start: 0, end: 10, kind, pid, flock, waits }
}

#[test]
fn what_was_told_is_told_again_and_not_done_again() {
    let (memory, kernel) = (Memory::new(ASKED_BYTES), Kernel::new());
    let (first, left) = asked(&memory, &[]);
    assert!(left.asks.is_empty() && left.answers.is_empty());
    for unique in [4, 6] {
        assert_eq!(first.begin(&ask(unique, false)), Begun::New);
    }
    first.end(4, kernel.late(4), None);
    first.end(6, kernel.late(6), Some(libc::EAGAIN));
    assert_eq!(kernel.told(), [(4, 0), (6, libc::EAGAIN)]);
    first.released(6);
    let (second, left) = asked(&memory.killed(), &[4]);
    assert_eq!(left.answers, [(4, None)]);
    assert_eq!(second.begin(&ask(4, false)), Begun::Again);
    second.told(4);
    assert_eq!(second.len(), 1);
    second.released(4);
    assert_eq!(second.len(), 0);
}

#[test]
fn a_request_without_an_outcome_is_served_again_and_one_that_waits_goes_on() {
    let memory = Memory::new(ASKED_BYTES);
    let (first, _) = asked(&memory, &[]);
    for (unique, waits) in [(4, true), (6, false), (2, true)] {
        assert_eq!(first.begin(&ask(unique, waits)), Begun::New);
    }
    first.released(4);
    first.released(2);
    let (second, left) = asked(&memory.killed(), &[6]);
    // In the order in which they came, whatever their numbers.
    assert_eq!(left.asks.iter().map(|ask| ask.unique).collect::<Vec<_>>(), [4, 2]);
    assert_eq!(second.begin(&ask(6, false)), Begun::New);
    assert_eq!(second.begin(&ask(2, true)), Begun::Again);
    // A later one comes behind them at the next turn, too.
    assert_eq!(second.begin(&ask(8, true)), Begun::New);
    drop(first);
}

#[test]
fn a_signal_that_comes_first_is_not_forgotten() {
    let (memory, kernel) = (Memory::new(ASKED_BYTES), Kernel::new());
    let (first, _) = asked(&memory, &[]);
    assert!(matches!(first.interrupt(4, |_| true), Signal::Noted));
    let (second, left) = asked(&memory.killed(), &[4]);
    assert!(left.asks.is_empty() && left.answers.is_empty());
    assert_eq!(second.begin(&ask(4, true)), Begun::Interrupted);
    second.end(4, kernel.late(4), Some(libc::EINTR));
    assert_eq!(kernel.told(), [(4, libc::EINTR)]);
    second.released(4);
    assert_eq!(second.len(), 0);
    // Of a request that was answered meanwhile nothing stays.
    let (third, _) = asked(&memory.killed(), &[]);
    assert_eq!(third.len(), 0);
    drop(first);
}

/// One that comes when its request is answered leaves no note that nobody would take away.
#[test]
fn a_signal_that_comes_too_late_leaves_nothing() {
    let (memory, kernel) = (Memory::new(ASKED_BYTES), Kernel::new());
    let (asked, _) = asked(&memory, &[]);
    for unique in 0..ROOM * 2 {
        assert!(matches!(asked.interrupt(unique, |_| false), Signal::Noted));
    }
    assert_eq!(asked.len(), 0);
    // One that is being answered is not a note.
    assert_eq!(asked.begin(&ask(4, true)), Begun::New);
    assert!(matches!(asked.interrupt(4, |_| false), Signal::Noted));
    assert_eq!(asked.len(), 1);
    asked.end(4, kernel.late(4), None);
}

#[test]
fn a_signal_between_the_question_and_the_wait_outlives_the_server() {
    let (memory, fs) = (Memory::new(ASKED_BYTES), Locked::new());
    let (first, _) = asked(&memory, &[]);
    assert_eq!(first.begin(&ask(4, true)), Begun::New);
    assert!(matches!(first.interrupt(4, |_| true), Signal::Noted));
    let (second, left) = asked(&memory.killed(), &[4]);
    assert_eq!(left.asks.len(), 1);
    assert!(second.waits(4, fs.ticket()));
    assert!(first.waits(4, fs.ticket()));
}

#[test]
fn a_server_that_leaves_says_nothing_more() {
    let (memory, kernel) = (Memory::new(ASKED_BYTES), Kernel::new());
    let (first, _) = asked(&memory, &[]);
    assert_eq!(first.begin(&ask(4, true)), Begun::New);
    first.released(4);
    first.leave();
    first.end(4, kernel.late(4), Some(libc::EINTR));
    assert_eq!(kernel.told(), []);
    let (_, left) = asked(&memory.killed(), &[]);
    assert_eq!(left.asks.len(), 1);
}

#[test]
fn there_is_room_for_so_many_and_again_when_they_are_answered() {
    let (memory, kernel) = (Memory::new(ASKED_BYTES), Kernel::new());
    let (asked, _) = asked(&memory, &[]);
    for unique in 0..ROOM {
        assert_eq!(asked.begin(&ask(unique, false)), Begun::New);
    }
    assert_eq!(asked.begin(&ask(ROOM, false)), Begun::Full);
    assert!(matches!(asked.interrupt(99, |_| true), Signal::Full));
    asked.end(3, kernel.late(3), None);
    asked.released(3);
    assert_eq!(asked.begin(&ask(ROOM, false)), Begun::New);
    drop(LateReply::new(Arc::new(Channel::new(kernel.0.try_clone().unwrap().into())), 9));
    assert_eq!(kernel.told(), [(3, 0), (9, libc::EIO)]);
}

#[test]
fn memory_that_is_not_ours_is_refused() {
    let memory = Memory::new(ASKED_BYTES);
    rustix::io::pwrite(&memory.0, &[77], 128).unwrap();
    assert!(Asked::take_over(memory.area(ASKED_BYTES), &[]).is_err());
    let restored = |word: u32, what: u32| {
        let memory = Memory::new(JOURNAL_BYTES);
        rustix::io::pwrite(&memory.0, &word.to_ne_bytes(), 0).unwrap();
        rustix::io::pwrite(&memory.0, &what.to_ne_bytes(), 4096 + 36).unwrap();
        Journal::take_over(memory.area(JOURNAL_BYTES), (1, None), |_, _| Ok(())).map(drop)
    };
    assert!(restored(1, 0x101).is_ok());
    for (word, what) in [(1, 0), (1, 0x104), (1, 0x301), (40_000, 0x101), (u32::MAX, 0x101)] {
        assert!(restored(word, what).is_err(), "{word} {what:x}");
    }
}

/// A pool whose locks are noted in a journal.
struct Locked {
    _root: tempfile::TempDir,
    pool: Pool,
    ino: Vec<Ino>,
}

impl Locked {
    fn new() -> Locked {
        let root = tempfile::tempdir().unwrap();
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 32 << 20,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(root.path().join("pool"), &options).unwrap();
        let pool = Pool::open(root.path().join("pool")).unwrap();
        let make = |name: &str| {
            pool.write(name, "").unwrap();
            Ino(pool.metadata(name).unwrap().ino())
        };
        let ino = ["a", "b", "c"].map(make).to_vec();
        Locked { _root: root, pool, ino }
    }

    fn ticket(&self) -> nearside::files::LockTicket {
        let owner = LockOwner { door: 77, key: 1 };
        let change = change(owner, LockKind::Read, (0, 1));
        self.pool.fs().lock_wait(self.ino[0], &change, Box::new(|_| ()))
    }

    /// What is held through `door`, in an order.
    fn held(&self, door: u64) -> Vec<(u64, u64, u64, u64, LockKind)> {
        self.pool.fs().with_locks(door, |held| {
            let one = |(ino, lock): (Ino, LockChange)| {
                (ino.0, lock.owner.key, lock.start, lock.end, lock.kind)
            };
            let mut held: Vec<_> = held.map(one).collect();
            held.sort_by_key(|lock| (lock.0, lock.1, lock.2));
            held
        })
    }
}

fn change(owner: LockOwner, kind: LockKind, (start, end): (u64, u64)) -> LockChange {
    LockChange { class: LockClass::Posix, owner, kind, start, end, pid: 1 }
}

/// Locks come and go at random, far more than a half holds; at any time a restored journal is the
/// table.
#[test]
fn the_journal_is_the_table() {
    let (locked, memory) = (Locked::new(), Memory::new(JOURNAL_BYTES));
    let fs = locked.pool.fs();
    let [door, again] = [fs.new_lock_door(), fs.new_lock_door()];
    let journal =
        Journal::take_over(memory.area(JOURNAL_BYTES), (door, None), |_, _| Ok(())).unwrap();
    let journal = Arc::new(journal);
    let noting = journal.clone();
    fs.observe_locks(Arc::new(move |ino, change: &LockChange| {
        if change.owner.door == door {
            noting.note(ino, change);
        }
    }));
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let kinds = [LockKind::Read, LockKind::Write, LockKind::Unlock];
    let mut folds = 0;
    for round in 1..=60_000 {
        let (ino, key) = (locked.ino[next(3) as usize], next(4));
        let start = next(50);
        let range = (start, start + next(20));
        let owner = LockOwner { door, key };
        // One that is refused changes nothing.
        let _ = fs.lock(ino, &change(owner, kinds[next(3) as usize], range));
        if journal.is_long() {
            fs.with_locks(door, |held| journal.fold(held));
            folds += 1;
        }
        if round % 7919 == 0 {
            let killed = memory.killed().area(JOURNAL_BYTES);
            let restore = |ino, change: &LockChange| {
                fs.restore_lock(ino, change).unwrap();
                Ok(())
            };
            Journal::take_over(killed, (again, None), restore).unwrap();
            let (held, restored) = (locked.held(door), locked.held(again));
            assert!(held.len() > 3, "{held:?}");
            assert_eq!(restored, held, "round {round}");
            fs.unlock_door(again);
        }
    }
    assert!(folds > 1, "{folds} folds");
    fs.unlock_door(door);
}

#[test]
fn open_files_that_took_locks_are_remembered_until_they_are_closed() {
    let memory = Memory::new(JOURNAL_BYTES);
    let restore = |memory: &Memory| {
        Journal::take_over(memory.area(JOURNAL_BYTES), (1, None), |_, _| Ok(())).unwrap()
    };
    let first = restore(&memory);
    for owner in [(Ino(5), 1), (Ino(5), 2), (Ino(5), 1)] {
        first.took(7, owner);
    }
    first.took(8, (Ino(6), 1));
    assert_eq!(first.len(), 3);
    assert_eq!(first.closed(8), [(Ino(6), 1)]);
    first.fold(&mut std::iter::empty());
    assert_eq!(first.len(), 2);
    let second = restore(&memory.killed());
    assert_eq!(second.closed(8), []);
    let mut owners = second.closed(7);
    owners.sort_by_key(|owner| owner.1);
    assert_eq!(owners, [(Ino(5), 1), (Ino(5), 2)]);
    assert_eq!(second.closed(7), []);
}

/// More than it can bear is refused by whoever asks; what is let go of makes room.
#[test]
fn a_journal_knows_when_it_is_full() {
    let memory = Memory::new(JOURNAL_BYTES);
    let journal = Journal::take_over(memory.area(JOURNAL_BYTES), (1, None), |_, _| Ok(())).unwrap();
    let lock = |at: u64| change(LockOwner { door: 1, key: 1 }, LockKind::Read, (at * 2, at * 2));
    let held = |count: u64| (0..count).map(move |at| (Ino(2), lock(at)));
    journal.fold(&mut held(16_384));
    assert!(!journal.is_full() && !journal.is_long());
    journal.fold(&mut held(16_385));
    assert!(journal.is_full() && !journal.is_long());
    for at in 0..2049 {
        journal.note(Ino(2), &lock(at));
    }
    assert!(journal.is_long(), "it is to try again");
    journal.fold(&mut held(5));
    assert!(!journal.is_full());
}
