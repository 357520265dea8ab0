//! Services that die while processes are attached, and those that follow them.
//!
//! `NEARSIDE_RETURNS` says how many are killed under load (12).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside::{AttachOptions, LockKind, OpenFlags, Pool};
use nix::sys::signal::{Signal, kill};

use crate::child;
use crate::load;
use crate::mortal::{Mortal, Times, serve_if_told};
use crate::served::{SOON, eventually};
use crate::strangers::setting;

fn reading_and_writing() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true)
}

#[test]
fn all_that_is_done_while_services_die_is_done_once() {
    const NAME: &str = "returns::all_that_is_done_while_services_die_is_done_once";
    serve_if_told();
    load::work_if_told();
    done_once(Mortal::new(NAME));
}

#[test]
fn all_that_is_done_over_a_network_while_services_die_is_done_once() {
    const NAME: &str = "returns::all_that_is_done_over_a_network_while_services_die_is_done_once";
    serve_if_told();
    load::work_if_told();
    done_once(Mortal::on_a_network(NAME));
}

fn done_once(mut mortal: Mortal) {
    let pool = mortal.attach();
    let workers = ["one", "two", "three"];
    let mut running = workers.map(|worker| mortal.child(&format!("works {worker}")));
    running.iter_mut().for_each(|worker| assert_eq!(worker.hear(), "works"));
    let kills = setting("NEARSIDE_RETURNS", 12);
    let mut times: Vec<Duration> = Vec::new();
    for round in 0..kills {
        std::thread::sleep(Duration::from_millis(round % 7 * 30));
        if round % 3 == 1 {
            // again while they come back
            mortal.kill();
            mortal.start(None);
            std::thread::sleep(Duration::from_millis(round % 4));
        }
        times.push(mortal.replace(&pool));
    }
    times.sort();
    let mut calls = 0;
    for (worker, running) in workers.iter().zip(&mut running) {
        running.tell();
        let said = running.hear();
        calls += load::verify(&pool, worker, &said);
    }
    let (half, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "{kills} services killed, {calls} calls made once; the first answer came after {half:?} \
         (half), {most:?} (all)"
    );
    drop((running, pool));
    mortal.finish();
}

#[test]
fn what_is_open_goes_on_with_the_next_service() {
    const NAME: &str = "returns::what_is_open_goes_on_with_the_next_service";
    serve_if_told();
    goes_on(Mortal::new(NAME));
}

#[test]
fn what_is_open_over_a_network_goes_on_with_the_next_service() {
    const NAME: &str = "returns::what_is_open_over_a_network_goes_on_with_the_next_service";
    serve_if_told();
    goes_on(Mortal::on_a_network(NAME));
}

fn goes_on(mut mortal: Mortal) {
    const ENTRIES: usize = 5000;
    let (pool, other) = (mortal.attach(), mortal.attach());
    let unnamed = pool.open_file("/unnamed", &reading_and_writing()).unwrap();
    unnamed.write_all_at(b"still here", 0).unwrap();
    pool.remove_file("/unnamed").unwrap();
    let named = pool.open_file("/named", &reading_and_writing()).unwrap();
    let read_only = other.open_file("/named", &OpenFlags::new().read(true)).unwrap();
    pool.set_permissions("/named", 0).unwrap();
    named.lock(LockKind::Write, 0..10).unwrap();
    named.lock(LockKind::Read, 5..20).unwrap();
    read_only.lock(LockKind::Read, 15..30).unwrap();
    pool.create_dir("/many").unwrap();
    for number in 0..ENTRIES {
        pool.create_dir(format!("/many/{number}")).unwrap();
    }
    let mut listed = pool.read_dir("/many").unwrap();
    let mut seen: Vec<_> = listed.by_ref().take(10).map(|entry| entry.unwrap()).collect();
    for _ in 0..3 {
        println!("the next service answered after {:?}", mortal.replace(&pool));
        let mut bytes = [0; 10];
        unnamed.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"still here");
        named.write_all_at(b"by its handle", 0).unwrap();
        assert!(!read_only.try_lock(LockKind::Read, 0..1).unwrap(), "it is locked for writing");
        assert!(!named.try_lock(LockKind::Write, 16..17).unwrap(), "the other one reads");
        assert!(read_only.try_lock(LockKind::Read, 5..10).unwrap(), "both read");
        assert_eq!(read_only.write_at(b"x", 0).unwrap_err().errno(), libc::EBADF);
    }
    seen.extend(listed.map(|entry| entry.unwrap()));
    let mut names: Vec<_> = seen.iter().map(|entry| entry.file_name()).collect();
    names.sort();
    names.dedup();
    assert_eq!((seen.len(), names.len()), (ENTRIES, ENTRIES), "each entry once");
    // after the last handle it is gone, as ever
    drop((unnamed, read_only));
    named.lock(LockKind::Write, ..).unwrap();
    drop((named, pool, other));
    mortal.finish();
}

#[test]
fn who_waits_for_a_lock_gets_it_from_the_next_service() {
    const NAME: &str = "returns::who_waits_for_a_lock_gets_it_from_the_next_service";
    serve_if_told();
    let mut mortal = Mortal::new(NAME);
    let (pool, other) = (mortal.attach(), mortal.attach());
    let held = pool.open_file("/f", &reading_and_writing()).unwrap();
    let waits = other.open_file("/f", &reading_and_writing()).unwrap();
    held.lock(LockKind::Write, ..).unwrap();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| waits.lock(LockKind::Write, ..));
        for _ in 0..4 {
            mortal.replace(&pool);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished(), "who has it keeps it");
        }
        held.unlock(..).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(!held.try_lock(LockKind::Read, ..).unwrap());
    drop((held, waits, pool, other));
    mortal.finish();
}

/// Appends until it is told to end, then reports the counts.
fn append_if_told() {
    if child::role() != "appends" {
        return;
    }
    let pool = Pool::attach(child::pool().unwrap()).unwrap();
    let flags = OpenFlags::new().read(true).append(true).create(true);
    let file = pool.open_file("/appended", &flags).unwrap();
    child::say("appends");
    let is_over = &AtomicBool::new(false);
    let (mut done, mut unknown) = (0, 0);
    std::thread::scope(|threads| {
        threads.spawn(move || {
            child::wait_to_be_told();
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            match file.append(b"x") {
                Ok(_) => done += 1,
                Err(error) if error.errno() == libc::ENOTCONN => unknown += 1,
                Err(error) => panic!("{error}"),
            }
        }
    });
    child::say(&format!("{done} {unknown}"));
    child::wait_for_the_end();
}

/// A process that is stopped while its service dies, and goes on `late`: the length of the file,
/// how many calls were acknowledged, and of how many it is not known.
fn stopped(name: &'static str, grace: Duration, late: Duration) -> (u64, u64, u64) {
    let mut mortal = Mortal::new(name);
    let mut appends = mortal.child("appends");
    assert_eq!(appends.hear(), "appends");
    std::thread::sleep(Duration::from_millis(100));
    kill(appends.id(), Signal::SIGSTOP).unwrap();
    mortal.kill();
    mortal.start(Some(Times::of(grace)));
    std::thread::sleep(late);
    let pool = mortal.attach();
    let len = || pool.metadata("/appended").unwrap().len();
    let before = len();
    kill(appends.id(), Signal::SIGCONT).unwrap();
    // More than the one call that was under way: the process goes on.
    eventually(|| len() > before + 1);
    appends.tell();
    let said = appends.hear();
    let (done, unknown) = said.split_once(' ').unwrap();
    let len = len();
    appends.kill();
    drop(pool);
    mortal.finish();
    (len, done.parse().unwrap(), unknown.parse().unwrap())
}

#[test]
fn a_process_that_was_stopped_comes_back_in_time() {
    const NAME: &str = "returns::a_process_that_was_stopped_comes_back_in_time";
    serve_if_told();
    append_if_told();
    let (len, done, unknown) = stopped(NAME, Duration::from_secs(60), Duration::from_millis(300));
    assert_eq!((len, unknown), (done, 0));
}

#[test]
fn a_process_that_comes_back_too_late_is_told_what_is_not_known() {
    const NAME: &str = "returns::a_process_that_comes_back_too_late_is_told_what_is_not_known";
    serve_if_told();
    append_if_told();
    let (len, done, unknown) = stopped(NAME, Duration::from_millis(50), Duration::from_millis(500));
    assert!(unknown <= 1, "one thread has one call under way, not {unknown}");
    assert!(len == done || len == done + unknown, "{len} bytes, {done} acknowledged");
    assert!(done > 0, "it goes on");
}

#[test]
fn calls_fail_when_no_service_comes_and_at_once_when_it_ended_in_order() {
    const NAME: &str =
        "returns::calls_fail_when_no_service_comes_and_at_once_when_it_ended_in_order";
    serve_if_told();
    let mut mortal = Mortal::new(NAME);
    // Long, so that a wait for another service would show.
    let away_max = 4 * SOON;
    let patient = attach(&mortal, away_max);
    patient.write("/f", "x").unwrap();
    // A busy machine delays some of these rounds. A client that waits too long delays all.
    let are_in_time = (0..20).any(|_| fail_in_time(&mut mortal, &patient));
    assert!(are_in_time, "calls fail later than away_max allows");
    mortal.finish();
    let since = Instant::now();
    assert_eq!(patient.read("/f").unwrap_err().errno(), libc::ENOTCONN);
    assert!(since.elapsed() < away_max / 2);
}

fn attach(mortal: &Mortal, away_max: Duration) -> Pool {
    let options = AttachOptions { away_max, ..AttachOptions::default() };
    Pool::attach_with(&mortal.dir, &options).unwrap()
}

/// Kills the service and asserts that calls fail, or wait for the next service, as `away_max` says.
/// Returns whether they failed in time.
fn fail_in_time(mortal: &mut Mortal, patient: &Pool) -> bool {
    let hasty = attach(mortal, Duration::ZERO);
    let waiting = attach(mortal, Duration::from_millis(300));
    let killed = Instant::now();
    mortal.kill();
    let since = Instant::now();
    let error = hasty.read("/f").unwrap_err();
    assert_eq!(error.errno(), libc::ENOTCONN, "{error}");
    let at_once = since.elapsed();
    let error = waiting.read("/f").unwrap_err();
    assert_eq!(error.errno(), libc::ENOTCONN, "{error}");
    assert!(killed.elapsed() >= Duration::from_millis(250), "it does not wait");
    let waited = since.elapsed();
    mortal.start(None);
    assert_eq!(patient.read("/f").unwrap(), b"x");
    let error = hasty.read("/f").unwrap_err();
    assert!(error.to_string().contains("attach again"), "{error}");
    at_once < Duration::from_millis(250) && waited < Duration::from_secs(2)
}
