//! Atomics and locks of the parts that loom checks, in one place: the checker puts its own here.

pub use locks::futex::{Condvar, Mutex};
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A moment's wait for another thread; `tries` counts them.
pub fn pause(tries: &mut u32) {
    *tries += 1;
    if *tries < 64 { std::hint::spin_loop() } else { std::thread::yield_now() }
}
