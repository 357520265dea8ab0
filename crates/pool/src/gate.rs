//! The gate: every change passes it, and the cut of a checkpoint closes it for a moment.
//!
//! A change enters before it takes any lock and leaves when it is published. While the cut holds
//! the gate, no change is under way anywhere: the log's position and the state in DRAM agree.
//! One lock per CPU, so that changes on different CPUs share no cache line.

use crossbeam_utils::CachePadded;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The gate of one pool.
#[derive(Debug)]
pub struct Gate {
    lanes: Box<[CachePadded<RwLock<()>>]>,
}

/// A change under way.
#[derive(Debug)]
pub struct Entered<'g> {
    _lane: RwLockReadGuard<'g, ()>,
}

/// The gate, closed.
#[derive(Debug)]
pub struct Closed<'g> {
    _lanes: Vec<RwLockWriteGuard<'g, ()>>,
}

impl Gate {
    /// A gate for a machine with this many CPUs.
    pub fn new(cpus: usize) -> Gate {
        Gate { lanes: (0..cpus.max(1)).map(|_| CachePadded::default()).collect() }
    }

    /// Starts a change. Never enter twice in one thread: a cut that waits between would deadlock.
    #[inline]
    pub fn enter(&self, cpu: usize) -> Entered<'_> {
        Entered { _lane: self.lanes[cpu % self.lanes.len()].read() }
    }

    /// Waits for all changes under way and holds new ones back.
    pub fn close(&self) -> Closed<'_> {
        Closed { _lanes: self.lanes.iter().map(|lane| lane.write()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn nothing_is_under_way_while_the_gate_is_closed() {
        let gate = Gate::new(2);
        let inside = AtomicU64::new(0);
        let stop = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for cpu in 0..3 {
                let (gate, inside, stop) = (&gate, &inside, &stop);
                scope.spawn(move || {
                    while stop.load(Ordering::SeqCst) == 0 {
                        let _entered = gate.enter(cpu);
                        inside.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..200 {
                let _closed = gate.close();
                assert_eq!(inside.load(Ordering::SeqCst), 0);
            }
            stop.store(1, Ordering::SeqCst);
        });
    }
}
