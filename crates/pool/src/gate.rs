//! The gate: every change passes it, and the cut of a checkpoint closes it for a moment.
//!
//! A change enters before it takes any lock and leaves when it is published. While the cut holds
//! the gate, no change is under way anywhere: the log's position and the state in DRAM agree.
//! One lock per CPU, so that changes on different CPUs share no cache line.
//!
//! Checked by loom: `tests/loom_gate.rs`.

use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crossbeam_utils::CachePadded;
use topology::place_of;

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
        Entered { _lane: self.lanes[place_of(cpu, self.lanes.len())].read() }
    }

    /// Starts a change, if that needs no wait.
    pub fn try_enter(&self, cpu: usize) -> Option<Entered<'_>> {
        let lane = self.lanes[place_of(cpu, self.lanes.len())].try_read()?;
        Some(Entered { _lane: lane })
    }

    /// Waits for all changes under way and holds new ones back.
    pub fn close(&self) -> Closed<'_> {
        Closed { _lanes: self.lanes.iter().map(|lane| lane.write()).collect() }
    }
}
