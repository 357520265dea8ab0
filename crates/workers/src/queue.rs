//! What waits for the workers of a slice, of one kind, and whether they come.

use crate::bell::Bell;
use crate::gauge::{AtWork, Gauge, Want};
use crate::rings::Rings;
use crate::sync::{AtomicU64, Ordering};
use crate::workers::micros;
use crossbeam_utils::CachePadded;
use placement::Side;
use std::sync::Arc;
use std::time::Instant;

/// Requests that a ring holds, as a power of two.
const RING_BITS: u32 = 10;
/// How long callers copy for themselves before they ask again, us.
const STALL_MICROS: u64 = 100_000;

/// Requests of one kind, and who may serve them.
#[derive(Debug)]
pub(crate) struct Queue {
    pub rings: Rings,
    pub gauge: CachePadded<Gauge>,
    /// What the memory likes.
    pub side: Side,
    pub bytes: AtomicU64,
    /// What copying a block takes, about, ns.
    pub block_ns: AtomicU64,
    /// Requests served, from 1.
    pub progress: AtomicU64,
    /// What that was when callers were left waiting: while it is that, they copy for themselves.
    stalled_at: AtomicU64,
    /// When that was, us since the workers were made.
    stalled_since: AtomicU64,
}

impl Queue {
    pub fn new(side: Side, bell: &Arc<Bell>) -> Queue {
        Queue {
            rings: Rings::new(RING_BITS),
            gauge: Gauge::new(side.limit, bell.clone()).into(),
            side,
            bytes: AtomicU64::new(0),
            block_ns: AtomicU64::new(0),
            progress: AtomicU64::new(1),
            stalled_at: AtomicU64::new(0),
            stalled_since: AtomicU64::new(0),
        }
    }

    /// Whether a worker may take a request. Where callers were left waiting, and copy whatever the
    /// limit says, it may in any case: else it never came to those that were left.
    pub fn can_work(&self) -> bool {
        [false, true].into_iter().any(|is_long| {
            let len = self.rings.len_of_next(is_long);
            len.is_some_and(|len| self.gauge.has(self.side.turns(len), len) || self.is_behind())
        })
    }

    /// A worker that is about to sleep wants turns here, for short requests and for long ones, if
    /// such wait.
    pub fn want(&self) -> [Option<Want<'_>>; 2] {
        [false, true]
            .map(|is_long| self.rings.len_of_next(is_long).map(|_| self.gauge.want(is_long)))
    }

    /// The worker's turns, if it may take a request, and whether that is a long one: the one that
    /// is next, or the other, if there are turns for that alone. As many as it seems to take.
    pub fn turn(&self) -> Option<(AtWork<'_>, bool)> {
        let is_long = self.rings.is_long_next();
        [is_long, !is_long].into_iter().find_map(|is_long| {
            let len = self.rings.len_of_next(is_long)?;
            let turns = self.side.turns(len);
            let at_work = match self.is_behind() {
                true => Some(self.gauge.enter(turns, len)),
                false => self.gauge.try_enter(turns, len),
            };
            at_work.map(|at_work| (at_work, is_long))
        })
    }

    /// Whether nothing was served since callers were left waiting.
    pub fn is_behind(&self) -> bool {
        // ordering: a hint
        self.stalled_at.load(Ordering::Relaxed) == self.progress.load(Ordering::Relaxed)
    }

    /// Whether callers had better copy for themselves: for a while, then they ask again.
    pub fn is_stalled(&self, epoch: Instant) -> bool {
        self.is_behind() && {
            let since = self.stalled_since.load(Ordering::Relaxed);
            micros(epoch).saturating_sub(since) < STALL_MICROS
        }
    }

    /// Callers were left waiting, when so much was served.
    pub fn stall(&self, progress: u64, epoch: Instant) {
        self.stalled_since.store(micros(epoch), Ordering::Relaxed);
        self.stalled_at.store(progress, Ordering::Relaxed);
    }
}
