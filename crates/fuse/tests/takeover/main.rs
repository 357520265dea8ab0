//! A server goes, by a kill or of its own accord, and the next one goes on with its mount.
//!
//! Needs root and /dev/fuse; without them the tests say so and pass.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../lockers/mod.rs"]
mod lockers;
mod locks;
mod process;
mod servers;
mod support;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use nearside_fuse::{Connection, Error, MountOptions, connect, serve};
use process::{Process, STUCK, serve_if_asked};
use support::{Scratch, again, end, follow, keep, options};

/// Calls wait while no server is there, also those that were under way when it was killed, and none
/// fails or happens twice. The next server has fewer threads than requests are owed.
#[test]
fn a_killed_server_costs_no_call_and_no_open_file() {
    serve_if_asked();
    let Some(scratch) = Scratch::new() else { return };
    let connection = connect(&scratch.dir(), &options(4)).unwrap();
    let kept = keep(&connection);
    let client = connection.client();
    drop(connection);
    let test = "a_killed_server_costs_no_call_and_no_open_file";
    let mut process = Process::start(test, &scratch, &kept);
    let mut file =
        File::options().read(true).write(true).create_new(true).open(scratch.at("file")).unwrap();
    file.write_all(b"before").unwrap();
    let at_root = File::open(scratch.dir()).unwrap();
    // Not scoped: when this fails, the device is closed, and that ends their calls.
    let (handle, dir) = (file.try_clone().unwrap(), scratch.at("stuck"));
    let writer =
        std::thread::spawn(move || handle.write_all_at(b"stuck but written", 100).unwrap());
    let maker = std::thread::spawn(move || std::fs::create_dir(dir).unwrap());
    let owed: Vec<u64> = (0..2).map(|_| process.hear(STUCK).parse().unwrap()).collect();
    drop(process);
    let connection = again(&kept);
    let in_flight = connection.in_flight().unwrap();
    // It may have been killed between an answer and the note of it, so there may be more.
    assert!(owed.iter().all(|number| in_flight.contains(number)), "{owed:?} {in_flight:?}");
    assert_eq!(connection.client(), client);
    // Asked while nobody serves.
    let path = scratch.at("file");
    let late = std::thread::spawn(move || std::fs::metadata(path).unwrap().size());
    let pool = scratch.pool();
    let mount = serve(pool.fs().clone(), connection, &options(1)).unwrap();
    writer.join().unwrap();
    maker.join().unwrap();
    assert!(late.join().unwrap() >= 6);
    let in_flight = again(&kept).in_flight().unwrap();
    assert!(!owed.iter().any(|number| in_flight.contains(number)), "{owed:?} {in_flight:?}");
    let mut bytes = [0; 17];
    file.read_exact_at(&mut bytes, 100).unwrap();
    assert_eq!(&bytes, b"stuck but written");
    assert_eq!(pool.read("file").unwrap().len(), 117);
    assert!(pool.exists("stuck").unwrap());
    at_root.sync_all().unwrap();
    std::fs::write(scratch.at("new"), "new").unwrap();
    assert_eq!(std::fs::read_dir(scratch.dir()).unwrap().count(), 3);
    drop((file, at_root));
    end(mount, &pool);
}

/// A server that leaves lets go of its files: what has no name must be held by somebody else.
#[test]
fn a_server_that_leaves_is_followed_by_the_next() {
    let Some(scratch) = Scratch::new() else { return };
    let pool = scratch.pool();
    let connection = connect(&scratch.dir(), &options(3)).unwrap();
    let kept = keep(&connection);
    let mut mount = serve(pool.fs().clone(), connection, &options(3)).unwrap();
    std::fs::write(scratch.at("file"), "0123456789").unwrap();
    std::fs::write(scratch.at("unlinked"), "without a name").unwrap();
    let mut file = File::options().read(true).append(true).open(scratch.at("file")).unwrap();
    let mut unlinked = File::open(scratch.at("unlinked")).unwrap();
    let held = pool.open_file("unlinked", &nearside::OpenFlags::new().read(true)).unwrap();
    std::fs::remove_file(scratch.at("unlinked")).unwrap();
    let mut threads = 3;
    for round in 0..5 {
        mount = follow(mount, &scratch, threads, || {
            threads = round % 3 + 1;
            assert!(!again(&kept).in_flight().unwrap().is_empty());
            serve(pool.fs().clone(), again(&kept), &options(threads)).unwrap()
        });
        file.write_all(b"+").unwrap();
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("0123456789{}", "+".repeat(round + 1)));
        let mut text = String::new();
        unlinked.seek(SeekFrom::Start(0)).unwrap();
        unlinked.read_to_string(&mut text).unwrap();
        assert_eq!(text, "without a name");
        std::fs::write(scratch.at(&round.to_string()), "x").unwrap();
    }
    assert_eq!(std::fs::read_dir(scratch.dir()).unwrap().count(), 6);
    drop((file, unlinked, held));
    end(mount, &pool);
}

/// What an earlier server opened is let go of when the kernel does, so that it takes no space.
#[test]
fn inherited_files_are_released() {
    let Some(scratch) = Scratch::new() else { return };
    let pool = scratch.pool();
    let connection = connect(&scratch.dir(), &options(2)).unwrap();
    let kept = keep(&connection);
    let mount = serve(pool.fs().clone(), connection, &options(2)).unwrap();
    std::fs::write(scratch.at("used"), vec![1; 1 << 20]).unwrap();
    std::fs::write(scratch.at("unused"), "").unwrap();
    let used = File::open(scratch.at("used")).unwrap();
    let unused = File::open(scratch.at("unused")).unwrap();
    let mount =
        follow(mount, &scratch, 2, || serve(pool.fs().clone(), again(&kept), &options(1)).unwrap());
    // Asks with the number that the kernel has.
    used.sync_all().unwrap();
    std::fs::remove_file(scratch.at("used")).unwrap();
    let free = || pool.fs().statfs().blocks_free;
    let before = free();
    drop((used, unused));
    // A process that another test of this program starts has them open, too, for a moment.
    let deadline = Instant::now() + Duration::from_secs(120);
    // A checkpoint may take a few pages meanwhile.
    while free() + 8 < before + (1 << 20) / 4096 {
        assert!(Instant::now() < deadline, "{before} blocks before, {} after", free());
        std::thread::yield_now();
    }
    end(mount, &pool);
}

#[test]
fn what_is_no_connection_of_ours_is_refused() {
    let Some(scratch) = Scratch::new() else { return };
    let pool = scratch.pool();
    let connection = connect(&scratch.dir(), &options(2)).unwrap();
    let kept = keep(&connection);
    let mount = serve(pool.fs().clone(), connection, &options(2)).unwrap();
    let second = serve(pool.fs().clone(), again(&kept), &options(2)).unwrap_err();
    assert!(matches!(second, Error::State(shm::Error::InUse)), "{second}");
    let device = || kept.0.try_clone().unwrap();
    let refused = |state: OwnedFd| Connection::from_descriptors(device(), state).unwrap_err();
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(refused(file.try_clone().unwrap().into()), Error::Takeover(_)));
    file.set_len(std::fs::metadata(format!("/proc/self/fd/{}", kept.1.as_raw_fd())).unwrap().len())
        .unwrap();
    assert!(matches!(refused(file.try_clone().unwrap().into()), Error::Takeover(_)));
    let mut head = [0; 64];
    let state = File::from(kept.1.try_clone().unwrap());
    state.read_exact_at(&mut head, 0).unwrap();
    file.write_all_at(&head, 0).unwrap();
    Connection::from_descriptors(device(), file.try_clone().unwrap().into()).unwrap();
    file.write_all_at(&[99], 8).unwrap();
    let refused = refused(file.into());
    assert!(refused.to_string().contains("another version"), "{refused}");
    // The kernel keeps pages and names because the first one promised to be the only door.
    let other = MountOptions { sole_door: false, ..options(2) };
    let mount = follow(mount, &scratch, 2, || {
        let refused = serve(pool.fs().clone(), again(&kept), &other).unwrap_err();
        assert!(matches!(refused, Error::Takeover(_)), "{refused}");
        serve(pool.fs().clone(), again(&kept), &options(2)).unwrap()
    });
    end(mount, &pool);
}
