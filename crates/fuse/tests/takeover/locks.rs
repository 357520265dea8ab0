//! Locks, and those who wait for one, when servers come and go.

use nearside::{LockKind, OpenFlags, Pool};
use nearside_fuse::{MountOptions, connect, serve};

use crate::lockers::Locker;
use crate::process::{LOCKED, Process, serve_if_asked};
use crate::support::{Scratch, again, end, follow, keep, options};

fn shared(threads: usize) -> MountOptions {
    MountOptions { sole_door: false, ..options(threads) }
}

/// Waits until the server has been asked for so many locks; one that waits was asked for, too.
fn asked(pool: &Pool, count: u64) {
    let asked = || {
        let calls = pool.fs().meter().counts(|_| true);
        calls.iter().find(|call| call.name == "lock").map_or(0, |call| call.count)
    };
    while asked() < count {
        std::thread::yield_now();
    }
}

/// Two servers are killed while one process holds locks and three wait. Those who wait go on in
/// their order, one gives up, and what is let go of is free.
#[test]
fn killed_servers_cost_no_lock_and_no_wait() {
    serve_if_asked();
    let Some(scratch) = Scratch::new() else { return };
    let connection = connect(&scratch.dir(), &shared(4)).unwrap();
    let kept = keep(&connection);
    drop(connection);
    let test = "locks::killed_servers_cost_no_lock_and_no_wait";
    let mut process = Process::start_with(test, &scratch, &kept, false);
    let file = scratch.at("file");
    let [mut holder, mut first, mut second, mut third] = [(); 4].map(|()| Locker::new(&file));
    holder.done("posix f ex 0 10 now");
    holder.done("flock f ex now");
    holder.open("own", &file);
    holder.done("ofd own ex 100 10 now");
    (0..3).for_each(|_| drop(process.hear(LOCKED)));
    for waiting in [&mut first, &mut second, &mut third] {
        waiting.begin("posix f ex 0 10 wait");
        process.hear(LOCKED);
    }
    drop(process);
    let mut process = Process::start_with(test, &scratch, &kept, false);
    let mut other = Locker::new(&file);
    other.refused("posix f sh 5 1 now", libc::EAGAIN);
    other.refused("flock f sh now", libc::EAGAIN);
    other.refused("ofd f ex 105 1 now", libc::EAGAIN);
    assert_eq!(other.ask("holder f ex 0 0"), format!("ex 0 10 {}", holder.pid()));
    second.signal(nix::sys::signal::Signal::SIGUSR1);
    assert_eq!(second.answer(), "errno 4");
    // The next server is told of it.
    other.begin("posix f ex 0 10 wait");
    (0..4).for_each(|_| drop(process.hear(LOCKED)));
    drop(process);

    let pool = scratch.pool();
    let mount = serve(pool.fs().clone(), again(&kept), &shared(2)).unwrap();
    let inside = pool.open_file("file", &OpenFlags::new().read(true).write(true)).unwrap();
    assert!(!inside.try_lock(LockKind::Read, 0..1).unwrap());
    holder.done("posix f un 0 10 now");
    assert_eq!(first.answer(), "ok");
    first.kill();
    assert_eq!(third.answer(), "ok");
    third.done("close f");
    assert_eq!(other.answer(), "ok");
    // An open file's locks end with its last close, though another server saw them taken.
    assert!(!inside.try_lock(LockKind::Read, 100..101).unwrap());
    holder.done("close own");
    inside.lock(LockKind::Write, 100..110).unwrap();
    drop((holder, second, third, other, inside));
    end(mount, &pool);
}

#[test]
fn a_server_that_leaves_takes_no_lock_along() {
    let Some(scratch) = Scratch::new() else { return };
    let pool = scratch.pool();
    let connection = connect(&scratch.dir(), &shared(3)).unwrap();
    let kept = keep(&connection);
    let mut mount = serve(pool.fs().clone(), connection, &shared(3)).unwrap();
    let file = scratch.at("file");
    let [mut holder, mut waiting, mut other] = [(); 3].map(|()| Locker::new(&file));
    holder.done("posix f ex 0 10 now");
    holder.done("flock f ex now");
    waiting.begin("flock f sh wait");
    asked(&pool, 3);
    for _ in 0..4 {
        mount = follow(mount, &scratch, 3, || {
            serve(pool.fs().clone(), again(&kept), &shared(3)).unwrap()
        });
        other.refused("posix f sh 9 1 now", libc::EAGAIN);
        other.done("posix f ex 10 10 now");
        other.refused("flock f sh now", libc::EAGAIN);
    }
    holder.kill();
    assert_eq!(waiting.answer(), "ok");
    other.done("posix f ex 0 20 now");
    drop((waiting, other));
    let inside = pool.open_file("file", &OpenFlags::new().write(true)).unwrap();
    inside.lock(LockKind::Write, ..).unwrap();
    drop(inside);
    end(mount, &pool);
}

/// More changes than the journal holds; the next server has the last state.
#[test]
fn many_locks_outlive_a_server() {
    let Some(scratch) = Scratch::new() else { return };
    let pool = scratch.pool();
    let connection = connect(&scratch.dir(), &shared(2)).unwrap();
    let kept = keep(&connection);
    let mount = serve(pool.fs().clone(), connection, &shared(2)).unwrap();
    let file = scratch.at("file");
    let [mut holder, mut other] = [(); 2].map(|()| Locker::new(&file));
    for at in 0..200 {
        holder.done(&format!("posix f ex {} 1 now", at * 2));
    }
    for _ in 0..9000 {
        holder.begin("posix f ex 1000 10 now");
        holder.begin("posix f un 1000 10 now");
        assert_eq!((holder.answer(), holder.answer()), ("ok".to_owned(), "ok".to_owned()));
    }
    let mount =
        follow(mount, &scratch, 2, || serve(pool.fs().clone(), again(&kept), &shared(2)).unwrap());
    other.done("posix f ex 1000 10 now");
    for at in 0..200 {
        other.refused(&format!("posix f sh {} 1 now", at * 2), libc::EAGAIN);
        other.done(&format!("posix f sh {} 1 now", at * 2 + 1));
    }
    drop((holder, other));
    end(mount, &pool);
}
