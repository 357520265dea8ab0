//! The clock that all processes of the machine share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until then, if that is to come.
pub fn sleep_until(moment: u64) {
    let left = moment.saturating_sub(now());
    if left > 0 {
        std::thread::sleep(Duration::from_nanos(left));
    }
}
