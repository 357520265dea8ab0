//! What was decided lately about moving, for who wants to know why.

use crate::error::Result;
use crate::leaf::LEAF_BLOCKS;
use crate::system::FileSystem;
use crate::types::Ino;
use parking_lot::Mutex;
use pool::BLOCK_BYTES;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Parts of a file that one call looks at (512 MiB): it is over soon, whatever the file is like.
const LEAVES_MAX: u64 = 1024;
/// Decisions that are kept.
const KEPT: usize = 256;

/// What was to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moving {
    /// A thread, to the data of a file.
    Thread,
    /// A part of a file.
    Data {
        /// Where it begins, bytes.
        offset: u64,
        /// Its bytes that moved, or would have.
        bytes: u64,
    },
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It moved.
    Moved,
    /// It would have; it was only to be told.
    Reported,
    /// It did not pay any more when it was its turn.
    Cancelled,
    /// It could not: there was no room, or the system did not let it.
    Refused,
}

/// One decision.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decided {
    /// When.
    pub at: SystemTime,
    /// The file.
    pub ino: Ino,
    /// What was to move.
    pub moving: Moving,
    /// The slice that it is, or was, on or near,
    pub from: u8,
    /// and where it was to go.
    pub to: u8,
    /// What that was expected to gain beyond what it costs, ns: the next accesses are like the
    /// last ones.
    pub gain_ns: f32,
    /// What it was expected to cost, ns.
    pub costs_ns: f32,
    /// What became of it.
    pub outcome: Outcome,
}

/// The last decisions, and how many there were.
#[derive(Debug, Default)]
pub struct Decisions {
    last: Mutex<VecDeque<Decided>>,
    threads: AtomicU64,
    data: AtomicU64,
    /// Expected gains of what moved, ns.
    gain_ns: AtomicU64,
}

/// What moved since the pool was opened, and what is to.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Moves {
    /// Threads that went to data.
    pub threads: u64,
    /// Of these, those that are held there.
    pub threads_held: u64,
    /// Parts of files that went to readers.
    pub data: u64,
    /// Those that wait.
    pub data_waiting: u64,
    /// What all that was expected to gain, ns.
    pub gain_ns: u64,
    /// By slice, the part of the time for which its memory was busy lately.
    pub busy: Vec<f32>,
}

/// Who has lost what for a part of a file being where it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Heat {
    /// Where that part begins, bytes.
    pub offset: u64,
    /// The slice whose callers have lost most, or gained by its being there.
    pub slice: u8,
    /// What they have, ns, less what others have: what is older counts less.
    pub lost_ns: f32,
}

impl FileSystem {
    /// The last decisions to move something, of one file or of all; the oldest first. None where
    /// nothing is known of what accesses take.
    pub fn decisions(&self, of: Option<Ino>) -> Vec<Decided> {
        self.core.observer.known().map_or_else(Vec::new, |known| known.decisions.last(of))
    }

    /// What moved; `None` where nothing is known of what accesses take, or nothing is to move.
    pub fn moves(&self) -> Option<Moves> {
        let known = self.core.observer.known()?;
        let slices = 0..self.core.pool.slices().len() as u8;
        Some(Moves {
            threads_held: known.movers.held() as u64,
            data_waiting: known.migrator.waiting() as u64,
            busy: slices.map(|slice| known.busy(slice)).collect(),
            ..known.decisions.moves()
        })
    }

    /// What accesses have lost for where a file's parts are, from `offset` on, of parts that are in
    /// DRAM, and where to go on; nowhere at its end.
    pub fn heat(&self, ino: Ino, offset: u64) -> Result<(Vec<Heat>, Option<u64>)> {
        let inode = self.core.inode(ino)?;
        let Some(known) = self.core.observer.known() else { return Ok((Vec::new(), None)) };
        let now = known.now();
        let leaf_bytes = LEAF_BLOCKS * BLOCK_BYTES;
        let end = inode.size.load(Ordering::Relaxed).div_ceil(leaf_bytes);
        let first = offset / leaf_bytes;
        let until = end.min(first.saturating_add(LEAVES_MAX));
        let heat = |index: u64| {
            let leaf = inode.map.cached(index)?;
            let heat = leaf.lost().at(&known.data, now);
            let (slice, lost_ns) = (heat.node() as u8, heat.lost_ns());
            // who uses it where it is loses nothing
            let is_there = leaf.slices().all(|it| it == slice);
            (lost_ns > 0.0 && !is_there).then_some(Heat {
                offset: index * leaf_bytes,
                slice,
                lost_ns,
            })
        };
        let found = (first..until).filter_map(heat).collect();
        Ok((found, (until < end).then_some(until * leaf_bytes)))
    }
}

impl Decisions {
    /// One more.
    pub fn push(&self, decided: Decided) {
        if decided.outcome == Outcome::Moved {
            let count = match decided.moving {
                Moving::Thread => &self.threads,
                Moving::Data { .. } => &self.data,
            };
            count.fetch_add(1, Ordering::Relaxed);
            self.gain_ns.fetch_add(decided.gain_ns.max(0.0) as u64, Ordering::Relaxed);
        }
        let mut last = self.last.lock();
        if last.len() == KEPT {
            last.pop_front();
        }
        last.push_back(decided);
    }

    /// The last ones, of one file or of all; the oldest first.
    pub fn last(&self, of: Option<Ino>) -> Vec<Decided> {
        let last = self.last.lock();
        last.iter().filter(|it| of.is_none_or(|ino| it.ino == ino)).copied().collect()
    }

    /// How many moved.
    pub fn moves(&self) -> Moves {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Moves {
            threads: load(&self.threads),
            data: load(&self.data),
            gain_ns: load(&self.gain_ns),
            ..Moves::default()
        }
    }
}
