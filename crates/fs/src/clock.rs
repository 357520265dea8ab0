//! The time of a change: that of the kernel's coarse clock, which goes on every few milliseconds,
//! as for the kernel's own file systems. But each change has a later time than any that a program
//! has read before it. So a program that compares a file's times sees every change that came
//! between. (Linux does the same from 6.13 on: multigrain timestamps.)
//!
//! For this a floor is kept: one more than the latest time that was read. It is ahead of the clock
//! by a few milliseconds at most, unless the clock was set back. Then the floor is given up, and
//! changes have the clock's new time.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

thread_local! {
    static STOPPED: Cell<Option<i64>> = const { Cell::new(None) };
}

static FLOOR: TimeFloor = TimeFloor(AtomicI64::new(0));

/// A floor that is further ahead of the clock is given up, ns: the clock was set back.
const AHEAD_NS_MAX: i64 = 1_000_000_000;

/// Stops the clock of this thread at this time, ns since 1970, so that a run can be repeated
/// exactly. The floor does not count from then on, for any thread.
pub fn stop_clock(time: Option<i64>) {
    // ordering: a thread sees its own store
    FLOOR.0.store(i64::MAX, Ordering::Relaxed);
    STOPPED.set(time);
}

/// The time of a change that happens now, ns since 1970.
#[inline]
pub fn now() -> i64 {
    FLOOR.time_of_change(coarse)
}

/// A program reads this time of a change: changes from now on have later times.
#[inline]
pub fn shown(time: i64) {
    FLOOR.shown(time, coarse);
}

fn coarse() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    // no clock that makes sense goes past the year 2262
    time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec)
}

/// No change has an earlier time, ns since 1970. `i64::MAX`: a thread's clock was stopped.
struct TimeFloor(AtomicI64);

impl TimeFloor {
    #[inline]
    fn time_of_change(&self, clock: impl Fn() -> i64) -> i64 {
        let time = clock();
        // ordering: a program that reads a time and then makes a change has synchronized with it
        let floor = self.0.load(Ordering::Relaxed);
        if floor <= time { time } else { self.after(floor, clock) }
    }

    #[inline]
    fn shown(&self, time: i64, clock: impl Fn() -> i64) {
        let floor = self.0.load(Ordering::Relaxed);
        if floor <= time {
            self.lift(time, floor, clock);
        }
    }

    /// The time of a change where the floor was later than the clock.
    #[cold]
    fn after(&self, floor: i64, clock: impl Fn() -> i64) -> i64 {
        // after the floor, so that a thread that slept in between does not give it up
        let time = clock();
        if floor == i64::MAX {
            return STOPPED.get().unwrap_or(time);
        }
        if floor.saturating_sub(time) <= AHEAD_NS_MAX {
            return floor.max(time);
        }
        // a failure means that another thread has given it up, or has lifted it since
        let _ = self.0.compare_exchange(floor, time, Ordering::Relaxed, Ordering::Relaxed);
        time
    }

    #[cold]
    fn lift(&self, time: i64, floor: i64, clock: impl Fn() -> i64) {
        // a file's time may be years ahead: a program set it, or the clock was set back since
        if time <= clock().max(floor) {
            self.0.fetch_max(time.saturating_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const HOUR: i64 = 3600 * SECOND;

    #[test]
    fn a_change_is_later_than_what_was_shown() {
        let mut last = now();
        for _ in 0..1000 {
            shown(last);
            let next = now();
            assert!(next > last);
            last = next;
        }
        // and not years ahead
        shown(i64::MAX - 1);
        shown(last + HOUR);
        assert!(now() < last + 60 * SECOND);
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed() {
        let (floor, clock) = (TimeFloor(AtomicI64::new(0)), Cell::new(100 * HOUR));
        let read = || clock.get();
        let change = || floor.time_of_change(read);
        floor.shown(change(), read);
        assert_eq!(change(), clock.get() + 1, "later than what was shown");
        // by less than the bound: times go on where they were
        clock.set(100 * HOUR - SECOND / 2);
        assert_eq!(change(), 100 * HOUR + 1);
        clock.set(99 * HOUR);
        assert_eq!(change(), clock.get());
        // what was changed before is in the future now, and does not count
        floor.shown(100 * HOUR, read);
        assert_eq!(change(), clock.get());
        floor.shown(change(), read);
        assert_eq!(change(), clock.get() + 1, "a floor is kept again");
        clock.set(99 * HOUR + SECOND);
        assert_eq!(change(), clock.get());
    }

    #[test]
    fn a_thread_that_sleeps_after_it_has_read_the_clock_leaves_the_floor() {
        let floor = TimeFloor(AtomicI64::new(0));
        let latest = 100 * HOUR;
        floor.shown(latest, || latest);
        let reads = Cell::new(0);
        let slept = || match reads.replace(reads.get() + 1) {
            0 => latest - HOUR,
            _ => latest,
        };
        assert_eq!(floor.time_of_change(slept), latest + 1);
        assert_eq!(floor.time_of_change(|| latest), latest + 1);
    }
}
