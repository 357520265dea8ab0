//! Where the workers of a slice sleep, and how they are woken: once for a burst of requests.

use crate::sync::{AtomicU32, Ordering, fence};
use rustix::thread::futex::{Flags, Timespec, wait, wake};
use std::time::{Duration, Instant};

/// The bell.
#[derive(Debug, Default)]
pub struct Bell {
    /// Moves on when it rings.
    rings: AtomicU32,
    sleepers: AtomicU32,
}

impl Bell {
    /// Something was put where the sleepers look: wakes up to `count` of them.
    pub fn ring(&self, count: u32) {
        // ordering: what was put is seen by who counted as a sleeper too late to be seen here
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.rings.fetch_add(1, Ordering::Release);
            wake_up(&self.rings, count);
        }
    }

    /// Sleeps until it rings, unless there is something to do then, or for as long as that is not
    /// to be waited for.
    pub fn sleep(&self, limit: Option<Duration>, has_work: impl Fn() -> bool) {
        let seen = self.rings.load(Ordering::Acquire);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // ordering: pairs with the fence of `ring`: one of the two sees the other
        fence(Ordering::SeqCst);
        if !has_work() {
            sleep_at(&self.rings, seen, limit);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many sleep.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.load(Ordering::Relaxed)
    }
}

/// Sleeps while `word` is `seen`, at most so long; may wake without a reason.
pub fn sleep_at(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    let limit = limit
        .map(|limit| Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ });
    // whoever waits looks again in any case
    let _ = wait(word, Flags::PRIVATE, seen, limit.as_ref());
}

/// Wakes up to `count` who sleep there.
pub fn wake_up(word: &AtomicU32, count: u32) {
    // nobody there is fine
    let _ = wake(word, Flags::PRIVATE, count);
}

/// Longest sleep of the measurement.
const NAP: Duration = Duration::from_millis(20);
/// Its rounds.
const ROUNDS: u32 = 16;

/// About how long it takes to wake a thread that sleeps.
pub fn time_to_wake() -> Duration {
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let turn = |own: &AtomicU32, other: &AtomicU32, first: bool| {
        for round in 1..=ROUNDS {
            if first {
                other.store(round, Ordering::Release);
                wake_up(other, 1);
            }
            while own.load(Ordering::Acquire) < round {
                sleep_at(own, round - 1, Some(NAP));
            }
            if !first {
                other.store(round, Ordering::Release);
                wake_up(other, 1);
            }
        }
    };
    std::thread::scope(|threads| {
        let thread = std::thread::Builder::new();
        if thread.spawn_scoped(threads, || turn(&words[1], &words[0], false)).is_err() {
            return Duration::ZERO;
        }
        let began = Instant::now();
        turn(&words[0], &words[1], true);
        began.elapsed() / (2 * ROUNDS)
    })
}
