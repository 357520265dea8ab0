//! Writing back: blocks that nobody wants soon move from the slices to the capacity tier.
//! How they move is said in `moves.rs`.
//!
//! Each slice is written back for itself: it has a line of leaves (`lines.rs`), a share of its
//! blocks that may be in use, a pace for those who take some, and two threads on its node
//! (`writer.rs`). A block that was written or read since its leaf came by last is let off once (a
//! clock).

use crate::cold::ColdLeaf;
use crate::core::Core;
use crate::error::Result;
use crate::keys;
use crate::leaf::LEAF_INDEX_MAX;
use crate::leaf_value;
use crate::lines::{Line, Place, Queue};
use crate::pace::Pace;
use crate::types::Ino;
use crate::writer::Signals;
use parking_lot::Mutex;
use pool::Pool;
use pool::tree::Key;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use tier::{BlockList, Tier};

/// Blocks that are written together.
pub const BATCH_BLOCKS: usize = 256;
/// Leaves that are looked at before what was found in them is written.
const BATCH_LEAVES: usize = 4096;

/// What slices hold, in blocks.
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
    fn new((blocks, free): (u64, u64), copies: u64) -> SliceRoom {
        SliceRoom { blocks, free: free.min(blocks), copies: copies.min(blocks) }
    }

    /// Those that are neither.
    pub fn used(&self) -> u64 {
        self.blocks.saturating_sub(self.free + self.copies)
    }

    /// Whether they are more than this share of all, in percent.
    pub fn is_above(&self, percent: u64) -> bool {
        self.used() * 100 > self.blocks * percent
    }
}

/// What is to be written back of one slice.
#[derive(Debug, Default)]
pub struct SliceWriteBack {
    /// Leaves with blocks there.
    pub line: Line,
    /// How fast its blocks may be taken meanwhile.
    pub pace: Pace,
    /// Memory for what is written, of a batch each.
    room: Mutex<Vec<BlockList>>,
}

/// Batches of a slice whose memory is kept: those of its threads.
const ROOMS_MAX: usize = 2;

impl SliceWriteBack {
    /// The memory of a batch that is done.
    fn put_room(&self, data: BlockList) {
        let mut room = self.room.lock();
        if room.len() < ROOMS_MAX {
            room.push(data);
        }
    }
}

/// What is to be written back, and who waits for it.
#[derive(Debug)]
pub struct WriteBack {
    /// The share of a slice's blocks, in percent, above which some are written back.
    percent: u64,
    /// By slice.
    pub slices: Box<[SliceWriteBack]>,
    /// Leaves that changed, and are not in the lines yet.
    changed: Mutex<Queue>,
    /// One deals them. Whether all that the trees had at open is dealt.
    dealing: Mutex<bool>,
    /// Slices whose blocks are to be counted when they are taken.
    pub paced: AtomicUsize,
    /// What the threads and those who wait for them tell each other.
    pub signals: Signals,
    /// Blocks that were written back, since open.
    pub blocks: AtomicU64,
    /// How often a change found no room at all, and waited for some.
    pub waits: AtomicU64,
    /// Whose turn it is among the devices.
    pub turn: AtomicUsize,
}

impl WriteBack {
    /// Nothing yet, in this pool.
    pub fn of(pool: &Pool) -> WriteBack {
        let slices = pool.slices().len();
        WriteBack {
            percent: pool.options().write_back_percent().into(),
            slices: (0..slices).map(|_| SliceWriteBack::default()).collect(),
            changed: Mutex::default(),
            dealing: Mutex::default(),
            paced: AtomicUsize::new(0),
            signals: Signals::new(slices),
            blocks: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
        }
    }

    /// The share of a slice's blocks, in percent, above which some are written back.
    pub fn percent(&self) -> u64 {
        self.percent
    }

    /// A leaf changed.
    pub fn list(&self, ino: Ino, index: u64) {
        self.changed.lock().add((ino, index));
    }

    /// A leaf may have blocks in this slice.
    fn deal_to(&self, slice: u8, place: Place) {
        if let Some(slice) = self.slices.get(usize::from(slice)) {
            slice.line.list(place);
        }
    }

    /// Whether nothing that is known could be moved, by anybody.
    pub fn is_idle(&self) -> bool {
        let changed = self.changed.lock();
        changed.end() == changed.taken() && self.slices.iter().all(|slice| slice.line.is_idle())
    }

    /// Whether somebody writes back just now; waits for some of it, but not long.
    pub fn is_busy(&self) -> bool {
        self.slices.iter().any(|slice| slice.line.is_busy())
    }

    /// Waits for what is being written back just now. The caller holds nothing.
    pub fn wait(&self) {
        self.slices.iter().for_each(|slice| slice.line.wait());
    }
}

impl Core {
    /// Whether more of a slice is in use, and not only on the tier's behalf, than is to be.
    pub fn is_dirty(&self, slice: usize) -> bool {
        self.room_in(slice).is_above(self.write_back.percent)
    }

    /// What the slices hold.
    pub fn slice_room(&self) -> SliceRoom {
        SliceRoom::new(self.pool.slice_blocks(), self.tier.as_ref().map_or(0, Tier::copies))
    }

    /// What one of them holds.
    pub fn room_in(&self, slice: usize) -> SliceRoom {
        let copies = self.tier.as_ref().map_or(0, |tier| tier.copies_in(slice));
        SliceRoom::new(self.pool.blocks_in(slice), copies)
    }

    /// Blocks in all, and those that files can have, over all slices and devices. Where the slices
    /// are full of what stays there, nobody comes to what is free on the devices.
    pub fn blocks(&self) -> (u64, u64) {
        let (all, mut free) = self.pool.blocks();
        if self.tier.is_some() && !self.pool.has_room() && self.write_back.is_idle() {
            free = self.pool.slice_blocks().1;
        }
        (all, free + self.slice_room().copies)
    }

    /// Moves at least `want` blocks of any slices to the tier, if there are as many that can be
    /// moved and the tier has room; gives how many it moved.
    pub fn write_back(&self, want: u64) -> Result<u64> {
        let mut moved = 0;
        for slice in 0..self.write_back.slices.len() {
            if moved < want {
                moved += self.write_back_of(slice, want - moved)?;
            }
        }
        Ok(moved)
    }

    /// The same with blocks of one slice.
    pub fn write_back_of(&self, slice: usize, want: u64) -> Result<u64> {
        let Some(tier) = &self.tier else { return Ok(0) };
        self.pool.check_writable()?;
        let line = &self.write_back.slices[slice].line;
        let mut moved = 0;
        // the second time round those that were let off are cold
        for _ in 0..2 {
            self.deal_until(|| !line.is_empty())?;
            let end = line.end();
            while moved < want {
                match self.write_batch(tier, slice, end)? {
                    Some(0) if self.is_full_below() => return Ok(moved),
                    Some(done) => moved += done,
                    None => break,
                }
                self.deal()?;
            }
        }
        Ok(moved)
    }

    /// Whether the tier has no room.
    pub fn is_full_below(&self) -> bool {
        self.pool.devices().iter().all(|it| it.space.free() == 0)
    }

    /// Writes some blocks of a slice back that are in leaves before this end of its line; gives how
    /// many. `None`: there are no such leaves.
    pub fn write_batch(&self, tier: &Tier, slice: usize, end: u64) -> Result<Option<u64>> {
        let own = &self.write_back.slices[slice];
        let begun = Instant::now();
        let mut batch = own.line.begin();
        let mut data = own.room.lock().pop().unwrap_or_default();
        data.truncate(0);
        let (mut found, mut count) = (Vec::new(), 0);
        let (mut has_failed, mut copied) = (false, HashSet::new());
        // leaves without blocks are not counted: where none is found, none is there
        while found.len() < BATCH_LEAVES && count < BATCH_BLOCKS {
            let Some(place) = batch.take(end) else { break };
            let before = data.len();
            match self.cold_blocks(place, slice as u8, batch.takes_all, &copied, &mut data) {
                Ok(Some(cold)) => {
                    count += cold.blocks.len();
                    copied.extend(cold.shared());
                    found.push(cold);
                }
                Ok(None) => batch.forget_last(),
                Err(error) => {
                    // others can be moved for all that, and this one may be later
                    tracing::warn!("looking for blocks to write back: {error}");
                    data.truncate(before);
                    has_failed = true;
                }
            }
        }
        if found.is_empty() {
            own.put_room(data);
            if !has_failed {
                batch.end_whole();
            }
            return Ok(None);
        }
        let wanted: usize = found.iter().map(ColdLeaf::len).sum();
        let is_all = !has_failed && (!batch.takes_all || found.iter().all(|cold| !cold.more));
        let done = self.move_batch(tier, &found, data.bytes());
        own.put_room(data);
        let done = done?;
        if done == wanted as u64 && is_all {
            batch.end_whole();
        }
        if done > 0 {
            own.pace.wrote_back(done, begun);
            self.write_back.blocks.fetch_add(done, Ordering::Relaxed);
        }
        Ok(Some(done))
    }

    /// Deals all leaves that have changed so far.
    pub fn deal_all(&self) -> Result<()> {
        self.deal_until(|| false)
    }

    /// The same until it is enough.
    fn deal_until(&self, is_enough: impl Fn() -> bool) -> Result<()> {
        let end = self.write_back.changed.lock().end();
        loop {
            let mut is_filled = self.write_back.dealing.lock();
            self.deal_some(&mut is_filled)?;
            // who deals is the only one: those that were taken are dealt
            if is_enough() || self.write_back.changed.lock().taken() >= end {
                return Ok(());
            }
        }
    }

    /// Deals some.
    fn deal(&self) -> Result<()> {
        self.deal_some(&mut self.write_back.dealing.lock())
    }

    /// Deals some of the leaves that changed to the lines of the slices where they have blocks;
    /// after open first of all those that the trees have.
    fn deal_some(&self, is_filled: &mut bool) -> Result<()> {
        if !*is_filled {
            self.fill_lines()?;
            *is_filled = true;
        }
        let mut places = Vec::new();
        let mut changed = self.write_back.changed.lock();
        while places.len() < BATCH_LEAVES
            && let Some(place) = changed.take()
        {
            places.push(place);
        }
        drop(changed);
        for place in places {
            if let Err(error) = self.deal_leaf(place) {
                // others can be moved for all that
                tracing::warn!("looking for blocks to write back: {error}");
            }
        }
        Ok(())
    }

    /// Deals a leaf to the lines of the slices where it has blocks.
    fn deal_leaf(&self, (ino, index): Place) -> Result<()> {
        let Some(inode) = self.inode_to_cool(ino)? else { return Ok(()) };
        loop {
            let Some(leaf) = self.leaf(&inode, index)? else { return Ok(()) };
            // one that is dead has got another one in its place, or none
            let Some(lock) = leaf.lock() else { continue };
            leaf.unlist();
            drop(lock);
            let mut last = None;
            for slice in leaf.slices() {
                if last.replace(slice) != Some(slice) {
                    self.write_back.deal_to(slice, (ino, index));
                }
            }
            return Ok(());
        }
    }

    fn fill_lines(&self) -> Result<()> {
        for slice in 0..self.pool.slices().len() as u8 {
            self.pool.scan(slice, Key::MIN, Key::MAX, &mut |key, value| {
                if key.object != 0 && key.kind == keys::MAP && key.index <= LEAF_INDEX_MAX {
                    for named in leaf_value::decode(value).unwrap_or_default() {
                        if named.placed.addr.device().is_none() {
                            let place = (Ino(key.object), key.index);
                            self.write_back.deal_to(named.placed.addr.slice(), place);
                        }
                    }
                }
                true
            })?;
        }
        Ok(())
    }
}
