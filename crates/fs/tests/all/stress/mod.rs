//! Many threads at once on a small log with checkpoints in between: what each call promises must
//! hold for every one of them, and check must find nothing afterwards.

mod appends;
mod closes;
mod legal;
mod names;
mod resizes;
mod small_writes;
mod writes;

use crate::common::TestPool;
use fs::FileSystem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long each test runs.
const RUN: Duration = Duration::from_millis(1500);

/// A pool with a log so small that it wraps many times a second.
fn pool(memory_bytes: Option<u64>) -> TestPool {
    let mut options = crate::common::options(2, 24 << 20);
    options.log_bytes = Some(256 << 10);
    let mut pool = TestPool::with(&options);
    pool.open.memory_bytes = memory_bytes;
    pool
}

/// Does `one` and `other` for each number below `count`, the two of a number at the same moment, a
/// little earlier or later each time.
fn meet(count: usize, one: impl Fn(usize) + Sync, other: impl Fn(usize) + Sync) {
    let at = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let run = |own: usize, act: &(dyn Fn(usize) + Sync)| {
        let mut state = own as u64 + 1;
        for number in 0..count {
            at[own].store(number + 1, Ordering::Release);
            let mut spins = 0u32;
            while at[1 - own].load(Ordering::Acquire) <= number {
                spins += 1;
                if spins > 10_000 {
                    std::thread::yield_now();
                }
            }
            for _ in 0..crate::common::random(&mut state) % 300 {
                std::hint::spin_loop();
            }
            act(number);
        }
        at[own].store(usize::MAX, Ordering::Release);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(0, &one));
        run(1, &other);
    });
}

/// Whether the time is up. A thread that fails ends the others, too.
struct Clock {
    end: Instant,
    failed: AtomicBool,
}

impl Clock {
    fn start() -> Clock {
        Clock { end: Instant::now() + RUN, failed: AtomicBool::new(false) }
    }

    fn runs(&self) -> bool {
        if std::thread::panicking() {
            self.failed.store(true, Ordering::Relaxed);
        }
        Instant::now() < self.end && !self.failed.load(Ordering::Relaxed)
    }

    /// Makes checkpoints one after the other until the time is up.
    fn checkpoints(&self, fs: &FileSystem, pause: Duration) {
        while self.runs() {
            fs.checkpoint().unwrap();
            std::thread::sleep(pause);
        }
    }
}
