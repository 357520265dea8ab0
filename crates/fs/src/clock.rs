//! The time of changes: that of the kernel's coarse clock, as its own file systems use, which goes
//! on every few milliseconds; but later than any that somebody was shown. So who asks for a file's
//! times, and asks again after a change, finds them changed. (Linux does so from 6.13 on, under the
//! name of multigrain timestamps.)

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

thread_local! {
    static STOPPED: Cell<Option<i64>> = const { Cell::new(None) };
}

/// No change has a time below this, ns since 1970. The largest: some thread's clock was stopped.
static FLOOR: AtomicI64 = AtomicI64::new(0);

/// What this thread changes is changed at this time, ns since 1970, whatever the clock says: for
/// who does the same again.
pub fn stop_clock(time: Option<i64>) {
    // ordering: this thread sees its own
    FLOOR.store(i64::MAX, Ordering::Relaxed);
    STOPPED.set(time);
}

/// The time of a change that happens now, ns since 1970.
#[inline]
pub fn now() -> i64 {
    let time = coarse();
    // ordering: who changes something after he, or whom he waited for, was shown a time sees it
    let floor = FLOOR.load(Ordering::Relaxed);
    if floor <= time { time } else { after(time, floor) }
}

/// This time of a change is shown to somebody: what is changed from now on has a later one.
#[inline]
pub fn shown(time: i64) {
    let floor = FLOOR.load(Ordering::Relaxed);
    if floor <= time {
        lift(time, floor);
    }
}

fn coarse() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    // no clock that makes sense goes past the year 2262
    time.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec)
}

#[cold]
fn after(time: i64, floor: i64) -> i64 {
    match STOPPED.get() {
        Some(stopped) => stopped,
        None if floor == i64::MAX => time,
        None => floor,
    }
}

#[cold]
fn lift(time: i64, floor: i64) {
    // one that was set, or is of a clock that went back, may be years ahead
    if time <= coarse().max(floor) {
        FLOOR.fetch_max(time + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        shown(last + 3600 * 1_000_000_000);
        assert!(now() < last + 60 * 1_000_000_000);
    }
}
