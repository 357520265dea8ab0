//! How many threads copy from, or to, the memory of a node at one time, and how many may.

use crate::bell::Bell;
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;

/// Turns that are taken, and how many there are.
#[derive(Debug)]
pub struct Gauge {
    active: AtomicU32,
    limit: u32,
    /// Workers that sleep until there are some.
    wanted: AtomicU32,
    /// Where they do.
    bell: Arc<Bell>,
}

/// A worker wants turns, until this is dropped.
#[derive(Debug)]
pub struct Want<'g>(&'g Gauge);

/// A thread at work, which has some turns, until it is dropped.
#[derive(Debug)]
pub struct AtWork<'g> {
    gauge: &'g Gauge,
    turns: u32,
}

impl Gauge {
    /// With so many turns; at least one. Who wants some sleeps at the bell.
    pub fn new(limit: u32, bell: Arc<Bell>) -> Gauge {
        Gauge { active: AtomicU32::new(0), limit: limit.max(1), wanted: AtomicU32::new(0), bell }
    }

    /// From now on who gives turns back rings the bell.
    pub fn want(&self) -> Want<'_> {
        // ordering: SeqCst, here and where turns are given back: one of the two sees the other
        self.wanted.fetch_add(1, Ordering::SeqCst);
        Want(self)
    }

    /// Takes so many turns, if they are there.
    #[inline]
    pub fn try_enter(&self, turns: u32) -> Option<AtWork<'_>> {
        let at_work = self.enter(turns);
        // it has them, and others
        if at_work.1 <= self.limit { Some(at_work.0) } else { None }
    }

    /// Takes so many turns, whether they are there or not; and how many are taken then.
    #[inline]
    pub fn enter(&self, turns: u32) -> (AtWork<'_>, u32) {
        let turns = turns.min(self.limit);
        // ordering: only the count matters
        let before = self.active.fetch_add(turns, Ordering::SeqCst);
        (AtWork { gauge: self, turns }, before + turns)
    }

    /// Whether so many turns are there.
    #[inline]
    pub fn has(&self, turns: u32) -> bool {
        self.active.load(Ordering::SeqCst) + turns.min(self.limit) <= self.limit
    }

    /// Whether a worker sleeps until there are turns.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Turns taken.
    #[inline]
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

impl AtWork<'_> {
    /// Gives its turns back without waking anybody: who calls this looks for work itself.
    pub fn leave(self) {
        self.gauge.active.fetch_sub(self.turns, Ordering::SeqCst);
        std::mem::forget(self);
    }

    /// Has so many turns from now on: gives others back, or takes what is missing, whether it is
    /// there or not.
    pub fn set(&mut self, turns: u32) {
        let turns = turns.min(self.gauge.limit);
        if turns != self.turns {
            self.gauge.active.fetch_add(turns.wrapping_sub(self.turns), Ordering::Relaxed);
            self.turns = turns;
        }
    }
}

impl Drop for AtWork<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gauge.active.fetch_sub(self.turns, Ordering::SeqCst);
        if self.gauge.wanted.load(Ordering::SeqCst) > 0 {
            self.gauge.bell.ring(1);
        }
    }
}

impl Drop for Want<'_> {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limit: u32) -> Gauge {
        Gauge::new(limit, Arc::default())
    }

    #[test]
    fn no_more_enter_than_may() {
        let gauge = of(2);
        let one = gauge.try_enter(1).unwrap();
        let two = gauge.try_enter(1).unwrap();
        assert!(gauge.try_enter(1).is_none());
        assert_eq!(gauge.active(), 2);
        drop(one);
        let three = gauge.try_enter(1);
        assert!(three.is_some() && gauge.try_enter(1).is_none());
        // who must go on does
        let (four, active) = gauge.enter(1);
        assert_eq!((gauge.active(), active), (3, 3));
        drop((two, three, four));
        assert_eq!((gauge.active(), gauge.limit()), (0, 2));
        assert_eq!(of(0).limit(), 1);
    }

    #[test]
    fn large_ones_take_more_turns_and_never_more_than_there_are() {
        let gauge = of(4);
        let mut large = gauge.try_enter(3).unwrap();
        assert!(!gauge.has(2) && gauge.try_enter(2).is_none());
        let small = gauge.try_enter(1).unwrap();
        large.set(1);
        assert_eq!(gauge.active(), 2);
        assert!(gauge.has(2) && !gauge.has(3));
        large.set(5);
        assert_eq!((large.turns, gauge.active()), (4, 5));
        drop((large, small));
        let all = gauge.try_enter(100).unwrap();
        assert_eq!((gauge.active(), all.turns), (4, 4));
    }
}
