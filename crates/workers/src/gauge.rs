//! How many threads copy from, or to, the memory of a node at one time, and how many may.

use crate::bell::Bell;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use placement::{SHORT_BYTES, Taken};
use std::sync::Arc;

/// Turns that are taken, and how many there are.
#[derive(Debug)]
pub struct Gauge {
    /// By short accesses, and by long ones in the upper half.
    taken: AtomicU64,
    limit: u32,
    /// Workers that sleep until there are some for a short request, and for a long one.
    wanted: [AtomicU32; 2],
    /// Where they do.
    bell: Arc<Bell>,
}

/// A worker wants turns, until this is dropped.
#[derive(Debug)]
pub struct Want<'g>(&'g Gauge, bool);

/// A thread at work, which has some turns, until it is dropped.
#[derive(Debug)]
pub struct AtWork<'g> {
    gauge: &'g Gauge,
    turns: u32,
    /// For so many bytes.
    bytes: u64,
}

impl Gauge {
    /// With so many turns; at least one. Who wants some sleeps at the bell.
    pub fn new(limit: u32, bell: Arc<Bell>) -> Gauge {
        Gauge { taken: AtomicU64::new(0), limit: limit.max(1), wanted: Default::default(), bell }
    }

    /// From now on who gives turns back rings the bell, if there are some then for such a request.
    pub fn want(&self, is_long: bool) -> Want<'_> {
        // ordering: SeqCst, here and where turns are given back: one of the two sees the other
        self.wanted[usize::from(is_long)].fetch_add(1, Ordering::SeqCst);
        Want(self, is_long)
    }

    /// Takes so many turns for an access of so many bytes, if they are there.
    #[inline]
    pub fn try_enter(&self, turns: u32, bytes: u64) -> Option<AtWork<'_>> {
        let turns = turns.min(self.limit);
        self.take(turns, bytes).then(|| AtWork { gauge: self, turns, bytes })
    }

    /// Takes so many turns, whether they are there or not.
    pub fn enter(&self, turns: u32, bytes: u64) -> AtWork<'_> {
        let turns = turns.min(self.limit);
        self.taken.fetch_add(in_word(turns, bytes), Ordering::SeqCst);
        AtWork { gauge: self, turns, bytes }
    }

    /// Who finds too few changes nothing, so that nobody else is refused for that.
    #[inline]
    fn take(&self, turns: u32, bytes: u64) -> bool {
        let fits = |word: u64| {
            let fits = taken(word).with(turns, bytes, self.limit).is_some();
            fits.then(|| word + in_word(turns, bytes))
        };
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// Whether so many turns are there for an access of so many bytes.
    #[inline]
    pub fn has(&self, turns: u32, bytes: u64) -> bool {
        let taken = taken(self.taken.load(Ordering::SeqCst));
        taken.with(turns.min(self.limit), bytes, self.limit).is_some()
    }

    /// Whether a worker sleeps until there are turns.
    pub fn is_wanted(&self) -> bool {
        self.wanted.iter().any(|wanted| wanted.load(Ordering::SeqCst) > 0)
    }

    /// Turns taken.
    pub fn active(&self) -> u32 {
        taken(self.taken.load(Ordering::Relaxed)).all()
    }

    /// Those that count for an access of so many bytes.
    #[inline]
    pub fn before(&self, bytes: u64) -> u32 {
        taken(self.taken.load(Ordering::Relaxed)).before(bytes)
    }

    /// How many there are.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

/// Turns of an access of so many bytes as they are counted.
#[inline]
fn in_word(turns: u32, bytes: u64) -> u64 {
    if bytes > SHORT_BYTES { u64::from(turns) << 32 } else { u64::from(turns) }
}

#[inline]
fn taken(word: u64) -> Taken {
    Taken { short: word as u32, long: (word >> 32) as u32 }
}

impl AtWork<'_> {
    /// Gives its turns back without waking anybody: who calls this looks for work itself.
    pub fn leave(self) {
        self.give_back(self.turns);
        std::mem::forget(self);
    }

    /// What is taken then.
    #[inline]
    fn give_back(&self, turns: u32) -> Taken {
        let word = in_word(turns, self.bytes);
        taken(self.gauge.taken.fetch_sub(word, Ordering::SeqCst) - word)
    }

    /// Has so many turns from now on: gives others back, or takes what is missing, whether it is
    /// there or not: then nobody comes in before that is paid back.
    pub fn set(&mut self, turns: u32) {
        let turns = turns.min(self.gauge.limit);
        if turns < self.turns {
            self.give_back(self.turns - turns);
        } else {
            let more = in_word(turns - self.turns, self.bytes);
            self.gauge.taken.fetch_add(more, Ordering::SeqCst);
        }
        self.turns = turns;
    }
}

impl Drop for AtWork<'_> {
    #[inline]
    fn drop(&mut self) {
        let taken = self.give_back(self.turns);
        let Gauge { wanted, limit, bell, .. } = self.gauge;
        let comes = |is_long: bool| {
            wanted[usize::from(is_long)].load(Ordering::SeqCst) > 0
                && taken.with(1, if is_long { SHORT_BYTES + 1 } else { 0 }, *limit).is_some()
        };
        if comes(false) || comes(true) {
            bell.ring(1);
        }
    }
}

impl Drop for Want<'_> {
    fn drop(&mut self) {
        self.0.wanted[usize::from(self.1)].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Sleep;

    const SHORT: u64 = 4 << 10;
    const LONG: u64 = 256 << 10;

    fn of(limit: u32) -> Gauge {
        Gauge::new(limit, Arc::default())
    }

    #[test]
    fn no_more_enter_than_may() {
        let gauge = of(2);
        let one = gauge.try_enter(1, SHORT).unwrap();
        let two = gauge.try_enter(1, SHORT).unwrap();
        assert!(gauge.try_enter(1, SHORT).is_none());
        assert_eq!(gauge.active(), 2);
        drop(one);
        let three = gauge.try_enter(1, SHORT);
        assert!(three.is_some() && gauge.try_enter(1, SHORT).is_none());
        // who must go on does
        let four = gauge.enter(1, SHORT);
        assert_eq!(gauge.active(), 3);
        drop((two, three, four));
        assert_eq!((gauge.active(), gauge.limit()), (0, 2));
        assert_eq!(of(0).limit(), 1);
    }

    #[test]
    fn large_ones_take_more_turns_and_never_more_than_there_are() {
        let gauge = of(4);
        let mut large = gauge.try_enter(3, SHORT).unwrap();
        assert!(!gauge.has(2, SHORT) && gauge.try_enter(2, SHORT).is_none());
        let small = gauge.try_enter(1, SHORT).unwrap();
        large.set(1);
        assert_eq!(gauge.active(), 2);
        assert!(gauge.has(2, SHORT) && !gauge.has(3, SHORT));
        // nobody comes in before what is too much is paid back
        large.set(5);
        assert_eq!((large.turns, gauge.active()), (4, 5));
        drop(small);
        assert!(gauge.try_enter(1, SHORT).is_none());
        large.set(3);
        let small = gauge.try_enter(1, SHORT).unwrap();
        drop((large, small));
        let all = gauge.try_enter(100, SHORT).unwrap();
        assert_eq!((gauge.active(), all.turns), (4, 4));
    }

    #[test]
    fn short_ones_do_not_wait_for_long_ones() {
        let gauge = of(2);
        let long = gauge.try_enter(2, LONG).unwrap();
        assert!(!gauge.has(1, LONG) && gauge.has(2, SHORT));
        let short = gauge.try_enter(2, SHORT).unwrap();
        assert!(gauge.try_enter(1, SHORT).is_none() && gauge.try_enter(1, LONG).is_none());
        assert_eq!((gauge.active(), gauge.before(SHORT), gauge.before(LONG)), (4, 2, 4));
        drop(long);
        // one long one goes beside them
        let long = gauge.try_enter(2, LONG).unwrap();
        drop((short, long));
        assert_eq!(gauge.active(), 0);
    }

    /// A short access that ends rings for a long request only if that finds turns.
    #[test]
    fn who_waits_for_turns_of_a_long_one_is_not_woken_by_every_short_one() {
        let bell: Arc<Bell> = Arc::default();
        let gauge = Gauge::new(2, bell.clone());
        let _want = gauge.want(true);
        let long = gauge.try_enter(2, LONG).unwrap();
        std::thread::scope(|threads| {
            let sleeper = threads.spawn(|| bell.sleep(|| Sleep::UntilItRings));
            while bell.sleepers() == 0 {
                std::thread::yield_now();
            }
            (0..100).for_each(|_| drop(gauge.try_enter(1, SHORT).unwrap()));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!sleeper.is_finished(), "it was woken for nothing");
            drop(long);
            while !sleeper.is_finished() {
                drop(gauge.try_enter(1, LONG));
                std::thread::yield_now();
            }
        });
    }

    /// Who is woken finds turns: those who found none, and who give back what they look for
    /// themselves, wake nobody.
    #[test]
    fn only_turns_that_come_back_ring() {
        let bell: Arc<Bell> = Arc::default();
        let gauge = Gauge::new(2, bell.clone());
        let _want = gauge.want(false);
        let all = gauge.try_enter(2, SHORT).unwrap();
        std::thread::scope(|threads| {
            let sleeper = threads.spawn(|| bell.sleep(|| Sleep::UntilItRings));
            while bell.sleepers() == 0 {
                std::thread::yield_now();
            }
            for _ in 0..100 {
                assert!(gauge.try_enter(1, SHORT).is_none());
            }
            all.leave();
            gauge.try_enter(1, SHORT).unwrap().leave();
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!sleeper.is_finished(), "it was woken for nothing");
            // it may be about to sleep still
            while !sleeper.is_finished() {
                drop(gauge.try_enter(1, SHORT));
                std::thread::yield_now();
            }
        });
    }
}
