//! Writing back: blocks that nobody wants soon move from the slices to the capacity tier.
//! How they move is said in `moves.rs`.
//!
//! Who is cold: leaves with blocks in slices are in a line, those that changed longest ago first. A
//! block that was written or read since its leaf came by last is let off once (a clock).

use crate::core::Core;
use crate::error::Result;
use crate::keys;
use crate::leaf::LEAF_INDEX_MAX;
use crate::leaf_value;
use crate::pace::Pace;
use crate::types::Ino;
use crate::writer::Signals;
use parking_lot::Mutex;
use pool::Pool;
use pool::tree::Key;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Blocks that are written together.
pub const BATCH_BLOCKS: usize = 256;
/// Leaves that are looked at before what was found in them is written.
const BATCH_LEAVES: usize = 4096;

/// What the slices hold, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct SliceRoom {
    /// All of them.
    pub blocks: u64,
    /// Free ones.
    pub free: u64,
    /// Copies of blocks of the tier.
    pub copies: u64,
}

impl SliceRoom {
    /// Those that are neither.
    pub fn used(&self) -> u64 {
        self.blocks.saturating_sub(self.free + self.copies)
    }
}

/// A leaf of a file.
type Place = (Ino, u64);

/// Leaves that may have blocks in slices: each once, the longest unchanged first.
#[derive(Debug, Default)]
struct Line {
    leaves: VecDeque<Place>,
    listed: HashSet<Place>,
    /// All that the trees had at open is in it.
    is_filled: bool,
}

/// What is to be written back, and who waits for it.
#[derive(Debug)]
pub struct WriteBack {
    /// The share of the slices' blocks, in percent, above which blocks are written back.
    percent: u64,
    /// How fast blocks may be taken meanwhile.
    pub pace: Pace,
    line: Mutex<Line>,
    /// One fills it.
    filling: Mutex<()>,
    /// What its thread and those who wait for it tell each other.
    pub signals: Signals,
    /// Blocks that were written back, since open.
    pub blocks: AtomicU64,
}

impl WriteBack {
    /// Nothing yet, in this pool.
    pub fn of(pool: &Pool) -> WriteBack {
        WriteBack {
            percent: pool.options().write_back_percent().into(),
            pace: Pace::default(),
            line: Mutex::default(),
            filling: Mutex::default(),
            signals: Signals::default(),
            blocks: AtomicU64::new(0),
        }
    }

    /// The share of the slices' blocks, in percent, above which blocks are written back.
    pub fn percent(&self) -> u64 {
        self.percent
    }

    /// A leaf changed.
    pub fn list(&self, ino: Ino, index: u64) {
        let mut line = self.line.lock();
        if line.listed.insert((ino, index)) {
            line.leaves.push_back((ino, index));
        }
    }

    fn next(&self) -> Option<Place> {
        let mut line = self.line.lock();
        let place = line.leaves.pop_front()?;
        line.listed.remove(&place);
        Some(place)
    }

    fn len(&self) -> usize {
        self.line.lock().leaves.len()
    }
}

impl Core {
    /// Whether more of the slices is in use, and not only on the tier's behalf, than is to be.
    pub fn is_dirty(&self) -> bool {
        let room = self.slice_room();
        room.used() * 100 > room.blocks * self.write_back.percent
    }

    /// What the slices hold.
    pub fn slice_room(&self) -> SliceRoom {
        let (blocks, free) = self.pool.slice_blocks();
        let copies = self.tier.as_ref().map_or(0, tier::Tier::copies);
        SliceRoom { blocks, free: free.min(blocks), copies: copies.min(blocks) }
    }

    /// Blocks in all, and those that files can have, over all slices and devices.
    pub fn blocks(&self) -> (u64, u64) {
        let (all, free) = self.pool.blocks();
        (all, free + self.slice_room().copies)
    }

    /// Moves at least `want` blocks to the tier, if there are as many that can be moved and the
    /// tier has room; gives how many it moved.
    pub fn write_back(&self, want: u64) -> Result<u64> {
        let Some(tier) = &self.tier else { return Ok(0) };
        self.pool.check_writable()?;
        self.fill_line()?;
        let mut moved = 0;
        let mut begun = Instant::now();
        // the second time round those that were let off are cold
        let mut left = 2 * self.write_back.len();
        while moved < want && left > 0 {
            let (mut batch, mut count) = (Vec::new(), 0);
            let mut data = Vec::new();
            while count < BATCH_BLOCKS && batch.len() < BATCH_LEAVES && left > 0 {
                let Some((ino, index)) = self.write_back.next() else { break };
                left -= 1;
                let (before, found) = (data.len(), self.cold_blocks(ino, index, &mut data));
                let cold = match found {
                    Ok(Some(cold)) => cold,
                    Ok(None) => continue,
                    Err(error) => {
                        // others can be moved for all that
                        tracing::warn!("looking for blocks to write back: {error}");
                        data.truncate(before);
                        continue;
                    }
                };
                count += cold.blocks.len();
                batch.push(cold);
            }
            if batch.is_empty() {
                break;
            }
            let result = self.move_batch(tier, &batch, &data);
            // there are more in these leaves, or not all may have been moved
            batch.iter().for_each(|cold| self.write_back.list(cold.inode.ino, cold.index));
            let done = result?;
            if done == 0 && self.pool.devices().iter().all(|it| it.space.free() == 0) {
                break;
            }
            moved += done;
            let ended = Instant::now();
            if done > 0 {
                self.write_back.pace.wrote_back(done, ended - begun);
            }
            begun = ended;
            self.write_back.blocks.fetch_add(done, Ordering::Relaxed);
        }
        Ok(moved)
    }

    /// Lists all leaves that the trees have with blocks in slices, once after open.
    fn fill_line(&self) -> Result<()> {
        let _one = self.write_back.filling.lock();
        if self.write_back.line.lock().is_filled {
            return Ok(());
        }
        for slice in 0..self.pool.slices().len() as u8 {
            self.pool.scan(slice, Key::MIN, Key::MAX, &mut |key, value| {
                if key.object != 0 && key.kind == keys::MAP && key.index <= LEAF_INDEX_MAX {
                    let named = leaf_value::decode(value).unwrap_or_default();
                    if named.iter().any(|named| named.placed.addr.device().is_none()) {
                        self.write_back.list(Ino(key.object), key.index);
                    }
                }
                true
            })?;
        }
        self.write_back.line.lock().is_filled = true;
        Ok(())
    }
}
