//! Connections that are lost while the service lives: the process comes back over another one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside::{AttachOptions, LockKind, OpenFlags, Pool};
use server::Options;

use crate::served::{LINGER, LONG_LINGER, SOON, Served};
use crate::wire_cutter::{Cut, WireCutter};

fn reading_and_writing() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true)
}

#[test]
fn all_that_is_done_while_connections_are_cut_is_done_once() {
    const THREADS: usize = 6;
    const LINE: usize = 16;
    let served = Served::new();
    let network = WireCutter::before(&served.address);
    let pool = served.attach_at(&network.address);
    let log = pool.open_file("/log", &reading_and_writing().append(true)).unwrap();
    let is_over = AtomicBool::new(false);
    let done: Vec<u64> = std::thread::scope(|threads| {
        let work = |thread: usize| {
            let (pool, log, is_over) = (&pool, &log, &is_over);
            let new = OpenFlags::new().write(true).create_new(true);
            move || {
                let name = |count: u64| format!("/{thread}-{count}");
                pool.open_file(name(0), &new).unwrap();
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let line = format!("{thread:>5} {count:>9}\n");
                    let at = log.append(line.as_bytes()).unwrap();
                    let mut seen = [0; LINE];
                    log.read_exact_at(&mut seen, at).unwrap();
                    assert_eq!(seen, line.as_bytes());
                    pool.rename(name(count), name(count + 1)).unwrap();
                    pool.open_file("/new".to_owned() + &name(count)[1..], &new).unwrap();
                    pool.remove_file("/new".to_owned() + &name(count)[1..]).unwrap();
                    count += 1;
                }
                count
            }
        };
        let working: Vec<_> = (0..THREADS).map(|thread| threads.spawn(work(thread))).collect();
        for round in 0..40 {
            std::thread::sleep(Duration::from_millis(20 + round % 7 * 9));
            network.cut(if round % 3 == 0 { Cut::Process } else { Cut::Both });
        }
        is_over.store(true, Ordering::Relaxed);
        working.into_iter().map(|one| one.join().unwrap()).collect()
    });
    println!("rounds of the threads: {done:?}");
    let lines = String::from_utf8(pool.read("/log").unwrap()).unwrap();
    for (thread, count) in done.iter().enumerate() {
        let numbers = lines.lines().filter_map(|line| {
            let (who, number) = line.trim_start().split_once(' ')?;
            (who == thread.to_string()).then(|| number.trim().parse::<u64>().unwrap())
        });
        assert!(numbers.eq(0..*count), "lines of thread {thread}, of which {count} were written");
        assert!(pool.exists(format!("/{thread}-{count}")).unwrap());
    }
    assert_eq!(served.service.sessions(), 1);
    drop((log, pool));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn pipelined_writes_are_done_in_order_whatever_is_cut() {
    const BYTES: usize = 256 << 10;
    let served = Served::new();
    let network = WireCutter::before(&served.address);
    let pool = served.attach_at(&network.address);
    let file = pool.open_file("/file", &reading_and_writing()).unwrap();
    let (mut content, is_over) = (vec![0; BYTES], AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 0..60 {
                std::thread::sleep(Duration::from_micros(9000 + round % 13 * 700));
                network.cut(if round % 3 == 0 { Cut::Process } else { Cut::Both });
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut random, mut count) = (5u64, 0u64);
        while !is_over.load(Ordering::Relaxed) {
            let mut writes = file.pipelined();
            for _ in 0..1000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                count += 1;
                // long ones may be waited for
                let len = if count % 89 == 0 { 160_000 } else { 64 };
                let at = (random >> 33) as usize % (BYTES - len);
                // what is written twice, or late, is seen
                let bytes = count.to_le_bytes().repeat(len / 8);
                writes.write_all_at(&bytes, at as u64).unwrap();
                content[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            writes.finish().unwrap();
            let mut seen = vec![0; BYTES];
            let len = file.read_at(&mut seen, 0).unwrap();
            assert!(seen[..len] == content[..len], "after {count} writes");
        }
        println!("{count} writes");
    });
    drop((file, pool));
    served.wait_for_sessions(0);
    served.finish();
}

/// Calls that take so long that their process is back before they are done.
#[test]
fn a_call_that_is_under_way_is_not_made_again() {
    const BYTES: u64 = 1 << 20;
    const FILE_MAX: u64 = 64 * BYTES;
    let served = Served::new();
    let network = WireCutter::before(&served.address);
    let pool = served.attach_at(&network.address);
    let file = pool.open_file("/file", &reading_and_writing().append(true)).unwrap();
    let (bytes, is_over) = (vec![7; BYTES as usize], AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 0..150 {
                std::thread::sleep(Duration::from_micros(4000 + round % 13 * 300));
                network.cut(Cut::Both);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut appended, mut len) = (0, 0);
        while !is_over.load(Ordering::Relaxed) {
            assert_eq!(file.append(&bytes).unwrap(), len, "after {appended} of them");
            (appended, len) = (appended + 1, len + BYTES);
            if len == FILE_MAX {
                file.set_len(0).unwrap();
                len = 0;
            }
        }
        println!("{appended} times {BYTES} bytes were appended");
        assert_eq!(file.metadata().unwrap().len(), len);
    });
    drop((file, pool));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn what_is_open_and_locked_stays_so() {
    let served = Served::new();
    let network = WireCutter::before(&served.address);
    let (pool, other) = (served.attach_at(&network.address), served.attach());
    let file = pool.open_file("/file", &reading_and_writing()).unwrap();
    let theirs = other.open_file("/file", &reading_and_writing()).unwrap();
    file.lock(LockKind::Write, 0..10).unwrap();
    let unnamed = pool.open_file("/unnamed", &reading_and_writing()).unwrap();
    unnamed.write_all_at(b"still here", 0).unwrap();
    pool.remove_file("/unnamed").unwrap();
    let mut listing = pool.read_dir("/").unwrap();
    assert!(listing.next().is_some());
    std::thread::scope(|threads| {
        // it waits over all of it
        let waits = threads.spawn(|| theirs.lock(LockKind::Write, 5..6).unwrap());
        for what in [Cut::Both, Cut::Process, Cut::Both, Cut::Process] {
            network.cut(what);
            let mut seen = [0; 10];
            unnamed.read_exact_at(&mut seen, 0).unwrap();
            assert_eq!(&seen, b"still here");
            assert!(!waits.is_finished(), "the lock was somebody else's");
        }
        assert!(listing.all(|entry| entry.is_ok()));
        file.unlock(0..10).unwrap();
        waits.join().unwrap();
    });
    drop((file, unnamed, listing, pool));
    served.wait_for_sessions(1);
    drop((theirs, other));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn who_does_not_come_back_keeps_nothing() {
    let served = Served::new();
    let network = WireCutter::before(&served.address);
    let away_max = Duration::from_secs(1);
    let options = AttachOptions { away_max, ..served.options() };
    let pool = Pool::attach_with(&network.address, &options).unwrap();
    let other = served.attach();
    let file = pool.open_file("/file", &reading_and_writing()).unwrap();
    file.lock(LockKind::Write, ..).unwrap();
    let theirs = other.open_file("/file", &reading_and_writing()).unwrap();
    let since = Instant::now();
    network.close();
    network.cut(Cut::Both);
    assert!(!theirs.try_lock(LockKind::Write, ..).unwrap(), "he may come back");
    theirs.lock(LockKind::Write, ..).unwrap();
    let waited = since.elapsed();
    assert!(waited >= LINGER && waited < LINGER + SOON, "{waited:?}");
    served.wait_for_sessions(1);
    drop((file, pool, theirs, other));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn who_ends_leaves_at_once() {
    let served = Served::lingering(LONG_LINGER, Options::default());
    let (pool, other) = (served.attach(), served.attach());
    let file = pool.open_file("/file", &reading_and_writing()).unwrap();
    file.lock(LockKind::Write, ..).unwrap();
    let theirs = other.open_file("/file", &reading_and_writing()).unwrap();
    let since = Instant::now();
    drop((file, pool));
    theirs.lock(LockKind::Write, ..).unwrap();
    assert!(since.elapsed() < LONG_LINGER / 2, "{:?}", since.elapsed());
    drop((theirs, other));
    served.wait_for_sessions(0);
    served.finish();
}
