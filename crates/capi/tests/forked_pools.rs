//! A forked child opens a pool of its own, whatever its parent's other threads did at the fork.
#![allow(clippy::unwrap_used)]

use engine::{FormatOptions, Pool, SliceSpec};
use parking_lot_core::DEFAULT_PARK_TOKEN;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

/// Threads of the parent that lock parts of `parking_lot`'s table of parked threads. The table
/// grows at some numbers of threads, and a thread that makes it grow locks all of it.
const THREADS: u8 = 10;
/// Children after each new thread, one after the other.
const CHILDREN: u32 = 20;
/// How long a thread has its part locked: most of the time.
const LOCKED: Duration = Duration::from_millis(1);
/// Seconds that a child has.
const CHILD_SECONDS: u32 = 20;

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// With a capacity tier, whose threads are others.
fn format(dir: &Path) {
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 32 << 20,
        process: true,
        capacity: vec![SliceSpec { path: None, bytes: Some(64 << 20) }],
        ..FormatOptions::default()
    };
    Pool::format(dir, &options).unwrap();
}

/// Opens a pool, writes and closes it.
fn use_pool(dir: &Path) {
    let pool = Pool::open(dir).unwrap();
    pool.write("/own", [7; 100_000]).unwrap();
    pool.checkpoint().unwrap();
    assert_eq!(pool.read("/own").unwrap(), [7; 100_000]);
    pool.close().unwrap();
}

/// The status with which a forked child ends that uses the pool.
fn status_of_child(dir: &Path) -> i32 {
    // SAFETY: the child calls what is under test here, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a signal at most; and it ends without any of what its parent has to do.
        unsafe {
            libc::alarm(CHILD_SECONDS);
            let used = catch_unwind(AssertUnwindSafe(|| use_pool(dir)));
            libc::_exit(i32::from(used.is_err()));
        }
    }
    let mut status = 0;
    // SAFETY: a child of this process, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// Has the part of the table locked that threads are in which wait for `key`, until `ends`.
fn lock_part(key: &u8, ends: &AtomicBool) {
    let key = std::ptr::from_ref(key).addr();
    let lock = || {
        sleep(LOCKED);
        false
    };
    while !ends.load(Ordering::Relaxed) {
        // SAFETY: the key is an address of this test's, and no closure panics or parks.
        unsafe {
            parking_lot_core::park(key, lock, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None);
        }
    }
}

#[test]
fn a_forked_child_uses_a_pool_of_its_own_while_threads_of_its_parent_park() {
    let scratch = scratch();
    let pool = scratch.path().join("pool");
    format(&pool);
    let (keys, ends) = ([0; THREADS as usize], AtomicBool::new(false));
    let statuses: Vec<i32> = scope(|threads| {
        let ends = &ends;
        let after_one_more = |key| {
            threads.spawn(move || lock_part(key, ends));
            (0..CHILDREN).map(|_| status_of_child(&pool))
        };
        // the first that does not end well is enough: the others may hang, too
        let mut statuses = Vec::new();
        for status in keys.iter().flat_map(after_one_more) {
            statuses.push(status);
            if status != 0 {
                break;
            }
        }
        ends.store(true, Ordering::Relaxed);
        statuses
    });
    let last = statuses.last().copied().unwrap_or_default();
    assert_eq!(last, 0, "child {} ended with status {last:#x}", statuses.len());
    assert_eq!(statuses.len() as u32, u32::from(THREADS) * CHILDREN);
}
