//! How a server ends: unmounted, told to, or killed.

use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use crate::support::{Scratch, is_mounted, is_running, wait_until};

/// Domain `process`: what a call returned for is there after kill -9.
#[test]
fn acknowledged_writes_survive_a_killed_server() {
    let Some(scratch) = Scratch::mounted() else { return };
    for round in 0..5u32 {
        let dir = scratch.mnt().join(format!("round{round}"));
        std::fs::create_dir(&dir).unwrap();
        let (stop, begun) = (AtomicBool::new(false), AtomicU32::new(0));
        let acknowledged = std::thread::scope(|threads| {
            let writers: Vec<_> = (0..2u32)
                .map(|writer| {
                    let (dir, stop, begun) = (&dir, &stop, &begun);
                    threads.spawn(move || {
                        let mut done = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let path = dir.join(format!("{writer}-{done}"));
                            match std::fs::write(path, content(writer, done)) {
                                Ok(()) => done += 1,
                                Err(_) => break,
                            }
                            if done == 1 {
                                begun.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        done
                    })
                })
                .collect();
            wait_until("both have written", || begun.load(Ordering::Relaxed) == 2);
            std::thread::sleep(Duration::from_millis(100 + u64::from(round) * 70));
            scratch.kill_both();
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<u32>>()
        });
        // The mount of the dead server is cleared by the next one.
        scratch.mount();
        for (writer, done) in acknowledged.into_iter().enumerate() {
            for file in 0..done {
                let path = dir.join(format!("{writer}-{file}"));
                let got = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
                assert!(got == content(writer as u32, file), "{path:?}");
            }
        }
        scratch.sh("ls -lR > /dev/null");
        // A fast machine would fill the pool in a few rounds.
        std::fs::remove_dir_all(&dir).unwrap();
    }
    scratch.finish();
}

fn content(writer: u32, file: u32) -> Vec<u8> {
    let bytes = (file as usize * 977 + 1) % 20_000 + 1;
    (0..bytes).map(|at| (at as u32 * 31 + writer * 7 + file) as u8).collect()
}

#[test]
fn a_signal_unmounts_and_closes() {
    let Some(scratch) = Scratch::mounted() else { return };
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let processes = [scratch.keeper(), scratch.server()];
        std::fs::write(scratch.mnt().join("f"), signal.as_str()).unwrap();
        // To the server, as one that knows its name would; the keeper passes its own on.
        kill(processes[usize::from(signal == Signal::SIGTERM)], signal).unwrap();
        wait_until("both have gone", || !processes.into_iter().any(is_running));
        assert!(!is_mounted(&scratch.mnt()));
        assert_eq!(scratch.end(), "closed");
        assert!(scratch.log().contains("pool closed"));
        scratch.run_ok(["check".as_ref(), scratch.pool().as_os_str()]);
        scratch.mount();
        assert_eq!(std::fs::read_to_string(scratch.mnt().join("f")).unwrap(), signal.as_str());
    }
    scratch.finish();
}

#[test]
fn a_signal_ends_a_server_whose_files_stay_open() {
    let Some(scratch) = Scratch::mounted() else { return };
    let server = scratch.server();
    let held = File::create(scratch.mnt().join("held")).unwrap();
    kill(server, Signal::SIGTERM).unwrap();
    wait_until("the mount is hidden", || !is_mounted(&scratch.mnt()));
    // Not only gone: the next mount waits for what the kernel still has to take apart.
    wait_until("the pool is closed", || scratch.log().contains("pool closed"));
    drop(held);
    scratch.mount();
    assert!(scratch.mnt().join("held").exists());
    scratch.finish();
}

/// Nothing that is written meanwhile lands in the directory below.
#[test]
fn a_mount_whose_end_waits_for_its_files_stays_until_they_are_closed() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (keeper, mnt) = (scratch.keeper(), scratch.mnt());
    let held = File::create(mnt.join("held")).unwrap();
    kill(scratch.server(), Signal::SIGTERM).unwrap();
    wait_until("it waits", || scratch.log().contains("waiting 5 s"));
    std::fs::write(mnt.join("later"), "in the pool").unwrap();
    drop(held);
    wait_until("it has ended", || !is_running(keeper) && !is_mounted(&mnt));
    assert!(!scratch.log().contains("cutting"), "{}", scratch.log());
    assert_eq!(std::fs::read_dir(&mnt).unwrap().count(), 0);
    scratch.mount();
    assert_eq!(std::fs::read(mnt.join("later")).unwrap(), b"in the pool");
    scratch.finish();
}

#[test]
fn a_busy_mount_is_not_unmounted() {
    let Some(scratch) = Scratch::mounted() else { return };
    let held = File::create(scratch.mnt().join("held")).unwrap();
    let output = scratch.run(["umount".as_ref(), scratch.mnt().as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("nearside: ") && said.contains("in use"), "{said}");
    assert!(is_mounted(&scratch.mnt()));
    drop(held);
    scratch.finish();
}

#[test]
fn umount_clears_the_mount_of_a_dead_server() {
    let Some(scratch) = Scratch::mounted() else { return };
    std::fs::write(scratch.mnt().join("f"), "kept").unwrap();
    let held = File::open(scratch.mnt().join("f")).unwrap();
    scratch.kill_both();
    assert!(is_mounted(&scratch.mnt()));
    scratch.umount();
    assert!(!is_mounted(&scratch.mnt()));
    drop(held);
    scratch.mount();
    assert_eq!(std::fs::read(scratch.mnt().join("f")).unwrap(), b"kept");
    scratch.finish();
}

/// Its pool may be in use elsewhere by then.
#[test]
fn the_mount_of_a_dead_server_is_cleared_while_the_pool_is_mounted_elsewhere() {
    let Some(scratch) = Scratch::mounted() else { return };
    std::fs::write(scratch.mnt().join("f"), "kept").unwrap();
    let held = File::open(scratch.mnt().join("f")).unwrap();
    scratch.kill_both();
    let other = scratch.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let (pool, mnt) = (scratch.pool(), scratch.mnt());
    scratch.run_ok(["mount".as_ref(), pool.as_os_str(), other.as_os_str()]);
    let output = scratch.run(["umount".as_ref(), mnt.as_os_str()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("its mount is cleared"), "{said}");
    assert!(!is_mounted(&mnt) && is_mounted(&other));
    assert_eq!(std::fs::read(other.join("f")).unwrap(), b"kept");
    drop(held);
    scratch.run_ok(["umount".as_ref(), other.as_os_str()]);
    scratch.mount();
    scratch.finish();
}

/// Whoever unmounts with the system's own command leaves the pool closed all the same.
#[test]
fn a_plain_umount_ends_the_server() {
    let Some(scratch) = Scratch::mounted() else { return };
    let server = scratch.server();
    std::fs::write(scratch.mnt().join("f"), "x").unwrap();
    assert!(Command::new("umount").arg(scratch.mnt()).status().unwrap().success());
    wait_until("the server has gone", || !is_running(server));
    assert!(scratch.log().contains("pool closed"));
    scratch.mount();
    scratch.finish();
}

#[test]
fn a_foreground_server_stays_until_it_is_told() {
    let Some(scratch) = Scratch::formatted() else { return };
    let mut server = Command::new(env!("CARGO_BIN_EXE_nearside"))
        .arg("mount")
        .args([scratch.pool(), scratch.mnt()])
        .arg("--foreground")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("it is mounted", || is_mounted(&scratch.mnt()));
    std::fs::write(scratch.mnt().join("f"), "x").unwrap();
    assert!(server.try_wait().unwrap().is_none());
    kill(nix::unistd::Pid::from_raw(server.id() as i32), Signal::SIGINT).unwrap();
    assert!(server.wait().unwrap().success());
    assert!(!is_mounted(&scratch.mnt()));
    scratch.mount();
    assert!(scratch.mnt().join("f").exists());
    scratch.finish();
}
