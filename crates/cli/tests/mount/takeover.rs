//! The server dies or is upgraded while its files are in use; another one goes on.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::AT_FDCWD;
use nix::sys::signal::{Signal, kill};

use crate::support::{SOON, Scratch, is_mounted, is_running, wait_until};

/// Kills the server and waits until another one serves.
fn kill_and_wait(scratch: &Scratch) -> Duration {
    let (server, keeper) = (scratch.server(), scratch.keeper());
    assert_ne!(server, keeper);
    let started = Instant::now();
    kill(server, Signal::SIGKILL).unwrap();
    // Any call that asks the server will do.
    nix::sys::statvfs::statvfs(&scratch.mnt()).unwrap();
    let gap = started.elapsed();
    wait_until("the pid file names another server", || {
        scratch.server_now().is_some_and(|now| now != server)
    });
    assert_eq!(scratch.keeper(), keeper);
    gap
}

#[test]
fn open_files_outlive_their_server() {
    let Some(scratch) = Scratch::mounted() else { return };
    let path = |name: &str| scratch.mnt().join(name);
    std::fs::write(path("read"), "0123456789").unwrap();
    let mut read = File::open(path("read")).unwrap();
    read.seek(SeekFrom::Start(4)).unwrap();
    let mut appended = OpenOptions::new().append(true).create(true).open(path("log")).unwrap();
    appended.write_all(b"one\n").unwrap();
    std::fs::create_dir(path("d")).unwrap();
    (0..300).for_each(|i| drop(File::create(path("d").join(i.to_string())).unwrap()));
    let mut listing = std::fs::read_dir(path("d")).unwrap();
    let first = listing.next().unwrap().unwrap().file_name();
    for round in 2..5 {
        kill_and_wait(&scratch);
        writeln!(appended, "{round}").unwrap();
        assert!(is_mounted(&scratch.mnt()));
    }
    let mut rest = String::new();
    read.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "456789");
    assert_eq!(std::fs::read_to_string(path("log")).unwrap(), "one\n2\n3\n4\n");
    let mut names: Vec<_> = listing.map(|entry| entry.unwrap().file_name()).collect();
    names.push(first);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 300);
    drop((read, appended));
    assert_eq!(scratch.log().matches("another one takes over").count(), 3, "{}", scratch.log());
    scratch.finish();
}

#[test]
fn unlinked_files_outlive_their_server() {
    let Some(scratch) = Scratch::mounted() else { return };
    let path = scratch.mnt().join("gone");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all_at(&[7; 50_000], 0).unwrap();
    std::fs::remove_file(&path).unwrap();
    kill_and_wait(&scratch);
    file.write_all_at(&[8; 10], 60_000).unwrap();
    let mut back = vec![0; 60_010];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back[..50_000].iter().all(|byte| *byte == 7));
    assert!(back[50_000..60_000].iter().all(|byte| *byte == 0));
    assert_eq!(back[60_000..], [8; 10]);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    scratch.finish();
}

/// Nothing was asked of the next server before the name went: the file went with it.
#[test]
fn a_file_that_is_open_and_loses_its_name_after_its_server_died_is_there() {
    let Some(scratch) = Scratch::mounted() else { return };
    let inodes = || {
        let stat = nix::sys::statvfs::statvfs(&scratch.mnt()).unwrap();
        stat.files() - stat.files_free()
    };
    let before = inodes();
    let file = File::create_new(scratch.mnt().join("f")).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    kill_and_wait(&scratch);
    std::fs::remove_file(scratch.mnt().join("f")).unwrap();
    file.write_all_at(b" on", 4).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 7);
    drop(file);
    wait_until("it is gone", || inodes() == before);
    scratch.finish();
}

/// Every call of a busy writer returns as if nothing had happened: made once, in order.
#[test]
fn calls_under_way_are_made_exactly_once() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for writer in 0..3u64 {
            let (dir, stop, calls) = (scratch.mnt(), &stop, &calls);
            threads.spawn(move || {
                let log = dir.join(format!("log{writer}"));
                let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
                for call in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // Neither may be made twice: the second would fail, or leave two lines.
                    log.write_all(&call.to_le_bytes()).unwrap();
                    let (old, new) = (call % 50, call + 1000);
                    let name = |number: u64| dir.join(format!("{writer}-{number}"));
                    File::options().write(true).create_new(true).open(name(old)).unwrap();
                    std::fs::rename(name(old), name(new)).unwrap();
                    std::fs::remove_file(name(new)).unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..4 {
            let before = calls.load(Ordering::Relaxed);
            wait_until("some calls were made", || calls.load(Ordering::Relaxed) > before + 100);
            kill(scratch.server(), Signal::SIGKILL).unwrap();
            nix::sys::statvfs::statvfs(&scratch.mnt()).unwrap();
            println!("round {round}: {} calls", calls.load(Ordering::Relaxed));
        }
        stop.store(true, Ordering::Relaxed);
    });
    for writer in 0..3 {
        let log = std::fs::read(scratch.mnt().join(format!("log{writer}"))).unwrap();
        let lines: Vec<u64> =
            log.chunks(8).map(|line| u64::from_le_bytes(line.try_into().unwrap())).collect();
        assert_eq!(lines, (0..lines.len() as u64).collect::<Vec<_>>());
    }
    assert_eq!(std::fs::read_dir(scratch.mnt()).unwrap().count(), 3);
    scratch.finish();
}

#[test]
fn an_upgrade_replaces_the_server_and_nobody_notices() {
    let Some(scratch) = Scratch::mounted() else { return };
    let mut file = File::create(scratch.mnt().join("f")).unwrap();
    file.write_all(b"before ").unwrap();
    let server = scratch.server();
    let mnt = scratch.mnt().display().to_string();
    let said = scratch.run_ok(["upgrade", &mnt, "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_ne!(said["process"].as_i64().unwrap(), i64::from(server.as_raw()));
    assert_eq!(said["process"].as_i64().unwrap(), i64::from(scratch.server().as_raw()));
    assert_eq!(said["to"], env!("CARGO_PKG_VERSION"));
    assert!(said["gap_us"].as_u64().unwrap() > 0);
    wait_until("the old server has gone", || !is_running(server));
    file.write_all(b"after").unwrap();
    drop(file);
    assert_eq!(std::fs::read(scratch.mnt().join("f")).unwrap(), b"before after");
    let text = scratch.run_ok(["upgrade", &mnt]);
    assert!(text.contains("serves, after"), "{text}");
    assert_eq!(scratch.log().matches(" upgraded ").count(), 2, "{}", scratch.log());
    scratch.finish();
}

/// What does not run, runs as something else, or cannot serve replaces nothing.
#[test]
fn a_program_that_is_no_server_replaces_nothing() {
    let Some(scratch) = Scratch::mounted() else { return };
    std::fs::write(scratch.mnt().join("f"), "kept").unwrap();
    std::fs::write(scratch.root().join("text"), "no program").unwrap();
    let server = scratch.server();
    let text = scratch.root().join("text").display().to_string();
    for (program, word) in [("/bin/true", "does not run as a server"), (&text, "denied")] {
        let mnt = scratch.mnt();
        let args = ["upgrade".as_ref(), mnt.as_os_str(), "--program".as_ref(), program.as_ref()];
        let output = scratch.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("not upgraded") && said.contains(word), "{said}");
        assert_eq!(scratch.server(), server);
        assert!(scratch.log().contains("no upgrade: "), "{}", scratch.log());
        assert_eq!(std::fs::read(scratch.mnt().join("f")).unwrap(), b"kept");
    }
    let inside = scratch.mnt().join("program");
    std::fs::copy("/bin/true", &inside).unwrap();
    let (mnt, program) = (scratch.mnt(), inside.as_os_str());
    let output = scratch.run(["upgrade".as_ref(), mnt.as_os_str(), "--program".as_ref(), program]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("it would wait for itself"), "{said}");
    assert_eq!(scratch.server(), server);
    scratch.finish();
}

/// `open(2)` with O_TMPFILE: what it made can be named by its opener, whoever serves by then.
#[test]
fn a_file_that_never_had_a_name_is_given_one_after_the_server_died() {
    let Some(scratch) = Scratch::mounted() else { return };
    let mut file =
        OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(scratch.mnt()).unwrap();
    file.write_all(b"kept").unwrap();
    kill_and_wait(&scratch);
    let name = scratch.mnt().join("name");
    let proc = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = nix::fcntl::AtFlags::AT_SYMLINK_FOLLOW;
    nix::unistd::linkat(AT_FDCWD, proc.as_str(), AT_FDCWD, &name, follow).unwrap();
    file.write_all(b" on").unwrap();
    drop(file);
    assert_eq!(std::fs::read(&name).unwrap(), b"kept on");
    scratch.finish();
}

#[test]
fn a_server_without_its_keeper_serves_to_the_end() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (keeper, server) = (scratch.keeper(), scratch.server());
    kill(keeper, Signal::SIGKILL).unwrap();
    wait_until("the server is named alone", || scratch.keeper() == server);
    std::fs::write(scratch.mnt().join("f"), "served").unwrap();
    let pool = scratch.pool();
    let mnt = scratch.mnt();
    let output = scratch.run(["upgrade".as_ref(), mnt.as_os_str()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no keeper answers"));
    let other = scratch.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let second = scratch.run(["mount".as_ref(), pool.as_os_str(), other.as_os_str()]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&server.to_string()) && said.contains("serves this pool"), "{said}");
    assert_eq!(std::fs::read(scratch.mnt().join("f")).unwrap(), b"served");
    scratch.finish();
}

#[test]
fn a_server_that_keeps_dying_is_given_up() {
    let Some(scratch) = Scratch::mounted() else { return };
    let keeper = scratch.keeper();
    let deadline = Instant::now() + SOON;
    while is_running(keeper) {
        assert!(Instant::now() < deadline, "the keeper starts servers for ever");
        if let Some(server) = scratch.server_now() {
            // It may be dead already.
            let _ = kill(server, Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(scratch.log().contains("it keeps dying"), "{}", scratch.log());
    assert!(scratch.end().starts_with("failed"), "{}", scratch.end());
    scratch.umount();
    scratch.mount();
    scratch.finish();
}

/// A server that died early a fifth time is followed only after 8 s.
#[test]
fn a_signal_is_heard_while_the_next_server_is_waited_for() {
    // A busy machine delays some of these ends. A keeper that sleeps through its 8 s delays all.
    assert!((0..5).any(|_| is_heard_in_time()), "the keeper waits for its time");
}

/// Whether the mount ends before the keeper's pause would be over; true where mounting is
/// impossible.
fn is_heard_in_time() -> bool {
    let Some(scratch) = Scratch::mounted() else { return true };
    let keeper = scratch.keeper();
    let deaths = || scratch.log().matches("another one takes over").count();
    kill(scratch.server(), Signal::SIGKILL).unwrap();
    // The others before they serve.
    wait_until("five have died", || {
        if let Some(server) = scratch.server_now().filter(|server| is_running(*server)) {
            let _ = kill(server, Signal::SIGKILL);
        }
        deaths() == 5
    });
    let asked = Instant::now();
    kill(keeper, Signal::SIGTERM).unwrap();
    wait_until("the end", || !is_running(keeper));
    let is_in_time = asked.elapsed() < Duration::from_secs(7);
    assert!(!is_mounted(&scratch.mnt()));
    assert!(!scratch.end().starts_with("failed"), "{}", scratch.end());
    scratch.mount();
    scratch.finish();
    is_in_time
}
