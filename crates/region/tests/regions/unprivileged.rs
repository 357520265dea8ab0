//! Regions of a process that may not have what it would like: another user's rights, userfaultfd,
//! address space.

use super::room::assert_within;
use super::{MIB, TestPool, alone, make, pattern};
use fs::FILE_BYTES_MAX;
use region::{Error, Faults, PAGE_BYTES, Region, Regions, Settings};
use std::time::{Duration, Instant};

/// Nobody, on Linux.
const NOBODY: libc::uid_t = 65534;

/// Uses a region in this way, with more pages than may be there.
fn use_region(faults: Option<Faults>) {
    let pool = TestPool::new(32 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    let data = pattern(8, MIB as usize);
    fs.write(&file, 0, &data).unwrap();
    let regions = Regions::new(&fs, &Settings { faults, memory_bytes: 0 }).unwrap();
    let region = Region::map(&regions, &file, 0, MIB).unwrap();
    for round in 0..3u64 {
        for page in 0..MIB as usize / PAGE_BYTES {
            let at = page * PAGE_BYTES + 100;
            assert_eq!(region.get::<u8>(at).unwrap(), data[at]);
        }
        let mut tx = regions.begin().unwrap();
        tx.put(&region, 8, &round).unwrap();
        tx.put(&region, 500_000, &round).unwrap();
        tx.commit().unwrap();
        assert_eq!(region.get::<u64>(500_000).unwrap(), round);
    }
    assert_within(&regions.info());
}

/// A child whose parent has served faults by signals has regions of its own all the same.
#[test]
fn a_forked_child_has_regions_of_its_own() {
    alone("unprivileged::a_forked_child_has_regions_of_its_own", || {
        use_region(Some(Faults::Signals));
        as_nobody(true, || use_region(Some(Faults::Signals)));
    });
}

/// Runs it as nobody, in a child that ends well within a minute. Who gave up root's rights is one
/// whose /proc the kernel keeps closed, unless he was started anew since.
#[track_caller]
fn as_nobody(is_started_anew: bool, act: impl FnOnce()) {
    // SAFETY: the child does what is under test here, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: rights of the child, and its end, without any of what its parent has to do.
        unsafe {
            libc::alarm(60);
            if libc::geteuid() == 0 {
                let is_nobody = libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setgid(NOBODY) == 0
                    && libc::setuid(NOBODY) == 0;
                if !is_nobody || libc::prctl(libc::PR_SET_DUMPABLE, u64::from(is_started_anew)) != 0
                {
                    libc::_exit(2);
                }
            }
            let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            libc::_exit(i32::from(acted.is_err()));
        }
    }
    let mut status = 0;
    // SAFETY: a child of this process, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}

#[test]
fn nobody_has_regions_with_and_without_userfaultfd() {
    alone("unprivileged::nobody_has_regions_with_and_without_userfaultfd", || {
        for is_started_anew in [true, false] {
            for faults in [Some(Faults::Signals), None] {
                as_nobody(is_started_anew, || use_region(faults));
            }
        }
    });
}

#[test]
fn what_does_not_fit_into_the_address_space_is_refused() {
    alone("unprivileged::what_does_not_fit_into_the_address_space_is_refused", take_all_addresses);
}

/// Waits until the threads that serve faults run: each needs addresses before.
fn threads_run() {
    let started = Instant::now();
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        if names.filter(|name| matches!(name.as_deref(), Ok("ns-region\n"))).count() == 4 {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "no threads");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn take_all_addresses() {
    let pool = TestPool::new(16 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    fs.write(&file, 0, b"there").unwrap();
    let regions = Regions::new(&fs, &Settings::default()).unwrap();
    threads_run();
    let map = || Region::map(&regions, &file, 0, FILE_BYTES_MAX);
    let mut all = Vec::new();
    // 2^57 bytes at most, where a file has up to 2^46
    let error = loop {
        match map() {
            Ok(region) if all.len() <= 1 << 11 => all.push(region),
            Ok(_) => panic!("there is no end of addresses here"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Kernel { errno: libc::ENOMEM, .. }), "{error}");
    assert_eq!(regions.info().regions, all.len());
    // those that are there are as they were, and what one had another one may have
    all.iter().for_each(|region| assert_eq!(region.get::<u8>(1).unwrap(), b'h'));
    all.pop();
    // as soon as whoever brought its page has let go of it
    let again = std::iter::repeat_with(map).find_map(Result::ok).unwrap();
    assert_eq!(again.get::<u8>(1).unwrap(), b'h');
}
