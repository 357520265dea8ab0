//! Processes that ask for copies and transactions as no honest one does, and what they get.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use client::{Mapping, Refused, Session, Shows};
use fs::{FILE_BYTES_MAX, LockKind};
use server::Options;
use wire::{Flags, Piece, Reply, Request};

use crate::child::{self, Running};
use crate::served::{Served, eventually};

const PAGE: u64 = 4096;
/// The service's own bounds.
const COPIES_OF_ONE: usize = 256;
const STAGED_BYTES: usize = 64 << 20;

#[derive(Debug)]
struct Nobody;

impl Shows for Nobody {
    fn show(&self, _memory: Option<OwnedFd>) {}

    fn can_store(&self) -> bool {
        false
    }

    fn store(&self, _offset: u64, _data: &[u8]) {
        panic!("it cannot");
    }

    fn expect(&self, _page: u64, _pages: u64) {}
}

fn asked(session: &Session, request: &Request<'_>, data: &[u8]) -> Reply {
    session.ask(request, data, &mut []).unwrap().0
}

/// The errno of a call that is refused.
#[track_caller]
fn refused(session: &Session, request: &Request<'_>, data: &[u8]) -> i32 {
    match asked(session, request, data) {
        Reply::Failed(failure) => failure.error().errno(),
        other => panic!("{request:?}: {other:?}"),
    }
}

fn opened(session: &Session, path: &str, flags: Flags) -> u64 {
    match asked(session, &Request::Open(path.as_bytes(), flags), &[]) {
        Reply::Opened(number, ..) => number,
        other => panic!("{other:?}"),
    }
}

fn reading() -> Flags {
    Flags { read: true, ..Flags::default() }
}

fn making() -> Flags {
    Flags { read: true, write: true, create: true, mode: 0o666, ..Flags::default() }
}

fn memory_of(session: &Session, mapping: Mapping) -> (u64, File) {
    let mut given = None;
    let made = session.map(mapping, |copy, memory| {
        given = Some((copy, File::from(memory)));
        Ok::<Arc<dyn Shows>, ()>(Arc::new(Nobody))
    });
    assert!(matches!(made, Ok(Ok(()))), "{made:?}");
    given.unwrap()
}

#[test]
fn copies_that_cannot_be_are_refused() {
    let served = Served::new();
    let session = Session::attach(&served.dir).unwrap();
    let file = opened(&session, "/f", making());
    let writes = opened(&session, "/f", Flags { write: true, ..Flags::default() });
    let map = |copy, file, offset, bytes| Request::Map { copy, file, offset, bytes };
    for (file, offset, bytes) in [
        (file, 0, 0),
        (file, 1, PAGE),
        (file, PAGE, FILE_BYTES_MAX),
        (file, u64::MAX - PAGE + 1, PAGE),
        (file, 0, u64::MAX),
        (file + 100, 0, PAGE),
    ] {
        let errno = refused(&session, &map(1, file, offset, bytes), &[]);
        assert_eq!(errno, libc::EINVAL, "{file} {offset} {bytes}");
    }
    assert_eq!(refused(&session, &map(1, writes, 0, PAGE), &[]), libc::EBADF);
    // as large as a file can be is no more than others
    assert_eq!(asked(&session, &map(1, file, 0, FILE_BYTES_MAX), &[]), Reply::Done);
    assert_eq!(refused(&session, &map(1, file, 0, PAGE), &[]), libc::EINVAL, "twice");
    assert_eq!(asked(&session, &map(2, file, 0, 3 * PAGE + 1), &[]), Reply::Done);
    let fill = |copy, page, pages| Request::Fill { copy, page, pages };
    for request in [fill(3, 0, 1), fill(2, 4, 1), fill(2, u64::MAX, u32::MAX), fill(1, 1 << 34, 1)]
    {
        assert_eq!(refused(&session, &request, &[]), libc::EINVAL, "{request:?}");
    }
    assert_eq!(served.service.copied_bytes(), 0);
    assert_eq!(asked(&session, &fill(2, 0, 0), &[]), Reply::Done);
    assert_eq!(served.service.copied_bytes(), PAGE);
    assert_eq!(asked(&session, &fill(2, 0, u32::MAX), &[]), Reply::Done);
    assert_eq!(served.service.copied_bytes(), 4 * PAGE);
    for _ in 0..3 {
        assert_eq!(asked(&session, &Request::Unmap(2), &[]), Reply::Done);
    }
    assert_eq!(served.service.copied_bytes(), 0);
    drop(session);
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn nobody_has_more_copies_and_pages_than_he_may() {
    let options = Options { copies_bytes: 16 * PAGE, ..Options::default() };
    let served = Served::with("pool", 0o666, &options);
    let session = Session::attach(&served.dir).unwrap();
    let file = opened(&session, "/f", making());
    let mut copies = 0;
    while let Reply::Done = asked(
        &session,
        &Request::Map { copy: copies as u64, file, offset: 0, bytes: 64 * PAGE },
        &[],
    ) {
        let fill = Request::Fill { copy: copies as u64, page: 0, pages: 64 };
        assert_eq!(asked(&session, &fill, &[]), Reply::Done);
        assert!(served.service.copied_bytes() <= 64 * PAGE, "one call's at most");
        copies += 1;
    }
    assert_eq!(copies, COPIES_OF_ONE);
    // another one has his own
    let other = served.attach();
    let theirs = other.create_file("/g").unwrap();
    theirs.write_all_at(b"theirs", 0).unwrap();
    let region = other.map(&theirs, 0, PAGE).unwrap();
    let mut seen = [0; 6];
    region.load(0, &mut seen).unwrap();
    assert_eq!(&seen, b"theirs");
    drop(session);
    served.wait_for_sessions(1);
    // who is counted no more may be about to let go of them
    eventually(|| served.service.copied_bytes() <= PAGE);
    drop((region, theirs, other));
    served.finish();
}

#[test]
fn transactions_that_cannot_be_do_not_happen() {
    let served = Served::new();
    let session = Session::attach(&served.dir).unwrap();
    let (file, reads) = (opened(&session, "/f", making()), opened(&session, "/f", reading()));
    let piece = |file, offset, len| Piece { file, offset, len };
    let stage = |staged, writes, expected| Request::Stage { staged, writes, expected };
    let commit =
        |staged, pieces, writes| Request::Commit { staged, pieces, writes, expected: vec![] };
    // bytes that did not come, and files that are not open for it
    let long = vec![piece(file, 0, 5), piece(file, 9, u32::MAX)];
    for request in [stage(1, long.clone(), vec![]), stage(1, vec![], long.clone())] {
        assert_eq!(refused(&session, &request, b"12345"), libc::EINVAL);
    }
    assert_eq!(refused(&session, &commit(0, 0, long), b"12345"), libc::EINVAL);
    let not_open = vec![piece(reads, 0, 1)];
    assert_eq!(refused(&session, &stage(1, not_open.clone(), vec![]), b"1"), libc::EBADF);
    assert_eq!(refused(&session, &commit(0, 0, not_open), b"1"), libc::EBADF);
    assert_eq!(refused(&session, &commit(0, 0, vec![piece(999, 0, 1)]), b"1"), libc::EINVAL);
    // of what was staged some is not there, or more is
    let one = vec![piece(file, 0, 1)];
    for pieces in [0, 2, u32::MAX] {
        assert_eq!(asked(&session, &stage(1, one.clone(), vec![]), b"x"), Reply::Done);
        assert_eq!(asked(&session, &commit(1, pieces, one.clone()), b"y"), Reply::Nothing);
    }
    assert_eq!(asked(&session, &commit(1, 1, one.clone()), b"y"), Reply::Nothing, "it is gone");
    assert_eq!(asked(&session, &Request::FileAttributes(file), &[]), {
        let pool = served.attach();
        Reply::Attributes(*pool.metadata("/f").unwrap().attr())
    });
    assert!(served.owned.read("/f").unwrap().is_empty());
    // as much as one may have
    let data = vec![7; 1 << 20];
    let large = |staged| stage(staged, vec![piece(file, 0, 1 << 20)], vec![]);
    let mut bytes = 0;
    while let Reply::Done = asked(&session, &large(1 + bytes as u64 % 3), &data) {
        bytes += data.len();
    }
    assert!((STAGED_BYTES - (2 << 20)..=STAGED_BYTES).contains(&bytes), "{bytes}");
    (0..4).for_each(|staged| drop(asked(&session, &Request::Unstage(staged), &[])));
    for staged in 10..266 {
        assert_eq!(asked(&session, &stage(staged, one.clone(), vec![]), b"x"), Reply::Done);
    }
    let error = refused(&session, &stage(266, one.clone(), vec![]), b"x");
    assert_eq!(error, refused(&session, &stage(267, one, vec![]), b"x"));
    drop(session);
    served.wait_for_sessions(0);
    served.finish();
}

/// A process of another user: whatever it tries with the memory that it was given.
#[test]
fn a_copy_cannot_be_stored_to_by_way_of_its_descriptor() {
    const NAME: &str = "mappers::a_copy_cannot_be_stored_to_by_way_of_its_descriptor";
    if let Some(dir) = child::pool() {
        let session = Session::attach(&dir).unwrap();
        let file = opened(&session, "/f", reading());
        let (copy, memory) = memory_of(&session, Mapping { file, ino: 2, offset: 0, bytes: PAGE });
        let place = format!("/proc/self/fd/{}", memory.as_raw_fd());
        for options in [OpenOptions::new().write(true), OpenOptions::new().read(true).write(true)] {
            let error = options.open(&place).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
        }
        assert!(std::fs::set_permissions(&place, PermissionsExt::from_mode(0o600)).is_err());
        assert!(memory.set_permissions(PermissionsExt::from_mode(0o600)).is_err());
        assert!(memory.set_len(0).is_err());
        let error = shm::Shared::map(memory.as_fd()).unwrap_err();
        assert_eq!(error.errno(), libc::EACCES, "{error}");
        assert_eq!(asked(&session, &Request::Fill { copy, page: 0, pages: 1 }, &[]), Reply::Done);
        let mut seen = [0; 6];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut seen, 0).unwrap();
        assert_eq!(&seen, b"theirs");
        child::say("done");
        child::wait_for_the_end();
    }
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can be several users");
        return;
    }
    let served = Served::new();
    served.owned.write("/f", "theirs").unwrap();
    let program = served.dir.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let usual = child::command(NAME, &served.dir);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=1234", "--regid=1234", "--clear-groups"]).arg(&program);
    child::pass_on(&usual, &mut command);
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = Running::start(command);
    assert_eq!(other.hear(), "done");
    other.kill();
    eventually(|| served.service.copied_bytes() == 0);
    assert_eq!(served.owned.read("/f").unwrap(), b"theirs");
    served.finish();
}

/// What `make` says is handed on, and nothing is left of the copy.
#[test]
fn a_copy_that_cannot_be_used_is_given_back() {
    let served = Served::new();
    let session = Session::attach(&served.dir).unwrap();
    let file = opened(&session, "/f", making());
    let mut number = 0;
    let made = session.map(Mapping { file, ino: 2, offset: 0, bytes: PAGE }, |copy, _| {
        number = copy;
        Err::<Arc<dyn Shows>, _>("no room")
    });
    assert!(matches!(made, Ok(Err(Refused::Make("no room")))), "{made:?}");
    let fill = Request::Fill { copy: number, page: 0, pages: 1 };
    assert_eq!(refused(&session, &fill, &[]), libc::EINVAL);
    let lock = Request::Lock { file, kind: LockKind::Write, start: 0, end: 9, wait: false };
    assert_eq!(asked(&session, &lock, &[]), Reply::Done, "it goes on");
    drop(session);
    served.finish();
}
