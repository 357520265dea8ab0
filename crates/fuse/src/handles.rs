//! Open files of the mount: the kernel's file handle numbers and the engine's handles.
//!
//! A number is used again after its file is released, never before; the kernel sends nothing
//! for a handle after its release. A number carries the turn of the server that gave it (turns
//! are counted for each connection): one of an earlier server is unknown here, and stands for a
//! file that is to be opened again, under the number that the kernel has. That may be done for a
//! request that the kernel has its answer to, and after the release, which the earlier server had
//! served: so what is inherited goes with its inode at the latest, when the kernel forgets that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nearside::files::{Handle, Ino};
use parking_lot::RwLock;

use crate::service::{May, OpenFile};

/// Parts of the table with a lock each, so that opens on different CPUs seldom meet.
const SHARDS: usize = 16;
/// The turn is above these bits of a number.
const TURN_SHIFT: u32 = 48;
/// Turns are counted in this many numbers, and then again from 0. The largest does not occur.
const TURNS: u64 = (1 << (64 - TURN_SHIFT)) - 1;

/// An open file.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) handle: Arc<Handle>,
    /// What it is open for. None: an earlier server knew, and it is asked at each use.
    pub(crate) may: Option<May>,
    /// Somebody may store to it by a mapping.
    pub(crate) writes: bool,
}

#[derive(Default)]
struct Shard {
    slots: Vec<Option<Open>>,
    vacant: Vec<usize>,
}

/// The open files.
#[derive(Default)]
pub(crate) struct Handles {
    shards: [RwLock<Shard>; SHARDS],
    spread: AtomicUsize,
    /// In the place that it has in numbers.
    turn: u64,
    /// Files that an earlier server opened, by inode and number.
    inherited: RwLock<BTreeMap<(Ino, u64), Open>>,
}

impl Handles {
    /// An empty table of the server whose turn it is.
    pub(crate) fn new(turn: u32) -> Handles {
        let turn = (u64::from(turn) % TURNS) << TURN_SHIFT;
        Handles { turn, ..Handles::default() }
    }

    /// Keeps an open file and gives it a number.
    pub(crate) fn insert(&self, open: Open) -> u64 {
        // Relaxed: it only spreads the load, it orders nothing.
        let at = self.spread.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shards[at].write();
        let slot = match shard.vacant.pop() {
            Some(slot) => slot,
            None => {
                shard.slots.push(None);
                shard.slots.len() - 1
            }
        };
        shard.slots[slot] = Some(open);
        self.turn | (slot * SHARDS + at) as u64
    }

    /// The open file with this number, which is of `ino`.
    pub(crate) fn get(&self, (number, ino): OpenFile) -> Option<Open> {
        let Some((at, slot)) = self.place(number) else {
            return self.inherited.read().get(&(ino, number)).cloned();
        };
        let shard = self.shards[at].read();
        shard.slots.get(slot)?.as_ref().filter(|open| open.handle.ino() == ino).cloned()
    }

    /// Whether an earlier server gave this number.
    pub(crate) fn is_inherited(&self, number: u64) -> bool {
        self.place(number).is_none()
    }

    /// Keeps an open file under a number that an earlier server gave. Of several that open it at
    /// once the first one's stays.
    pub(crate) fn inherit(&self, number: u64, open: Open) -> Open {
        self.inherited.write().entry((open.handle.ino(), number)).or_insert(open).clone()
    }

    /// Whether anything is inherited of `ino`.
    pub(crate) fn has_inherited(&self, ino: Ino) -> bool {
        self.inherited.read().range((ino, 0)..=(ino, u64::MAX)).next().is_some()
    }

    /// Whether one of `ino` is open for writing; not at one moment.
    pub(crate) fn is_written(&self, ino: Ino) -> bool {
        let writes = |open: &Open| open.writes && open.handle.ino() == ino;
        let in_shards = self.shards.iter().any(|it| it.read().slots.iter().flatten().any(writes));
        in_shards || self.has_inherited(ino)
    }

    /// How many there are; not at one moment.
    pub(crate) fn len(&self) -> usize {
        let shards = self.shards.iter().map(|shard| {
            let shard = shard.read();
            shard.slots.len() - shard.vacant.len()
        });
        shards.sum::<usize>() + self.inherited.read().len()
    }

    /// Forgets the number; gives the handle back.
    pub(crate) fn remove(&self, (number, ino): OpenFile) -> Option<Arc<Handle>> {
        let Some((at, slot)) = self.place(number) else {
            return self.inherited.write().remove(&(ino, number)).map(|open| open.handle);
        };
        let mut shard = self.shards[at].write();
        let open = shard.slots.get_mut(slot)?.take_if(|open| open.handle.ino() == ino)?;
        shard.vacant.push(slot);
        Some(open.handle)
    }

    /// Forgets what is inherited of `ino`; gives the handles back.
    pub(crate) fn disinherit(&self, ino: Ino) -> Vec<Arc<Handle>> {
        if !self.has_inherited(ino) {
            return Vec::new();
        }
        let all = (ino, 0)..=(ino, u64::MAX);
        let mut inherited = self.inherited.write();
        let numbers: Vec<_> = inherited.range(all).map(|(number, _)| *number).collect();
        let gone = numbers.iter().filter_map(|number| inherited.remove(number));
        gone.map(|open| open.handle).collect()
    }

    /// Shard and slot; `None` for a number of another turn.
    fn place(&self, number: u64) -> Option<(usize, usize)> {
        let at = number ^ self.turn;
        (at >> TURN_SHIFT == 0).then_some((at as usize % SHARDS, at as usize / SHARDS))
    }
}
