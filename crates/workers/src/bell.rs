//! Where the workers of a slice sleep, and how they are woken: once for a burst of requests.

use crate::sync::{AtomicU32, Ordering, fence};
use rustix::thread::futex::{Flags, Timespec, wait, wake};
use std::time::{Duration, Instant};

/// How long to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// There is something to do.
    Not,
    /// There is, but not yet.
    AtMost(Duration),
    /// There is nothing.
    UntilItRings,
}

/// The bell.
#[derive(Debug, Default)]
#[repr(align(128))] // on lines of its own
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

    /// Sleeps until it rings, or for as long as `for_how_long` says: asked when whoever puts
    /// something there from now on rings, so that what it does not see is not missed.
    pub fn sleep(&self, for_how_long: impl Fn() -> Sleep) {
        let seen = self.rings.load(Ordering::Acquire);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // ordering: pairs with the fence of `ring`: one of the two sees the other
        fence(Ordering::SeqCst);
        match for_how_long() {
            Sleep::Not => {}
            Sleep::AtMost(limit) => sleep_at(&self.rings, seen, Some(limit)),
            Sleep::UntilItRings => sleep_at(&self.rings, seen, None),
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

/// About how long it takes to wake a thread that sleeps on another CPU. With one CPU there is
/// nothing to wait for: whoever spins keeps the other one from running.
pub fn time_to_wake(cpus: &[u32]) -> Duration {
    let (Some(first), Some(last)) = (cpus.first(), cpus.last()) else { return Duration::ZERO };
    if first == last {
        return Duration::ZERO;
    }
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    // each waits for its word to move on, and moves the other's
    let turns = |cpu: u32, own: &AtomicU32, other: &AtomicU32, begins: bool| {
        let _ = topology::pin_current_thread(&[cpu]);
        let began = Instant::now();
        for round in 1..=ROUNDS {
            if begins {
                other.store(round, Ordering::Release);
                wake_up(other, 1);
            }
            while own.load(Ordering::Acquire) < round {
                sleep_at(own, round - 1, Some(NAP));
            }
            if !begins {
                other.store(round, Ordering::Release);
                wake_up(other, 1);
            }
        }
        began.elapsed() / (2 * ROUNDS)
    };
    std::thread::scope(|threads| {
        let spawn = || std::thread::Builder::new();
        let answers = || turns(*last, &words[1], &words[0], false);
        if spawn().spawn_scoped(threads, answers).is_err() {
            return Duration::ZERO;
        }
        turns(*first, &words[0], &words[1], true)
    })
}
