//! A machine that asks for locks which no kernel would ask for.

use nearside::files::{LockClass, LockKind, RequestId};

use super::tests::{Guest, USER, all, file, with_pool};
use super::*;

/// The kernel's number of the turn before a guest's.
const EARLIER: u64 = 2 << 48;

fn lock(unique: u64, node: u64, handle: u64, kind: i32) -> Ask {
    let (order, owner, start, end, pid) = (0, 1, 0, 9, 1);
    Ask { unique, order, node, handle, owner, start, end, kind, pid, flock: 0, waits: 0 }
}

/// The errno of what is asked for. `None`: it makes no sense.
fn told(guest: &Guest, ask: &Ask) -> Option<i32> {
    let makes_sense = guest.server.told(&Told::Lock, ask.as_bytes());
    let answer = guest.answers.0.lock().unwrap().pop();
    makes_sense.then(|| {
        let (unique, errno, _) = answer.expect("an answer");
        assert_eq!(unique, ask.unique);
        errno
    })
}

#[test]
fn a_lock_needs_an_open_file() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, all(), false);
        let (secret, own) = (file(fs, "secret", 0, 0o600), file(fs, "own", USER, 0o600));
        let handle = guest.open(own, libc::O_RDWR).unwrap();
        let ask = |ask: Ask| told(&guest, &ask);
        assert_eq!(ask(lock(2, secret, handle, libc::F_WRLCK)), Some(libc::EBADF));
        assert_eq!(ask(lock(4, own, handle, libc::F_WRLCK)), Some(0));
        assert_eq!(ask(lock(6, own, handle, 99)), Some(libc::EINVAL));
        // a number that a service before this one may have given, and did not
        assert_eq!(ask(lock(8, secret, EARLIER, libc::F_RDLCK)), Some(libc::EBADF));
        assert_eq!(ask(lock(10, own, EARLIER, libc::F_RDLCK)), Some(libc::EBADF));
        // a number that a request in a slot has
        let taken = RequestId::of_slot(9, 1, 1).sequence;
        assert_eq!(ask(lock(taken, own, handle, libc::F_WRLCK)), None);
    });
}

#[test]
fn a_lock_of_a_range_needs_a_file_that_is_open_for_it() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, all(), false);
        let own = file(fs, "own", USER, 0o600);
        let reads = guest.open(own, libc::O_RDONLY).unwrap();
        let writes = guest.open(own, libc::O_WRONLY).unwrap();
        let ask = |ask: Ask| told(&guest, &ask);
        assert_eq!(ask(lock(2, own, reads, libc::F_WRLCK)), Some(libc::EBADF));
        assert_eq!(ask(lock(4, own, writes, libc::F_RDLCK)), Some(libc::EBADF));
        assert_eq!(ask(lock(6, own, reads, libc::F_RDLCK)), Some(0));
        assert_eq!(ask(lock(8, own, writes, libc::F_WRLCK)), Some(0));
        assert_eq!(ask(lock(10, own, reads, libc::F_UNLCK)), Some(0));
        // those of whole files do not
        let whole = Ask { flock: 1, end: u64::MAX, ..lock(12, own, reads, libc::F_WRLCK) };
        assert_eq!(ask(whole), Some(0));
    });
}

#[test]
fn who_only_reads_locks_for_reading() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, Users::Trusted, true);
        let node = file(fs, "f", 0, 0o644);
        let handle = guest.open(node, libc::O_RDONLY).unwrap();
        assert_eq!(told(&guest, &lock(2, node, handle, libc::F_WRLCK)), Some(libc::EBADF));
        assert_eq!(told(&guest, &lock(4, node, handle, libc::F_RDLCK)), Some(0));
    });
}

/// What it says that it had open and locked under an earlier service counts as far as its user
/// could have had that.
#[test]
fn what_was_open_and_locked_before_is_what_could_be() {
    with_pool(|fs| {
        let guest = Guest::new(fs, all(), false);
        let (secret, own) = (file(fs, "secret", 0, 0o600), file(fs, "own", USER, 0o600));
        let closed = file(fs, "closed", USER, 0o600);
        let opened = [[EARLIER, secret], [EARLIER + 1, own]].concat();
        // a lock for writing, of record locks
        let record = |ino: u64| [[ino, 5, 0, 9].as_bytes(), [1u32, 0x102].as_bytes()].concat();
        let journal = [record(secret), record(own), record(closed)].concat();
        assert!(guest.server.told(&Told::Asked, &[]));
        assert!(guest.server.told(&Told::Opened, opened.as_bytes()));
        assert!(guest.server.told(&Told::Begin, &journal));
        let owner = nearside::files::LockOwner { door: 77, key: 1 };
        let change = nearside::files::LockChange {
            class: LockClass::Posix,
            owner,
            kind: LockKind::Write,
            start: 0,
            end: 9,
            pid: 1,
        };
        let is_free = |ino| fs.lock_holder(Ino(ino), &change).is_none();
        assert_eq!([secret, own, closed].map(is_free), [true, false, true]);
        let ask = |ask: Ask| told(&guest, &ask);
        assert_eq!(ask(lock(2, secret, EARLIER, libc::F_RDLCK)), Some(libc::EBADF));
        let again = Ask { owner: 5, ..lock(4, own, EARLIER + 1, libc::F_RDLCK) };
        assert_eq!(ask(again), Some(0));
    });
}
