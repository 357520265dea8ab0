//! Peers that have files mapped as no honest one does, or that read nothing: what they are told,
//! and that nobody waits for them.

use std::time::Instant;

use fs::{FILE_BYTES_MAX, LockKind};
use server::Options;
use wire::{Flags, NOTICE, OfCopy, Piece, Reply, Request};

use crate::peers::Peer;
use crate::served::{SOON, Served};

const PAGE: u64 = 4096;
/// The service's own bound.
const COPIES_OF_ONE: u64 = 256;

/// A peer, how many calls it has made, and what it was told of copies.
struct Watcher {
    peer: Peer,
    calls: u64,
    told: Vec<(OfCopy, Vec<u8>)>,
}

impl Watcher {
    fn of(served: &Served) -> Watcher {
        Watcher { peer: served.attached(), calls: 0, told: Vec::new() }
    }

    fn send(&mut self, request: &Request<'_>, data: &[u8]) {
        self.calls += 1;
        self.peer.call(0, self.calls, request, data);
    }

    /// What is answered in this slot, and what was told before.
    fn answer(&mut self, wanted: u16) -> Reply {
        loop {
            let (slot, message, data) = self.peer.hear().unwrap();
            if slot == NOTICE {
                self.told.push((wire::decode(&message).unwrap(), data));
                continue;
            }
            assert_eq!(slot, wanted);
            return wire::decode(&message).unwrap();
        }
    }

    fn ask(&mut self, request: &Request<'_>, data: &[u8]) -> Reply {
        self.send(request, data);
        self.answer(0)
    }

    fn refused(&mut self, request: &Request<'_>, data: &[u8]) -> i32 {
        match self.ask(request, data) {
            Reply::Failed(failure) => failure.error().errno(),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn open(&mut self, path: &str, flags: Flags) -> u64 {
        match self.ask(&Request::Open(path.as_bytes(), flags), &[]) {
            Reply::Opened(number, ..) => number,
            other => panic!("{other:?}"),
        }
    }

    /// What was told since.
    fn told(&mut self) -> Vec<(OfCopy, Vec<u8>)> {
        assert_eq!(self.ask(&Request::Unstage(9), &[]), Reply::Done);
        std::mem::take(&mut self.told)
    }
}

const READS: Flags = Flags {
    read: true,
    write: false,
    append: false,
    truncate: false,
    create: false,
    create_new: false,
    mode: 0o644,
};
const MAKES: Flags = Flags { write: true, create: true, ..READS };

fn map(copy: u64, file: u64, offset: u64, bytes: u64) -> Request<'static> {
    Request::Map { copy, file, offset, bytes }
}

fn fill(copy: u64, page: u64, pages: u32) -> Request<'static> {
    Request::Fill { copy, page, pages }
}

#[test]
fn copies_that_cannot_be_are_refused() {
    let served = Served::new();
    let mut one = Watcher::of(&served);
    let file = one.open("/f", MAKES);
    let writes = one.open("/f", Flags { read: false, write: true, ..READS });
    for (file, offset, bytes) in [
        (file, 0, 0),
        (file, 1, PAGE),
        (file, PAGE, FILE_BYTES_MAX),
        (file, u64::MAX - PAGE + 1, PAGE),
        (file, 0, u64::MAX),
        (file + 100, 0, PAGE),
    ] {
        let errno = one.refused(&map(1, file, offset, bytes), &[]);
        assert_eq!(errno, libc::EINVAL, "{file} {offset} {bytes}");
    }
    assert_eq!(one.refused(&map(1, writes, 0, PAGE), &[]), libc::EBADF);
    assert_eq!(one.ask(&map(1, file, 0, FILE_BYTES_MAX), &[]), Reply::Done);
    assert_eq!(one.refused(&map(1, file, 0, PAGE), &[]), libc::EINVAL, "twice");
    assert_eq!(one.ask(&map(2, file, 0, 3 * PAGE + 1), &[]), Reply::Done);
    for request in [fill(3, 0, 1), fill(2, 4, 1), fill(2, u64::MAX, u32::MAX), fill(1, 1 << 34, 1)]
    {
        assert_eq!(one.refused(&request, &[]), libc::EINVAL, "{request:?}");
    }
    assert_eq!((one.told().len(), served.service.copied_bytes()), (0, 0));
    assert_eq!(one.ask(&fill(2, 1, u32::MAX), &[]), Reply::Done);
    let told = [(OfCopy::Pages { copy: 2, page: 1 }, vec![0; 3 * PAGE as usize])];
    assert!(one.told() == told && served.service.copied_bytes() == 3 * PAGE);
    for _ in 0..3 {
        assert_eq!(one.ask(&Request::Unmap(2), &[]), Reply::Done);
    }
    assert_eq!(one.refused(&fill(2, 0, 1), &[]), libc::EINVAL, "it has ended");
    assert_eq!(served.service.copied_bytes(), 0);
    // no more than one may have
    let more = (3..COPIES_OF_ONE + 2).map(|copy| one.ask(&map(copy, file, 0, PAGE), &[]));
    assert!(more.into_iter().all(|reply| reply == Reply::Done));
    assert_eq!(one.refused(&map(1000, file, 0, PAGE), &[]), libc::EMFILE);
    drop(one);
    served.wait_for_sessions(0);
    served.finish();
}

/// In the order in which it happens, and before the answer of whoever does it.
#[test]
fn changes_are_told_before_they_are_answered() {
    let served = Served::new();
    let (mut one, pool) = (Watcher::of(&served), served.attach());
    pool.write("/f", [1; 5 * 4096]).unwrap();
    let (file, theirs) = (one.open("/f", MAKES), pool.open_file("/f", &crate::peers::usual()));
    let theirs = theirs.unwrap();
    // it begins behind the first page
    assert_eq!(one.ask(&map(7, file, PAGE, 100 * PAGE), &[]), Reply::Done);
    theirs.write_all_at(&[2; 100], 2 * PAGE).unwrap();
    assert_eq!(one.told().len(), 0, "it has no page of that");
    assert_eq!(one.ask(&fill(7, 0, 3), &[]), Reply::Done);
    let expected = [vec![1; 4096], vec![2; 100], vec![1; 3996 + 4096]].concat();
    assert!(one.told() == [(OfCopy::Pages { copy: 7, page: 0 }, expected)]);
    theirs.write_all_at(b"told", PAGE + 9).unwrap();
    assert!(one.told() == [(OfCopy::Written { copy: 7, at: 9 }, b"told".to_vec())]);
    // a transaction of its own, and of much
    let piece = |offset, len| Piece { file, offset, len };
    let commit = |writes| Request::Commit { staged: 0, pieces: 0, writes, expected: vec![] };
    one.ask(&commit(vec![piece(2 * PAGE, 3)]), b"own");
    assert!(one.told == [(OfCopy::Written { copy: 7, at: PAGE }, b"own".to_vec())]);
    one.told.clear();
    one.ask(&commit(vec![piece(0, 3 * PAGE as u32)]), &[5; 3 * 4096]);
    assert!(one.told == [(OfCopy::Gone { copy: 7, page: 0, pages: 2 }, Vec::new())]);
    one.told.clear();
    theirs.set_len(0).unwrap();
    assert!(one.told() == [(OfCopy::Gone { copy: 7, page: 2, pages: 1 }, Vec::new())]);
    theirs.write_all_at(&[6; 9], 2 * PAGE).unwrap();
    assert_eq!((one.told().len(), served.service.copied_bytes()), (0, 0), "all is gone");
    drop((one, pool, theirs));
    served.wait_for_sessions(0);
    served.finish();
}

/// Nobody waits for it, and what is kept for it is little, whatever is changed.
#[test]
fn who_reads_nothing_holds_no_writer_and_hears_that_its_pages_are_gone() {
    const PAGES: u64 = 4096;
    let served = Served::with(Options { streams_bytes: 4 << 20, ..Options::default() });
    let (mut one, pool) = (Watcher::of(&served), served.attach());
    let file = one.open("/f", MAKES);
    pool.write("/f", vec![1; (PAGES * PAGE) as usize]).unwrap();
    let theirs = pool.open_file("/f", &crate::peers::usual()).unwrap();
    for copy in [1, 2] {
        assert_eq!(one.ask(&map(copy, file, 0, PAGES * PAGE), &[]), Reply::Done);
        for page in (0..PAGES).step_by(64) {
            assert_eq!(one.ask(&fill(copy, page, 64), &[]), Reply::Done);
        }
    }
    let told: usize = one.told().iter().map(|(_, data)| data.len()).sum();
    assert_eq!(told as u64, 2 * PAGES * PAGE);
    // it waits for something that is answered when all has happened
    theirs.lock(LockKind::Write, ..).unwrap();
    let (kind, start, end) = (LockKind::Read, 0, 0);
    one.peer.call(1, 1, &Request::Lock { file, kind, start, end, wait: true }, &[]);
    // more than the kernels keep for it; then pages here and there
    let since = Instant::now();
    for round in 0..12_000u64 {
        let (page, len) = (round % 8, if round % 3 == 0 { 4096 } else { 2000 });
        theirs.write_all_at(&vec![round as u8; len], page * PAGE).unwrap();
    }
    for page in (9..PAGES).step_by(2) {
        theirs.write_all_at(&[3; 5], page * PAGE).unwrap();
    }
    let used = served.service.stream_bytes();
    assert!(used < 1 << 20, "{used} bytes are kept");
    println!("{:?}, {used} bytes are kept for who reads nothing", since.elapsed());
    theirs.unlock(..).unwrap();
    assert_eq!(one.answer(1), Reply::Done);
    // it does what it was told before that, and has what the file has
    let mut copies = [1u64, 2].map(|_| vec![Some(vec![1; PAGE as usize]); PAGES as usize]);
    let told = std::mem::take(&mut one.told);
    let gone = told.iter().filter(|(said, _)| matches!(said, OfCopy::Gone { .. })).count();
    assert!(gone > 0 && gone < 1000, "{gone}");
    for (said, data) in told {
        match said {
            OfCopy::Pages { .. } => panic!("nobody asked"),
            OfCopy::Written { copy, at } => {
                let (page, at) = ((at / PAGE) as usize, (at % PAGE) as usize);
                if let Some(bytes) = &mut copies[copy as usize - 1][page] {
                    bytes[at..at + data.len()].copy_from_slice(&data);
                }
            }
            OfCopy::Gone { copy, page, pages } => {
                let all = copies[copy as usize - 1].iter_mut().skip(page as usize);
                all.take(pages.min(PAGES) as usize).for_each(|bytes| *bytes = None);
            }
        }
    }
    let mut content = vec![0; (PAGES * PAGE) as usize];
    theirs.read_exact_at(&mut content, 0).unwrap();
    for pages in &copies {
        for (number, page) in pages.iter().enumerate() {
            let bytes = &content[number * 4096..][..4096];
            assert!(page.as_ref().is_none_or(|page| page == bytes), "page {number}");
        }
    }
    // and hears of what is changed now
    assert_eq!(one.ask(&fill(1, 5, 1), &[]), Reply::Done);
    one.told.clear();
    theirs.write_all_at(b"again", 5 * PAGE).unwrap();
    let written = |it: &(OfCopy, Vec<u8>)| it.1 == b"again";
    assert!(one.told().iter().any(written));
    drop((one, pool, theirs));
    served.wait_for_sessions(0);
    assert_eq!((served.service.copied_bytes(), served.service.stream_bytes()), (0, 0));
    served.finish();
}

/// What the service remembers of pages is bounded: those that came first go.
#[test]
fn no_more_pages_are_remembered_than_is_set() {
    let options = Options { copies_there_bytes: 100 * PAGE, ..Options::default() };
    let served = Served::with(options);
    let (mut one, mut other) = (Watcher::of(&served), Watcher::of(&served));
    for one in [&mut one, &mut other] {
        let file = one.open("/f", MAKES);
        assert_eq!(one.ask(&map(1, file, 0, 1000 * PAGE), &[]), Reply::Done);
    }
    assert_eq!(one.ask(&fill(1, 0, 64), &[]), Reply::Done);
    one.told.clear();
    assert_eq!(other.ask(&fill(1, 0, 64), &[]), Reply::Done);
    let until = Instant::now() + SOON;
    let mut gone = 0;
    while gone < 28 {
        for (said, _) in one.told() {
            let OfCopy::Gone { copy: 1, pages, .. } = said else { panic!("{said:?}") };
            gone += pages;
        }
        assert!(Instant::now() < until, "{gone} pages went");
    }
    assert_eq!((gone, served.service.copied_bytes()), (28, 100 * PAGE));
    drop((one, other));
    served.wait_for_sessions(0);
    assert_eq!(served.service.copied_bytes(), 0);
    served.finish();
}
