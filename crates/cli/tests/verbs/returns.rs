//! Attached processes whose service is killed, upgraded and stopped while they work.
//!
//! `NEARSIDE_RETURNS` says how many services are replaced under load (8).

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside::{AttachOptions, File, Isolation, LockKind, OpenFlags, Pool, Region};
use nix::sys::signal::{Signal, kill};

use crate::support::Scratch;

/// Bytes of a line.
const LINE: usize = 24;

fn line(worker: usize, count: u64) -> [u8; LINE] {
    format!("{worker:>11} {count:>11}\n").into_bytes().try_into().unwrap()
}

/// Adds one to a word in a region that all map.
fn count(pool: &Pool, region: &Region) {
    let counted = pool.transact(Isolation::Serialisable, |tx| {
        let was: u64 = tx.get(region, 4096)?;
        tx.put(region, 4096, &(was + 1))?;
        Ok::<_, nearside::Error>(was)
    });
    let (was, now) = (counted.unwrap(), region.get::<u64>(4096).unwrap());
    assert!(now > was, "{now} is loaded after {} was written", was + 1);
}

fn counter(pool: &Pool) -> Region {
    let flags = OpenFlags::new().read(true).write(true).create(true);
    pool.map(&pool.open_file("/counter", &flags).unwrap(), 0, 8192).unwrap()
}

/// Appends lines, moves a file from name to name, and counts; how many times.
fn work(dir: &Path, worker: usize, is_over: &AtomicBool) -> u64 {
    let pool = Pool::attach(dir).unwrap();
    let flags = OpenFlags::new().read(true).append(true).create(true);
    let log = pool.open_file("/log", &flags).unwrap();
    let name = |count: u64| format!("/{worker}-{count}");
    let new = OpenFlags::new().write(true).create_new(true);
    pool.open_file(name(0), &new).unwrap();
    let (mut round, region) = (0, counter(&pool));
    while !is_over.load(Ordering::Relaxed) {
        let (line, mut seen) = (line(worker, round), [0; LINE]);
        let at = log.append(&line).unwrap();
        log.read_exact_at(&mut seen, at).unwrap();
        assert_eq!(seen, line);
        pool.rename(name(round), name(round + 1)).unwrap();
        pool.open_file(format!("/new-{worker}"), &new).unwrap();
        pool.remove_file(format!("/new-{worker}")).unwrap();
        count(&pool, &region);
        round += 1;
    }
    round
}

fn verify(pool: &Pool, counts: &[u64]) {
    assert_eq!(counter(pool).get::<u64>(4096).unwrap(), counts.iter().sum::<u64>());
    let mut next = vec![0; counts.len()];
    for seen in pool.read("/log").unwrap().chunks(LINE) {
        let worker: usize = std::str::from_utf8(&seen[..11]).unwrap().trim().parse().unwrap();
        assert_eq!(seen, line(worker, next[worker]), "each line once, and in order");
        next[worker] += 1;
    }
    assert_eq!(next, counts);
    let entries = pool.read_dir("/").unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries.map(|it| it.file_name().to_owned()).collect();
    names.sort();
    let moved = counts.iter().enumerate().map(|(worker, count)| format!("{worker}-{count}"));
    let mut all: Vec<std::ffi::OsString> = moved.map(Into::into).collect();
    all.extend(["log".into(), "counter".into()]);
    all.sort();
    assert_eq!(names, all);
}

/// Until `pool` answers again; how long that took since then.
fn answered(pool: &Pool, since: Instant) -> Duration {
    pool.metadata("/").unwrap();
    since.elapsed()
}

/// Kills, and asks the keeper for another server, in turn, while several work.
fn replace_under_load(more: &[&str]) {
    let scratch = Scratch::new();
    scratch.serve(more);
    let pool = Pool::attach(scratch.pool()).unwrap();
    let (dir, is_over) = (scratch.pool(), AtomicBool::new(false));
    let rounds = std::env::var("NEARSIDE_RETURNS").map_or(8, |text| text.parse().unwrap());
    let (mut killed, mut upgraded) = (Vec::new(), Vec::new());
    let counts: Vec<u64> = std::thread::scope(|threads| {
        let is_over = &is_over;
        let start = |worker| {
            let dir = &dir;
            threads.spawn(move || work(dir, worker, is_over))
        };
        let workers: Vec<_> = (0..3).map(start).collect();
        for round in 0..rounds {
            // one that served for less is followed after a pause
            scratch.await_ready();
            std::thread::sleep(Duration::from_millis(400));
            if round % 3 == 2 {
                let since = Instant::now();
                let told = scratch.json(&["upgrade", "@pool", "--json"]);
                println!("upgraded, with a gap of {} us", told["gap_us"]);
                upgraded.push(answered(&pool, since));
            } else {
                kill(scratch.server(), Signal::SIGKILL).unwrap();
                killed.push(answered(&pool, Instant::now()));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    verify(&pool, &counts);
    println!("{counts:?} rounds of work; after kills answers came in {killed:?}");
    println!("with upgrades, new programs' starts and all, in {upgraded:?}");
    drop(pool);
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}

#[test]
fn all_that_is_done_while_services_are_replaced_is_done_once() {
    replace_under_load(&[]);
}

#[test]
fn all_that_is_done_beside_a_mount_is_done_once() {
    if Scratch::mounted().map(|mounted| mounted.umount()).is_none() {
        return;
    }
    let mount = tempfile::tempdir().unwrap();
    replace_under_load(&["--mount", mount.path().to_str().unwrap()]);
}

/// A file without a name that holds this, and a lock.
fn unnamed(pool: &Pool, content: &[u8]) -> File {
    let flags = OpenFlags::new().read(true).write(true).create_new(true);
    let file = pool.open_file("/unnamed", &flags).unwrap();
    pool.remove_file("/unnamed").unwrap();
    file.write_all_at(content, 0).unwrap();
    file.lock(LockKind::Write, ..).unwrap();
    file
}

#[test]
fn files_without_a_name_go_on_through_kills_and_upgrades() {
    let scratch = Scratch::new();
    scratch.serve(&[]);
    let pool = Pool::attach(scratch.pool()).unwrap();
    let content = vec![7; 4 << 20];
    let free = pool.statfs().blocks_free;
    let file = unnamed(&pool, &content);
    for upgrades in [true, false, true] {
        if upgrades {
            scratch.ok(&["upgrade", "@pool"]);
        } else {
            kill(scratch.server(), Signal::SIGKILL).unwrap();
        }
        let mut seen = vec![0; content.len()];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(seen, content);
        file.lock(LockKind::Write, ..).unwrap();
    }
    assert!(pool.statfs().blocks_free + 900 < free, "it takes space");
    drop(file);
    // whether another one has it open is known when all are back, or the grace is over
    drop(pool);
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
    scratch.serve(&[]);
    // Every wait that could delay the answer is longer: 300 s here for another service, 60 s in the
    // server for clients to reconnect.
    let away_max = Duration::from_secs(300);
    let options = AttachOptions { away_max, ..AttachOptions::default() };
    let pool = Pool::attach_with(scratch.pool(), &options).unwrap();
    assert!(pool.statfs().blocks_free + 100 > free, "and then none");
    // the end in order is told at once, whatever waits
    let since = Instant::now();
    scratch.ok(&["stop", "@pool"]);
    assert_eq!(pool.read("/f").unwrap_err().errno(), libc::ENOTCONN);
    assert!(since.elapsed() < Duration::from_secs(50), "{:?}", since.elapsed());
    scratch.check();
}
