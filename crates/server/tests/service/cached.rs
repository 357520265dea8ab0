//! What a process has read it reads again by itself, and never what is old.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearside::{File, OpenFlags, Pool};
use nix::sys::signal::{Signal, kill};
use server::Options;
use wire::{Flags, Reply, Request};

use crate::child;
use crate::hand::ByHand;
use crate::lanes::in_lanes;
use crate::mortal::{Mortal, serve_if_told};
use crate::served::{SOON, Served, eventually};

const PAGE: usize = 4096;

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, offset).unwrap();
    bytes.truncate(read);
    bytes
}

/// Reads all of a file in pages, again and again, until what it reads would be cached.
fn warm(file: &File, bytes: usize) {
    for _ in 0..8 {
        (0..bytes).step_by(PAGE).for_each(|at| drop(read(file, at as u64, PAGE)));
    }
}

#[test]
fn a_stopped_service_is_not_missed_and_the_next_one_not_preceded() {
    serve_if_told();
    let mut mortal =
        Mortal::new("cached::a_stopped_service_is_not_missed_and_the_next_one_not_preceded");
    let pool = mortal.attach();
    let file = pool.create_file("/f").unwrap();
    let bytes: Vec<u8> = (0..5 * PAGE + 100).map(|at| (at / 7) as u8).collect();
    file.write_all_at(&bytes, 0).unwrap();
    warm(&file, bytes.len());
    mortal.stop();
    std::thread::scope(|threads| {
        let (file, bytes) = (file.clone(), &bytes);
        let reads = threads.spawn(move || {
            for (offset, len) in [(0, 1), (4095, 2), (10, 3 * PAGE), (PAGE, PAGE), (5 * PAGE, 99)] {
                let end = (offset + len).min(bytes.len());
                assert_eq!(read(&file, offset as u64, len), bytes[offset..end]);
            }
            // over its end, and behind
            assert_eq!(read(&file, 4 * PAGE as u64 + 5, 2 * PAGE), bytes[4 * PAGE + 5..]);
            assert!(read(&file, 5 * PAGE as u64 + 200, 7).is_empty());
        });
        let until = Instant::now() + SOON;
        while !reads.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let by_itself = reads.is_finished();
        mortal.go_on();
        reads.join().unwrap();
        assert!(by_itself, "the service was asked");
    });
    // the next one's other client writes
    mortal.kill();
    mortal.start(None);
    let other = mortal.attach();
    let theirs = other.open_file("/f", &OpenFlags::new().read(true).write(true)).unwrap();
    theirs.write_all_at(b"new", PAGE as u64).unwrap();
    assert_eq!(read(&file, PAGE as u64, 3), b"new");
    drop((file, theirs, pool, other));
    mortal.finish();
}

/// The other process of the next test: reads all the time, says when it may go wrong, and ends when
/// it reads what is new.
fn read_on(dir: &std::path::Path) -> ! {
    let pool = Pool::attach(dir).unwrap();
    let file = pool.open_file("/f", &OpenFlags::new().read(true)).unwrap();
    warm(&file, PAGE);
    child::say("reads");
    let is_new = dir.join("is-new");
    loop {
        let may_be_old = !is_new.exists();
        let seen = read(&file, 0, 3);
        assert!(may_be_old || seen == b"new", "old bytes behind new ones: {seen:?}");
        if seen == b"new" {
            child::say("done");
            child::wait_for_the_end();
        }
    }
}

/// A process is stopped, its service dies, somebody else has the pool and changes it: the first
/// thing that the process reads then is new.
#[test]
fn a_process_that_slept_through_its_services_end_reads_nothing_old() {
    serve_if_told();
    if child::role() == "reader" {
        read_on(&child::pool().unwrap());
    }
    let mut mortal =
        Mortal::new("cached::a_process_that_slept_through_its_services_end_reads_nothing_old");
    for _ in 0..5 {
        let _ = std::fs::remove_file(mortal.dir.join("is-new"));
        let pool = mortal.attach();
        pool.create_file("/f").unwrap().write_all_at(b"old", 0).unwrap();
        drop(pool);
        let mut reader = mortal.child("reader");
        assert_eq!(reader.hear(), "reads");
        kill(reader.id(), Signal::SIGSTOP).unwrap();
        mortal.kill();
        {
            let pool = Pool::open(&mortal.dir).unwrap();
            let file = pool.open_file("/f", &OpenFlags::new().write(true)).unwrap();
            file.write_all_at(b"new", 0).unwrap();
            drop(file);
            pool.close().unwrap();
        }
        std::fs::write(mortal.dir.join("is-new"), []).unwrap();
        mortal.start(None);
        kill(reader.id(), Signal::SIGCONT).unwrap();
        assert_eq!(reader.hear(), "done");
        reader.kill();
    }
    std::fs::remove_file(mortal.dir.join("is-new")).unwrap();
    mortal.finish();
}

/// A number, twice, in bytes on both sides of the border of two pages.
fn pair(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

const PAIR_AT: u64 = PAGE as u64 - 8;

fn numbers(bytes: &[u8]) -> (u64, u64) {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (number(0), number(8))
}

/// Writers at every door in turn, each for a while; readers at every door, which see each number
/// that was written before they began, and both of its halves.
#[test]
fn what_returned_is_read_at_every_door_while_others_write() {
    let served = Served::new();
    let attached = [(); 3].map(|()| served.attach());
    let doors = [&attached[0], &attached[1], &attached[2], &*served.owned];
    let flags = OpenFlags::new().read(true).write(true).create(true).mode(0o666);
    let files = doors.map(|door| door.open_file("/f", &flags).unwrap());
    files[0].write_all_at(&[0; 2 * PAGE], 0).unwrap();
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let reads = AtomicU64::new(0);
    std::thread::scope(|threads| {
        let readers: Vec<_> = files
            .iter()
            .flat_map(|file| [file, file])
            .map(|file| {
                threads.spawn(|| {
                    let mut last = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let least = written.load(Ordering::SeqCst).max(last);
                        let (one, other) = numbers(&read(file, PAIR_AT, 16));
                        assert_eq!(one, other, "one moment");
                        assert!(one >= least, "{one} behind {least}");
                        last = one;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let (since, mut number) = (Instant::now(), 0);
        let is_much = |number| number > 200 && reads.load(Ordering::Relaxed) > 1000;
        let may_go_on = || since.elapsed() < SOON && !readers.iter().any(|it| it.is_finished());
        while may_go_on() && (since.elapsed() < Duration::from_secs(4) || !is_much(number)) {
            let writer = &files[number as usize / 50 % files.len()];
            number += 1;
            writer.write_all_at(&pair(number), PAIR_AT).unwrap();
            written.store(number, Ordering::SeqCst);
            // once in a while there is peace, and all is cached
            if number % 10 == 0 {
                std::thread::sleep(Duration::from_micros(500));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(is_much(number), "{number} written, {reads:?} read");
    });
    drop((files, attached));
    served.wait_for_sessions(0);
    served.finish();
}

/// The end of a file, and what becomes zero, by every call that changes it.
#[test]
fn no_end_of_a_file_and_no_zeros_are_old() {
    let served = Served::new();
    let (reader, writer) = (served.attach(), served.attach());
    let flags = OpenFlags::new().read(true).write(true).create(true).mode(0o666);
    let ours = reader.open_file("/f", &flags).unwrap();
    let theirs =
        [writer.open_file("/f", &flags).unwrap(), served.owned.open_file("/f", &flags).unwrap()];
    let mut model: Vec<u8> = Vec::new();
    let check = |model: &[u8], what: &str| {
        for _ in 0..6 {
            for (at, len) in [(0, 2 * PAGE), (PAGE, PAGE), (3 * PAGE, 200), (model.len() / 2, 9)] {
                let expected = &model[at.min(model.len())..(at + len).min(model.len())];
                assert_eq!(read(&ours, at as u64, len), expected, "{what}, at {at}");
            }
        }
    };
    for round in 0..60u8 {
        let file = [&theirs[0], &theirs[1], &ours][usize::from(round) % 3];
        check(&model, "before");
        file.append(&[round + 1; 300]).unwrap();
        model.extend([round + 1; 300]);
        check(&model, "appended");
        let far = model.len() + 2 * PAGE + 50;
        for _ in 0..3 {
            // the second and third may be under a lease
            file.write_all_at(&[round + 2; 60], far as u64).unwrap();
        }
        model.resize(far, 0);
        model.extend([round + 2; 60]);
        check(&model, "written behind its end");
        file.punch_hole(100, 5000).unwrap();
        model[100..5100.min(far)].fill(0);
        check(&model, "punched");
        file.set_len(model.len() as u64 - 1000).unwrap();
        model.truncate(model.len() - 1000);
        check(&model, "cut");
        file.set_len(model.len() as u64 + 700).unwrap();
        model.resize(model.len() + 700, 0);
        check(&model, "made longer");
        file.copy_to(0, file, 64 << 10, 2 * PAGE as u64).unwrap();
        model.resize(64 << 10, 0);
        let copied = model[..2 * PAGE].to_vec();
        model.extend(copied);
        check(&model, "copied");
        file.set_len(u64::from(round % 7) * 1500).unwrap();
        model.truncate(usize::from(round % 7) * 1500);
        model.resize(usize::from(round % 7) * 1500, 0);
        check(&model, "cut again");
    }
    drop((ours, theirs, reader, writer));
    served.wait_for_sessions(0);
    served.finish();
}

/// Memory for what was read comes back with the process, and no more is there than is set.
#[test]
fn what_was_read_takes_no_more_memory_than_is_set() {
    let most = 64 * PAGE as u64;
    let options = Options { copies_bytes: most, ..Options::default() };
    let served = Served::with("pool", 0o666, &options);
    let pools = [served.attach(), served.attach()];
    let bytes: Vec<u8> = (0..256 * PAGE).map(|at| (at / PAGE) as u8).collect();
    served.owned.create_file("/f").unwrap().write_all_at(&bytes, 0).unwrap();
    let files =
        [0, 1].map(|at: usize| pools[at].open_file("/f", &OpenFlags::new().read(true)).unwrap());
    for round in 0..2000usize {
        let page = round * 31 % 256;
        let seen = read(&files[round % 2], (page * PAGE) as u64, 3 * PAGE);
        assert_eq!(seen, bytes[page * PAGE..(page * PAGE + 3 * PAGE).min(bytes.len())]);
        assert!(served.service.copied_bytes() <= most + 16 * PAGE as u64);
    }
    assert!(served.service.copied_bytes() > most / 2, "it is cached");
    drop((files, pools));
    served.wait_for_sessions(0);
    eventually(|| served.service.copied_bytes() == 0);
    served.finish();
}

/// Who closes a file and opens it again reads what it is then.
#[test]
fn a_file_that_was_closed_meanwhile_is_read_anew() {
    let served = Served::new();
    let pool = served.attach();
    let reading = OpenFlags::new().read(true);
    let theirs = served.owned.create_file("/f").unwrap();
    for round in 0..20u8 {
        theirs.write_all_at(&[round; 2 * PAGE], 0).unwrap();
        let file = pool.open_file("/f", &reading).unwrap();
        warm(&file, 2 * PAGE);
        drop(file);
        theirs.write_all_at(&[round + 100; 2 * PAGE], 0).unwrap();
        let file = pool.open_file("/f", &reading).unwrap();
        assert_eq!(read(&file, 0, 2 * PAGE), vec![round + 100; 2 * PAGE]);
        // for whom it is not open to be read, it is not
        let writes = pool.open_file("/f", &OpenFlags::new().write(true)).unwrap();
        assert!(writes.read_at(&mut [0], 0).is_err());
    }
    drop((pool, theirs));
    served.wait_for_sessions(0);
    served.finish();
}

/// A lease that its holder does not use keeps nobody from caching what is read under it.
#[test]
fn a_lease_that_is_not_used_goes_when_others_read() {
    let served = Served::new();
    let writer = served.attach();
    let flags = OpenFlags::new().read(true).write(true).create(true).mode(0o666);
    let theirs = writer.open_file("/f", &flags).unwrap();
    theirs.write_all_at(&[1; 2 * PAGE], 0).unwrap();
    for round in 2..9u8 {
        // as many as get a lease again
        (0..600).for_each(|_| theirs.write_all_at(&[round; 100], 50).unwrap());
        let reader = served.attach();
        let ours = reader.open_file("/f", &flags).unwrap();
        for _ in 0..10 {
            assert_eq!(read(&ours, 50, 100), [round; 100]);
        }
        assert_eq!(served.service.copied_bytes(), 0, "the lease stays while it may be used");
        for _ in 0..20 {
            assert_eq!(read(&ours, 50, 100), [round; 100]);
        }
        assert_eq!(served.service.copied_bytes(), PAGE as u64);
        drop((ours, reader));
        eventually(|| served.service.copied_bytes() == 0);
    }
    drop((theirs, writer));
    served.wait_for_sessions(0);
    served.finish();
}

/// What the service looks at by itself: rights, and places that no file has.
#[test]
fn a_service_gives_no_more_than_a_read_may_have() {
    let served = Served::new();
    served.owned.create_file("/f").unwrap().write_all_at(&[7; 100], 0).unwrap();
    let hand = ByHand::attach(&served.socket(), None);
    let open = |flags: Flags| match hand.ask(0, &Request::Open(b"/f", flags), &[]) {
        Reply::Opened(number, ..) => number,
        other => panic!("{other:?}"),
    };
    let reads = open(Flags { read: true, ..Flags::default() });
    let writes = open(Flags { write: true, ..Flags::default() });
    let ask = |file, offset, len| {
        let mut into = [0; 200];
        let request = Request::ReadCached { file, offset, len };
        hand.try_ask((5, 0), &request, &[], &mut into).unwrap()
    };
    assert_eq!(ask(reads, 0, 100), Reply::Done, "there is none so far");
    assert_eq!(hand.ask(0, &Request::Cache, &[]), Reply::Done);
    assert_eq!(hand.ask(0, &Request::Cache, &[]), Reply::Nothing, "one for each");
    let Reply::Failed(failure) = ask(writes, 0, 100) else { panic!("it may not be read") };
    assert_eq!(failure.error().errno(), libc::EBADF);
    for offset in [u64::MAX, u64::MAX - 50, u64::MAX - 4096, fs::FILE_BYTES_MAX - 50] {
        assert_eq!(ask(reads, offset, 100), Reply::Done, "{offset}");
    }
    for len in [0, u32::MAX] {
        assert_eq!(ask(reads, 0, len), Reply::Done, "{len}");
    }
    let cached = |pages: usize, bytes| match ask(reads, 0, 150) {
        Reply::Cached { pages: all, last_bytes } => {
            assert_eq!((all.len(), last_bytes), (pages, bytes));
        }
        other => panic!("{other:?}"),
    };
    cached(1, 100);
    // no other opening of the file is told of, nor keeps what goes with this one
    for _ in 0..100 {
        let other = open(Flags { read: true, ..Flags::default() });
        ask(other, 0, 50);
        assert_eq!(hand.ask(0, &Request::Close(other), &[]), Reply::Done);
    }
    cached(1, 100);
    drop(hand);
    served.wait_for_sessions(0);
    served.finish();
}

/// Opening a file again and reading it ends no lease that the process has.
#[test]
fn a_read_beside_a_lease_of_ones_own_ends_nothing() {
    let served = Served::new();
    let pool = served.attach();
    let flags = OpenFlags::new().read(true).write(true).create(true).mode(0o666);
    let file = pool.open_file("/f", &flags).unwrap();
    file.write_all_at(&[0; 8 * PAGE], 0).unwrap();
    // the first few go through the service
    (0..4u64).for_each(|at| file.write_all_at(&[1; 64], at * 64).unwrap());
    let stored = in_lanes(&served.dir);
    for round in 0..50u8 {
        let again = pool.open_file("/f", &flags).unwrap();
        (0..8).for_each(|at| drop(read(&again, at * PAGE as u64, PAGE)));
        drop(again);
        file.write_all_at(&[round; 64], 0).unwrap();
        assert_eq!(read(&file, 0, 64), [round; 64]);
    }
    assert!(in_lanes(&served.dir) > stored, "it writes into its lane");
    assert!(served.service.copied_bytes() > 0, "and reads by itself");
    drop((file, pool));
    served.wait_for_sessions(0);
    served.finish();
}
