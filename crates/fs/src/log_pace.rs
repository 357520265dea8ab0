//! Back-pressure of the log: while changes come faster than checkpoints fold them, those who make
//! them are slowed down, the more the less is left of the log, and of what one checkpoint may fold;
//! so that nobody finds either full all of a sudden and waits for a whole checkpoint.
//!
//! What is in use is a share of the log of the slice that has least left, or of what may be folded,
//! if that is more. Above `FROM`, what was taken since the last look costs the time that a
//! checkpoint takes to give as much back, times `(used - FROM) / (all - used)`: half-way to full,
//! changes are let in as fast as checkpoints make room; no look costs more than `COST_MAX`
//! checkpoints. All pay, one after the other, as for blocks (`pace.rs`), when they hold nothing.

use crate::brake::Brake;
use crate::change_dues::ChangeDues;
use crate::core::Core;
use crate::mapped::wait_for_all;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// All of it.
const ALL: u64 = 1 << 20;
/// What may be in use before anybody is slowed down; half of it is when a checkpoint begins.
const FROM: u64 = ALL / 10 * 7;
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// The price of a look at most, in times that a checkpoint takes: then there is room.
const COST_MAX: f64 = 2.0;

/// How fast changes may come.
#[derive(Debug, Default)]
pub struct LogPace {
    /// What a checkpoint takes, ns.
    checkpoint_ns: AtomicU64,
    /// When the one that is made now began.
    began: Mutex<Option<Instant>>,
    /// Who pays, or found no room and waited for a checkpoint.
    pub brake: Brake<Look>,
}

/// The last look at what is in use.
#[derive(Debug, Default)]
pub struct Look {
    at: Option<Instant>,
    used: u64,
}

impl LogPace {
    /// A checkpoint begins; it ends when what is given is dropped.
    pub fn checkpoint(&self) -> Begun<'_> {
        *self.began.lock() = Some(Instant::now());
        Begun(self)
    }

    /// What the one takes that is made now, or the next one: as long as the last ones did, and no
    /// less than it already has.
    fn takes(&self, now: Instant) -> Duration {
        let age = self.began.lock().map_or(Duration::ZERO, |began| now - began);
        Duration::from_nanos(self.checkpoint_ns.load(Ordering::Relaxed)).max(age)
    }

    /// A checkpoint took so long.
    pub fn took(&self, time: Duration) {
        let before = self.checkpoint_ns.load(Ordering::Relaxed);
        let now = time.as_nanos() as u64;
        let both = if before == 0 { now } else { (before + now) / 2 };
        self.checkpoint_ns.store(both, Ordering::Relaxed);
    }
}

/// A checkpoint that is made now.
pub struct Begun<'p>(&'p LogPace);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        *self.0.began.lock() = None;
    }
}

/// What it costs that `used` is in use, of which `taken` was taken last, in times that a checkpoint
/// takes.
fn cost_of(used: u64, taken: u64) -> f64 {
    let over = used.saturating_sub(FROM);
    let left = ALL.saturating_sub(used).max(1);
    taken as f64 / ALL as f64 * (over as f64 / left as f64)
}

impl Core {
    /// What is in use of the log, or of what a checkpoint may fold, whichever is more.
    fn log_in_use(&self) -> u64 {
        let share = |used: u64, all: u64| (used.saturating_mul(ALL) / all.max(1)).min(ALL);
        let logs = self.pool.slices().iter().map(|slice| {
            let (free, all) = slice.log.chunks_free();
            // what a cut takes all at once is not for anybody
            let kept = slice.log.chunks_due().min(all / 4);
            share((all - free) as u64, (all - kept) as u64)
        });
        let dirty = self.dirty_units.load(Ordering::Relaxed);
        logs.max().unwrap_or(0).max(share(dirty, self.dirty_max.load(Ordering::Relaxed)))
    }

    /// Does what a change does before its call returns. The thread holds nothing.
    #[cold]
    pub fn meet_dues(&self) {
        if self.dues.has(ChangeDues::LOG) {
            self.pay_for_log();
        }
        wait_for_all();
    }

    /// Pays for what changes have taken of the log.
    fn pay_for_log(&self) {
        let pace = &self.log_pace;
        pace.brake.pay(|look, now| {
            if look.at.is_some_and(|at| now - at <= LOOK_EVERY) {
                return Duration::ZERO;
            }
            let used = self.log_in_use();
            let cost = cost_of(used, used.saturating_sub(look.used));
            (look.at, look.used) = (Some(now), used);
            if used < FROM {
                self.dues.remove(ChangeDues::LOG);
            }
            pace.takes(now).mul_f64(cost.min(COST_MAX))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_grows_from_none_to_what_holds_everybody_up() {
        let percent = |used: u64| cost_of(ALL / 100 * used, ALL / 100) * 100.0;
        assert_eq!([0, 50, 69].map(percent), [0.0; 3]);
        assert!((percent(85) - 1.0).abs() < 0.01, "half-way, as fast as a checkpoint makes room");
        assert!((71..100).all(|used| percent(used) < percent(used + 1)));
        assert!(percent(100) > 100.0, "when it is full, longer than the checkpoint takes");
    }

    #[test]
    fn a_checkpoint_takes_no_less_than_it_already_has() {
        let (pace, now, ms) = (LogPace::default(), Instant::now(), Duration::from_millis);
        pace.took(ms(5));
        assert_eq!(pace.takes(now), ms(5));
        let begun = pace.checkpoint();
        assert_eq!(pace.takes(now), ms(5));
        let takes = pace.takes(Instant::now() + ms(3_600_000));
        assert!(takes >= ms(3_600_000), "{takes:?}");
        drop(begun);
        assert_eq!(pace.takes(Instant::now() + ms(3_600_000)), ms(5));
    }
}
