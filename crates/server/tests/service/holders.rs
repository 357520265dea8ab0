//! Locks, when a service follows one that was killed: who had some is waited for, and nobody waits
//! any longer.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nearside::{File, LockKind, OpenFlags, Pool};
use nix::sys::signal::{Signal, kill};

use crate::child;
use crate::mortal::{Mortal, Times, serve_if_told};
use crate::served::SOON;

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn opened(pool: &Pool, path: &str) -> File {
    pool.open_file(path, &OpenFlags::new().read(true).write(true).create(true)).unwrap()
}

/// Has a lock, until it is told to let go of it.
fn hold_if_told() {
    if child::role() != "holds" {
        return;
    }
    let pool = Pool::attach(child::pool().unwrap()).unwrap();
    let file = opened(&pool, "/held");
    file.lock(LockKind::Write, ..).unwrap();
    child::say("holds");
    child::wait_to_be_told();
    file.unlock(..).unwrap();
    child::say("does not");
    child::wait_for_the_end();
}

fn nobody_waits(mut mortal: Mortal) {
    let (pool, other, third) = (mortal.attach(), mortal.attach(), mortal.attach());
    let (held, wanted) = (opened(&pool, "/held"), opened(&other, "/held"));
    let free = opened(&third, "/free");
    held.lock(LockKind::Write, ..).unwrap();
    for _ in 0..2 {
        mortal.kill();
        let since = Instant::now();
        mortal.start(Some(Times { locks: FOR_EVER, all: FOR_EVER }));
        free.lock(LockKind::Write, ..).unwrap();
        assert!(since.elapsed() < SOON, "all are back");
        assert!(!wanted.try_lock(LockKind::Write, ..).unwrap(), "who has it keeps it");
        free.unlock(..).unwrap();
    }
    drop((held, wanted, free));
    drop((pool, other, third));
    mortal.finish();
}

#[test]
fn nobody_waits_for_locks_when_those_who_had_some_are_back() {
    const NAME: &str = "holders::nobody_waits_for_locks_when_those_who_had_some_are_back";
    serve_if_told();
    nobody_waits(Mortal::new(NAME));
}

#[test]
fn nobody_waits_for_locks_over_a_network_when_those_who_had_some_are_back() {
    const NAME: &str =
        "holders::nobody_waits_for_locks_over_a_network_when_those_who_had_some_are_back";
    serve_if_told();
    nobody_waits(Mortal::on_a_network(NAME));
}

#[test]
fn a_client_of_this_machine_is_back_with_its_lock_within_the_usual_time() {
    const NAME: &str =
        "holders::a_client_of_this_machine_is_back_with_its_lock_within_the_usual_time";
    serve_if_told();
    let mut mortal = Mortal::new(NAME);
    // A busy machine delays some of these clients. A client that is too slow is so every time.
    assert!((0..3).any(|_| keeps_its_lock(&mut mortal)), "others get its lock");
    // A client that did not come back is known until the next service.
    mortal.end();
    mortal.start(None);
    mortal.finish();
}

/// Kills the service of a client that holds a lock. Returns whether the client still holds the lock
/// when the next service, which waits no longer than the product does, lets others have locks.
fn keeps_its_lock(mortal: &mut Mortal) -> bool {
    let (pool, other) = (mortal.attach(), mortal.attach());
    let (held, wanted) = (opened(&pool, "/held"), opened(&other, "/held"));
    held.lock(LockKind::Write, ..).unwrap();
    mortal.kill();
    mortal.start(Some(Times::usual_for_locks()));
    !wanted.try_lock(LockKind::Write, ..).unwrap()
}

/// Its connection may come again later than a process of this machine could.
#[test]
fn who_had_a_lock_over_a_network_is_waited_for_as_long_as_anybody() {
    const NAME: &str = "holders::who_had_a_lock_over_a_network_is_waited_for_as_long_as_anybody";
    serve_if_told();
    hold_if_told();
    let mut mortal = Mortal::on_a_network(NAME);
    let mut holds = mortal.child("holds");
    assert_eq!(holds.hear(), "holds");
    let pool = mortal.attach();
    let wanted = opened(&pool, "/held");
    kill(holds.id(), Signal::SIGSTOP).unwrap();
    mortal.kill();
    mortal.start(Some(Times { locks: Duration::from_millis(10), all: FOR_EVER }));
    let (got, gets) = channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            wanted.lock(LockKind::Write, ..).unwrap();
            got.send(()).unwrap();
        });
        let nothing = gets.recv_timeout(Duration::from_millis(500));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout), "it is waited for");
        kill(holds.id(), Signal::SIGCONT).unwrap();
        let nothing = gets.recv_timeout(Duration::from_millis(500));
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout), "it has its lock");
        holds.tell();
        assert_eq!(holds.hear(), "does not");
        gets.recv_timeout(SOON).unwrap();
    });
    holds.kill();
    drop((wanted, pool));
    mortal.finish();
}

#[test]
fn who_is_left_of_this_machine_is_waited_for_no_longer_than_a_moment() {
    const NAME: &str = "holders::who_is_left_of_this_machine_is_waited_for_no_longer_than_a_moment";
    serve_if_told();
    hold_if_told();
    let mut mortal = Mortal::on_a_network(NAME);
    let pool = mortal.attach();
    let held = opened(&pool, "/far");
    held.lock(LockKind::Write, ..).unwrap();
    let wanted = opened(&pool, "/held");
    let mut holds = mortal.child_here("holds");
    assert_eq!(holds.hear(), "holds");
    mortal.stop();
    holds.kill();
    mortal.kill();
    let since = Instant::now();
    mortal.start(Some(Times { locks: Duration::from_millis(300), all: FOR_EVER }));
    wanted.lock(LockKind::Write, ..).unwrap();
    assert!(since.elapsed() < SOON, "the one over the network is back");
    drop((held, wanted, pool));
    mortal.end();
    mortal.start(None);
    mortal.finish();
}

#[test]
fn who_had_a_lock_and_was_killed_is_waited_for_no_longer_than_a_moment() {
    const NAME: &str =
        "holders::who_had_a_lock_and_was_killed_is_waited_for_no_longer_than_a_moment";
    serve_if_told();
    hold_if_told();
    let mut mortal = Mortal::new(NAME);
    let mut holds = mortal.child("holds");
    assert_eq!(holds.hear(), "holds");
    let pool = mortal.attach();
    let wanted = opened(&pool, "/held");
    mortal.stop();
    holds.kill();
    mortal.kill();
    let since = Instant::now();
    mortal.start(Some(Times { locks: Duration::from_millis(10), all: FOR_EVER }));
    wanted.lock(LockKind::Write, ..).unwrap();
    assert!(since.elapsed() < SOON);
    drop((wanted, pool));
    // that ended before anybody knew that who was killed stays away: the next one does
    mortal.end();
    mortal.start(None);
    mortal.finish();
}
