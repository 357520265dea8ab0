//! The service dies, the forwarder dies, the network loses the connection: programs see calls that
//! take longer, and each is made once.

#[path = "../../../../fuse/tests/lockers/mod.rs"]
mod lockers;
#[expect(dead_code, reason = "what is closed to newcomers is another test's")]
#[path = "../../../../server/tests/network/wire_cutter.rs"]
mod wire_cutter;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockers::Locker;
use nix::errno::Errno;
use wire_cutter::{Cut, WireCutter};

use super::Remote;
use crate::support::{has, wait_until};

const WRITERS: usize = 4;
const LOSSES: usize = 6;
/// Between two losses. Tests that kill a server also wait until it has served long enough.
const PAUSE: Duration = Duration::from_millis(150);

/// Appends lines, and makes and renames files, until it is over; gives how often.
fn work(dir: &Path, writer: usize, is_over: &AtomicBool, done: &AtomicUsize) -> usize {
    let mut log = OpenOptions::new().append(true).create(true).open(dir.join("log")).unwrap();
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return round;
        }
        log.write_all(format!("{writer} {round}\n").as_bytes()).unwrap();
        let (new, old) = (dir.join(format!("new{writer}")), dir.join(format!("{writer}-{round}")));
        drop(File::create_new(&new).unwrap());
        std::fs::rename(&new, &old).unwrap();
        if round % 2 == 0 {
            std::fs::remove_file(&old).unwrap();
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    0
}

/// Has several work while `lose` is called now and then; then all that was done is there, once.
pub fn nothing_is_lost(dir: &Path, lose: impl Fn(usize)) {
    let (is_over, done) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; WRITERS]);
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let (is_over, done) = (&is_over, &done);
        let start = |writer: usize| scope.spawn(move || work(dir, writer, is_over, &done[writer]));
        let writers: Vec<_> = (0..WRITERS).map(start).collect();
        for round in 0..LOSSES {
            std::thread::sleep(PAUSE);
            lose(round);
        }
        std::thread::sleep(PAUSE);
        wait_until("each has done something", || {
            done.iter().all(|done| done.load(Ordering::Relaxed) > 0)
        });
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let log = std::fs::read_to_string(dir.join("log")).unwrap();
    let mut next = [0; WRITERS];
    for line in log.lines() {
        let (writer, round) = line.split_once(' ').unwrap();
        let (writer, round): (usize, usize) = (writer.parse().unwrap(), round.parse().unwrap());
        assert_eq!(round, next[writer], "each append once, in order");
        next[writer] += 1;
    }
    assert_eq!(&next[..], &counts[..]);
    let files = std::fs::read_dir(dir).unwrap().count() - 1;
    assert_eq!(files, counts.iter().map(|count| count / 2).sum::<usize>());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn a_killed_service_loses_nothing() {
    let Some(remote) = Remote::mounted() else { return };
    nothing_is_lost(&remote.scratch.mnt(), |_| {
        remote.scratch.let_serve(|| remote.scratch.server_now());
        remote.kill_service();
    });
    remote.finish();
}

#[test]
fn a_killed_forwarder_loses_nothing() {
    let Some(remote) = Remote::mounted() else { return };
    let mnt = remote.scratch.mnt();
    nothing_is_lost(&mnt, |_| {
        remote.scratch.let_serve(|| Some(remote.forwarder(&mnt)));
        remote.kill_forwarder(&mnt);
    });
    remote.finish();
}

#[test]
fn a_connection_that_is_lost_is_made_again() {
    let Some(remote) = Remote::served(&["--squash=none"]) else { return };
    let cutter = WireCutter::before(&remote.address);
    let mnt = remote.scratch.mnt();
    remote.mount_on(&mnt, &cutter.address);
    nothing_is_lost(&mnt, |round| {
        cutter.cut(if round % 2 == 0 { Cut::Both } else { Cut::Process });
    });
    remote.finish();
}

#[test]
fn a_forwarder_and_its_service_may_die_at_one_time() {
    let Some(remote) = Remote::mounted() else { return };
    let mnt = remote.scratch.mnt();
    nothing_is_lost(&mnt, |_| {
        remote.scratch.let_serve(|| Some(remote.forwarder(&mnt)));
        remote.scratch.let_serve(|| remote.scratch.server_now());
        remote.kill_forwarder(&mnt);
        remote.kill_service();
    });
    remote.finish();
}

#[test]
fn locks_hold_between_mounts_and_outlive_whoever_dies() {
    if !has("python3") {
        return;
    }
    let Some(remote) = Remote::mounted() else { return };
    let (one, two) = (remote.scratch.mnt(), remote.second());
    let [mut first, mut second] = [&one, &two].map(|dir| Locker::new(&dir.join("f")));
    let again = Errno::EAGAIN as i32;
    first.done("posix f ex 0 10 now");
    second.refused("posix f ex 5 10 now", again);
    second.done("posix f sh 10 10 now");
    first.open("g", &one.join("g"));
    second.open("g", &two.join("g"));
    first.done("flock g ex now");
    second.refused("flock g sh now", again);
    second.begin("flock g ex wait");
    for round in 0..3 {
        match round {
            0 => remote.kill_service(),
            1 => remote.kill_forwarder(&one),
            _ => remote.kill_forwarder(&two),
        }
        first.done("open x /dev/null");
        first.refused("posix f ex 15 2 now", again);
        let mut third = Locker::new(&two.join("f"));
        third.refused("posix f ex 0 1 now", again);
        third.kill();
    }
    first.done("flock g un now");
    assert_eq!(second.answer(), "ok");
    first.kill();
    second.done("posix f ex 0 10 wait");
    second.kill();
    remote.unmount(&two);
    remote.finish();
}

#[test]
fn who_waits_for_a_lock_can_be_interrupted() {
    if !has("python3") {
        return;
    }
    let Some(remote) = Remote::mounted() else { return };
    let path = remote.scratch.mnt().join("f");
    let [mut first, mut second] = [(); 2].map(|()| Locker::new(&path));
    first.done("posix f ex 0 10 now");
    for _ in 0..3 {
        second.begin("posix f ex 0 10 wait");
        wait_until("it waits", || {
            let at = format!("/proc/{}/wchan", second.pid());
            std::fs::read_to_string(at)
                .is_ok_and(|at| at.contains("fuse") || at.contains("request"))
        });
        second.signal(nix::sys::signal::Signal::SIGUSR1);
        assert_eq!(second.answer(), format!("errno {}", Errno::EINTR as i32));
    }
    first.kill();
    second.done("posix f ex 0 10 wait");
    second.kill();
    remote.finish();
}

#[test]
fn a_service_that_ends_is_waited_for_and_then_missed() {
    let Some(remote) = Remote::mounted() else { return };
    let mnt = remote.scratch.mnt();
    std::fs::write(mnt.join("f"), "x").unwrap();
    let pool = remote.scratch.pool();
    remote.scratch.run_ok(["stop".as_ref(), pool.as_os_str()]);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| std::fs::read(mnt.join("f")));
        let port = remote.address.strip_prefix("near+insecure://").unwrap();
        let listen = format!("--listen={port}");
        remote.scratch.run_ok([
            "serve".as_ref(),
            pool.as_os_str(),
            listen.as_ref(),
            "--insecure".as_ref(),
            "--squash=none".as_ref(),
        ]);
        assert_eq!(asked.join().unwrap().unwrap(), b"x");
    });
    remote.finish();
}
