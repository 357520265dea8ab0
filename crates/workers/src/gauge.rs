//! How many threads copy from, or to, the memory of a node at one time, and how many may.

use crate::sync::{AtomicU32, Ordering};
use placement::NO_LIMIT;

/// Threads at work, and how many may be.
#[derive(Debug)]
pub struct Gauge {
    active: AtomicU32,
    limit: AtomicU32,
}

impl Default for Gauge {
    fn default() -> Gauge {
        Gauge { active: AtomicU32::new(0), limit: AtomicU32::new(NO_LIMIT) }
    }
}

/// One of the threads at work, until it is dropped.
#[derive(Debug)]
pub struct AtWork<'g>(&'g Gauge);

impl Gauge {
    /// One more, if the limit allows it.
    #[inline]
    pub fn try_enter(&self) -> Option<AtWork<'_>> {
        let limit = self.limit.load(Ordering::Relaxed);
        // ordering: only the count matters
        let before = self.active.fetch_add(1, Ordering::Relaxed);
        let at_work = AtWork(self);
        if before < limit { Some(at_work) } else { None }
    }

    /// One more, whatever the limit says.
    #[inline]
    pub fn enter(&self) -> AtWork<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        AtWork(self)
    }

    /// Threads at work.
    #[inline]
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// How many may be.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets how many may be; at least one.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit.max(1), Ordering::Relaxed);
    }
}

impl Drop for AtWork<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_enter_than_may() {
        let gauge = Gauge::default();
        gauge.set_limit(2);
        let one = gauge.try_enter().unwrap();
        let two = gauge.try_enter().unwrap();
        assert!(gauge.try_enter().is_none());
        assert_eq!(gauge.active(), 2);
        drop(one);
        let three = gauge.try_enter();
        assert!(three.is_some() && gauge.try_enter().is_none());
        // who must go on does
        let four = gauge.enter();
        assert_eq!(gauge.active(), 3);
        drop((two, three, four));
        assert_eq!((gauge.active(), gauge.limit()), (0, 2));
        gauge.set_limit(0);
        assert_eq!(gauge.limit(), 1);
    }
}
