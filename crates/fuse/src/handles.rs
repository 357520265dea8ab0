//! Open files of the mount: the kernel's file handle numbers and the engine's handles.
//!
//! A number is used again after its file is released, never before; the kernel sends nothing
//! for a handle after its release.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nearside::files::Handle;
use parking_lot::RwLock;

/// Parts of the table with a lock each, so that opens on different CPUs seldom meet.
const SHARDS: usize = 16;

#[derive(Default)]
struct Shard {
    slots: Vec<Option<Arc<Handle>>>,
    vacant: Vec<usize>,
}

/// The open files.
#[derive(Default)]
pub(crate) struct Handles {
    shards: [RwLock<Shard>; SHARDS],
    turn: AtomicUsize,
}

impl Handles {
    /// Keeps `handle` and gives it a number.
    pub(crate) fn insert(&self, handle: Arc<Handle>) -> u64 {
        // Relaxed: the turn only spreads the load, it orders nothing.
        let at = self.turn.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shards[at].write();
        let slot = match shard.vacant.pop() {
            Some(slot) => slot,
            None => {
                shard.slots.push(None);
                shard.slots.len() - 1
            }
        };
        shard.slots[slot] = Some(handle);
        (slot * SHARDS + at) as u64
    }

    /// The handle with this number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Handle>> {
        let (at, slot) = place(number);
        self.shards[at].read().slots.get(slot)?.clone()
    }

    /// Forgets the number; gives the handle back.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Handle>> {
        let (at, slot) = place(number);
        let mut shard = self.shards[at].write();
        let handle = shard.slots.get_mut(slot)?.take()?;
        shard.vacant.push(slot);
        Some(handle)
    }
}

fn place(number: u64) -> (usize, usize) {
    let number = number as usize;
    (number % SHARDS, number / SHARDS)
}
