//! fallocate(2): reserving, punching and zeroing ranges of a file, in steps that are each atomic.
//!
//! A step is one record: parts of blocks that become zero are written anew, whole blocks become
//! holes, and holes that are reserved get blocks (`reserve.rs`). The last step sets the size.

use crate::clock::now;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::item::{self, BlockRun};
use crate::leaf::{LEAF_BLOCKS, LEAF_INDEX_MAX};
use crate::leaves::{LEAF_UNITS, leaf_of};
use crate::request;
use crate::resize::Rewritten;
use crate::slot::{Freed, SlotChange, SlotView};
use crate::types::{FILE_BYTES_MAX, Fallocate, FileKind};
use pmem::InFlight;
use pool::{BLOCK_BYTES, Extent, KIND_CHANGE, RecordBuffer};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that one record of a punch covers at most: a GiB.
pub const PUNCH_BLOCKS_MAX: u64 = 1 << 18;
/// Blocks that one record reserves at most: 16 MiB.
pub const RESERVE_BLOCKS_MAX: u64 = 4096;
/// Leaves in which one record may reserve, in any pool.
const LEAVES_MIN: u64 = 4;

/// What is asked for.
#[derive(Clone, Copy)]
struct Asked {
    /// Where the range ends.
    end: u64,
    /// The file is to be so long, at least.
    size_min: u64,
    zeroes: bool,
    reserves: bool,
}

/// What one step changes.
struct Step {
    end: u64,
    /// Blocks that become holes.
    holes: Range<u64>,
    rewritten: Vec<Rewritten>,
    extents: Vec<Extent>,
    runs: Vec<BlockRun>,
    in_flight: InFlight,
}

impl Core {
    /// Reserves, punches or zeroes a range.
    pub fn fallocate(
        &self,
        inode: &Arc<Inode>,
        mode: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let end =
            offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Error::TooBig)?;
        match inode.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid("only a regular file holds data")),
        }
        if len == 0 {
            return Err(Error::Invalid("the range is empty"));
        }
        let (zeroes, keep_size, reserves) = match mode {
            Fallocate::Allocate { keep_size } => (false, keep_size, true),
            Fallocate::PunchHole => (true, true, false),
            Fallocate::Zero { keep_size } => (true, keep_size, true),
        };
        let size_min = if keep_size { 0 } else { end };
        let asked = Asked { end, size_min, zeroes, reserves };
        if reserves {
            self.check_room_for(inode, offset..end, zeroes)?;
        }
        match self.fallocate_steps(inode, asked, offset) {
            Err(Error::NoSpace) if zeroes && reserves => {
                // what becomes zero is given back first, and then reserved
                let zeroes = Asked { size_min: 0, reserves: false, ..asked };
                request::repeatable(|| self.fallocate_steps(inode, zeroes, offset))?;
                let reserves = Asked { zeroes: false, ..asked };
                self.fallocate_steps(inode, reserves, offset)
            }
            result => result,
        }
    }

    /// The bytes `offset..end` read as zeros, without a block where that can be, and the file is at
    /// least `size_min` bytes long.
    pub fn zero(&self, inode: &Arc<Inode>, offset: u64, end: u64, size_min: u64) -> Result<()> {
        let asked = Asked { end, size_min, zeroes: true, reserves: false };
        self.fallocate_steps(inode, asked, offset)
    }

    /// An error if the pool has fewer free blocks than it takes that all of these bytes have one of
    /// their own.
    fn check_room_for(&self, inode: &Inode, bytes: Range<u64>, zeroes: bool) -> Result<()> {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let room = self.blocks().1;
        // nobody looks through a range that no pool has room for
        let least =
            (blocks.end - blocks.start).saturating_sub(inode.blocks.load(Ordering::Relaxed));
        let mut wanted = 0;
        if least <= room {
            self.each_view(inode, blocks, &mut |_, view| {
                wanted += u64::from(view.lacks_a_block() || zeroes && view.shared);
            })?;
        }
        if wanted.max(least) > room { Err(pool::Error::NoSpace.into()) } else { Ok(()) }
    }

    /// Calls `each` with the slots of these blocks. The caller holds their range, or wants a guess.
    fn each_view(
        &self,
        inode: &Inode,
        blocks: Range<u64>,
        each: &mut dyn FnMut(u64, SlotView),
    ) -> Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            let end = blocks.end.min((block / LEAF_BLOCKS + 1) * LEAF_BLOCKS);
            // a leaf is asked for once: the tree is searched for one that is not there
            match self.leaf(inode, leaf_of(block).0)? {
                None => (block..end).for_each(|block| each(block, SlotView::default())),
                Some(_) => {
                    for block in block..end {
                        each(block, self.view_block(inode, block)?);
                    }
                }
            }
            block = end;
        }
        Ok(())
    }

    fn fallocate_steps(&self, inode: &Arc<Inode>, asked: Asked, offset: u64) -> Result<()> {
        let mut at = offset;
        loop {
            let to = asked.end.min((at / BLOCK_BYTES + self.blocks_max(asked)) * BLOCK_BYTES);
            // a punch goes on to where there is something to zero, be it behind the file's end
            let next = match to < asked.end && !asked.reserves {
                true => self.first_leaf(inode, to / BLOCK_BYTES / LEAF_BLOCKS)?,
                false => 0,
            };
            let nothing = next > LEAF_INDEX_MAX && to >= inode.size.load(Ordering::Acquire);
            let last = to == asked.end || nothing;
            let step = || self.change(|| self.fallocate_step(inode, asked, at..to, last));
            let done = if last { step()? } else { request::repeatable(step)? };
            if last && done == to {
                return Ok(());
            }
            at = done.max((next * LEAF_BLOCKS * BLOCK_BYTES).min(asked.end - 1));
        }
    }

    fn blocks_max(&self, asked: Asked) -> u64 {
        if !asked.reserves {
            return PUNCH_BLOCKS_MAX;
        }
        let leaves = self.record_units() / LEAF_UNITS;
        (leaves.max(LEAVES_MIN) * LEAF_BLOCKS).min(RESERVE_BLOCKS_MAX)
    }

    /// Makes one step, which may end before `bytes` do; gives where. The caller is inside the gate.
    fn fallocate_step(
        &self,
        inode: &Arc<Inode>,
        asked: Asked,
        bytes: Range<u64>,
        last: bool,
    ) -> Result<u64> {
        let grows_maybe = last && asked.size_min > 0;
        let lock_end = if grows_maybe { u64::MAX } else { (bytes.end - 1) / BLOCK_BYTES };
        let _range = inode.ranges.lock(bytes.start / BLOCK_BYTES, lock_end);
        self.may_change(inode, bytes.start / BLOCK_BYTES, lock_end)?;
        let (size, time) = (inode.size.load(Ordering::Acquire), now());
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        let mut step = Step::to(bytes.end);
        let planned = self.plan_step(inode, asked, (bytes.clone(), size), &mut step, &mut record);
        let ends = last && step.end == bytes.end;
        let grows = ends && asked.size_min > size;
        if grows {
            item::push_truncate(&mut record, inode.ino, asked.size_min);
        }
        let (mut freed, mut published) = (Freed::default(), Ok(()));
        let in_flight = std::mem::replace(&mut step.in_flight, InFlight::none());
        let log = || {
            if record.payload_len() == 0 {
                // all of it is as it is to be
                return Ok(());
            }
            self.log_after(&mut record, &[inode], in_flight, || {
                published = self.publish_step(inode, &step, &mut freed, || {
                    if grows {
                        inode.size.store(asked.size_min, Ordering::Release);
                    }
                });
                inode.touch(time);
                self.mark_dirty(inode);
            })
        };
        let logged = planned.and_then(|()| if ends { log() } else { request::repeatable(log) });
        if let Err(error) = logged {
            self.pool.reclaim().give_extents(&mut step.extents);
            step.rewritten.iter().for_each(|r| self.pool.reclaim().give_one(r.placed.addr));
            return Err(error);
        }
        self.retire(&freed);
        // what is reserved reads as before
        let told =
            if asked.zeroes { bytes } else { size..if grows { asked.size_min } else { size } };
        inode.tell_changed(told.start, told.end - told.start);
        self.published(published).map(|()| step.end)
    }

    /// Takes the blocks that the step needs, writes what is written anew, and describes it all.
    fn plan_step(
        &self,
        inode: &Inode,
        asked: Asked,
        (bytes, size): (Range<u64>, u64),
        step: &mut Step,
        record: &mut RecordBuffer,
    ) -> Result<()> {
        let mut zeroed = Zeroed::default();
        if asked.zeroes {
            zeroed = self.zeroed(inode, bytes.start..step.end, size)?;
        }
        if asked.reserves {
            self.settle_patches(inode, bytes.start, &zeroed, (step, record))?;
            self.take_for_holes(inode, bytes.start, &zeroed.holes, step)?;
        }
        if asked.zeroes && step.end < bytes.end {
            zeroed = self.zeroed(inode, bytes.start..step.end, size)?;
        }
        for (block, from, to) in &zeroed.edges {
            let (done, written) = self.zero_part(inode, *block, *from, *to, record, 0)?;
            step.flies(written);
            step.rewritten.extend(done);
        }
        if !zeroed.holes.is_empty() {
            let count = zeroed.holes.end - zeroed.holes.start;
            item::push_punch(record, inode.ino, zeroed.holes.start, count);
            step.holes = zeroed.holes;
        }
        if !step.runs.is_empty() {
            item::push_reserve(record, inode.ino, &step.runs);
        }
        Ok(())
    }

    /// What zeroing these bytes of a file of `size` means for its blocks.
    fn zeroed(&self, inode: &Inode, bytes: Range<u64>, size: u64) -> Result<Zeroed> {
        let mut zeroed = Zeroed::of(bytes.start, bytes.end.min(size).max(bytes.start), size);
        let behind = zeroed.holes.end..bytes.end / BLOCK_BYTES;
        if bytes.end > size && self.reserves_any(inode, behind.clone())? {
            zeroed.holes.end = behind.end;
        }
        Ok(zeroed)
    }

    /// Takes effect in DRAM, all of it at once for readers; `finish` runs while they wait.
    fn publish_step(
        &self,
        inode: &Arc<Inode>,
        step: &Step,
        freed: &mut Freed,
        finish: impl FnOnce(),
    ) -> Result<()> {
        let place = |rewritten: &Rewritten| [SlotChange::Place(rewritten.placed)];
        let placed: Vec<_> = step.rewritten.iter().map(place).collect();
        let reserved = self.reserved_by(inode, &step.runs);
        let mut parts = self.clears(inode, step.holes.clone())?;
        for (rewritten, change) in step.rewritten.iter().zip(&placed) {
            parts.push((rewritten.block, change));
        }
        for (run, changes) in step.runs.iter().zip(&reserved) {
            parts.push((run.block, changes));
        }
        self.publish_parts(inode, &parts, freed, finish)
    }

    /// Writes blocks anew that are nothing but patches over a hole, and of which nothing becomes
    /// zero: none can be reserved below.
    fn settle_patches(
        &self,
        inode: &Inode,
        offset: u64,
        zeroed: &Zeroed,
        (step, record): (&mut Step, &mut RecordBuffer),
    ) -> Result<()> {
        let mut patched = Vec::new();
        let blocks = offset / BLOCK_BYTES..step.end.div_ceil(BLOCK_BYTES);
        self.each_view(inode, blocks, &mut |block, view| {
            if view.lacks_a_block() && view.patches.is_some() && !zeroed.concerns(block) {
                patched.push(block);
            }
        })?;
        for block in patched {
            if record.payload_len() > self.payload_max / 4 {
                // the others are the next record's
                step.end = block * BLOCK_BYTES;
                break;
            }
            let (rewritten, written) = self.zero_part(inode, block, 0, 0, record, 0)?;
            step.flies(written);
            step.rewritten.extend(rewritten);
        }
        Ok(())
    }

    /// Takes blocks for what is a hole then, as far as a record can name them.
    fn take_for_holes(
        &self,
        inode: &Inode,
        offset: u64,
        zeroed: &Range<u64>,
        step: &mut Step,
    ) -> Result<()> {
        let mut holes = Vec::new();
        let blocks = offset / BLOCK_BYTES..step.end.div_ceil(BLOCK_BYTES);
        self.each_view(inode, blocks, &mut |block, view| {
            if zeroed.contains(&block) || view.lacks_a_block() && view.patches.is_none() {
                holes.push(block);
            }
        })?;
        let addrs = self.take_for_reserve(inode, &holes, &mut step.extents)?;
        let (runs, left) = self.runs_of(&holes, &addrs);
        step.runs = runs;
        if let Some(left) = left {
            addrs[left..].iter().for_each(|addr| self.pool.reclaim().give_one(*addr));
            let extent = |run: &BlockRun| Extent { addr: run.addr, count: run.blocks };
            step.extents = step.runs.iter().map(extent).collect();
            step.end = holes[left] * BLOCK_BYTES;
        }
        Ok(())
    }
}

impl Step {
    fn to(end: u64) -> Step {
        Step {
            end,
            holes: 0..0,
            rewritten: Vec::new(),
            extents: Vec::new(),
            runs: Vec::new(),
            in_flight: InFlight::none(),
        }
    }

    /// More is on its way that the record's fence is to cover.
    fn flies(&mut self, written: InFlight) {
        let before = std::mem::replace(&mut self.in_flight, InFlight::none());
        self.in_flight = before.and(written);
    }
}

/// What zeroing a range means for the blocks in it.
#[derive(Default)]
struct Zeroed {
    /// Blocks that become holes.
    holes: Range<u64>,
    /// Parts of blocks: block, from, to.
    edges: Vec<(u64, usize, usize)>,
}

impl Zeroed {
    fn concerns(&self, block: u64) -> bool {
        self.holes.contains(&block) || self.edges.iter().any(|edge| edge.0 == block)
    }

    /// The bytes `from..to` of a file of `size`; `to` is not behind its end.
    fn of(from: u64, to: u64, size: u64) -> Zeroed {
        let first = from.div_ceil(BLOCK_BYTES);
        // what lies behind the end is zero already: the last block goes as a whole
        let end = if to == size { to.div_ceil(BLOCK_BYTES) } else { to / BLOCK_BYTES };
        let (head, tail) = ((from % BLOCK_BYTES) as usize, (to % BLOCK_BYTES) as usize);
        let (head_block, tail_block) = (from / BLOCK_BYTES, to / BLOCK_BYTES);
        let mut edges = Vec::new();
        if head != 0 && head_block == tail_block {
            edges.push((head_block, head, tail));
        } else {
            if head != 0 {
                edges.push((head_block, head, BLOCK));
            }
            if tail != 0 && end == tail_block {
                edges.push((tail_block, 0, tail));
            }
        }
        edges.retain(|(_, from, to)| from < to);
        Zeroed { holes: first..end.max(first), edges }
    }
}
