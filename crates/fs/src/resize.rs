//! Truncating, extending, punching and asking where the holes are.

use crate::core::{Core, now};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::item::{self, Placed};
use crate::keys;
use crate::leaf::LEAF_BLOCKS;
use crate::leaves::leaf_of;
use crate::request;
use crate::slot::{Freed, SlotChange};
use crate::types::{FILE_BYTES_MAX, Fallocate, FileKind};
use pmem::InFlight;
use pool::{BLOCK_BYTES, KIND_CHANGE, RecordBuffer};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that one record of a punch covers at most: a GiB.
const PUNCH_BLOCKS_MAX: u64 = 1 << 18;

/// A block written anew because a part of it became zero.
struct Rewritten {
    block: u64,
    placed: Placed,
}

/// What zeroing a range means for the blocks in it.
struct Zeroed {
    /// First block that becomes a hole, and how many do.
    first: u64,
    blocks: u64,
    /// Parts of blocks: block, from, to.
    edges: Vec<(u64, usize, usize)>,
    rewritten: Vec<Rewritten>,
    in_flight: InFlight,
}

impl Zeroed {
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
        let blocks = end.saturating_sub(first);
        let (rewritten, in_flight) = (Vec::new(), InFlight::none());
        Zeroed { first, blocks, edges, rewritten, in_flight }
    }
}

impl Core {
    /// The file ends at `size` from now on. The caller is inside the gate and holds all ranges;
    /// `more` adds items to the record and publishes with it.
    pub fn truncate(
        &self,
        inode: &Arc<Inode>,
        size: u64,
        record: &mut RecordBuffer,
        more: impl FnOnce(),
    ) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::TooBig);
        }
        let old = inode.size.load(Ordering::Acquire);
        item::push_truncate(record, inode.ino, size);
        let tail = (size % BLOCK_BYTES) as usize;
        // bytes behind the end of a file are zeros, so that it can be extended by its size alone
        let (rewritten, in_flight) = if size < old && tail != 0 {
            self.zero_part(inode, size / BLOCK_BYTES, tail, BLOCK, record, size)?
        } else {
            (None, InFlight::none())
        };
        let mut freed = Freed::default();
        let mut published = Ok(());
        let logged = self.log_after(record, &[inode], in_flight, || {
            published =
                self.cut_off(inode, old, size, &mut freed).and_then(|()| match &rewritten {
                    Some(r) => {
                        let change = [SlotChange::Place(r.placed)];
                        self.publish(inode, r.block, &change, &mut freed, || {})
                    }
                    None => Ok(()),
                });
            self.mark_dirty(inode);
            more();
        });
        if let Err(error) = logged {
            self.give_rewritten(rewritten);
            return Err(error);
        }
        self.retire(&freed);
        self.published(published)
    }

    fn give_rewritten(&self, rewritten: Option<Rewritten>) {
        if let Some(rewritten) = rewritten {
            self.pool.reclaim().give_one(rewritten.placed.addr);
        }
    }

    /// Writes `block` anew with zeros from `from` to `to`; nothing if it is a hole.
    fn zero_part(
        &self,
        inode: &Inode,
        block: u64,
        from: usize,
        to: usize,
        record: &mut RecordBuffer,
        end: u64,
    ) -> Result<(Option<Rewritten>, InFlight)> {
        let view = self.view_block(inode, block)?;
        if view.addr.is_none() && view.patches.is_none() {
            return Ok((None, InFlight::none()));
        }
        let mut bytes = [0u8; BLOCK];
        self.copy_block(inode, block, &view, 0, &mut bytes)?;
        bytes[from..to].fill(0);
        let addr = self.pool.reclaim().allocate_reserve(self.pool.near_slice())?;
        let (in_flight, crc) = self.pool.write_block(addr, &bytes);
        let placed = Placed { addr, crc };
        item::push_write(record, inode.ino, block, &[placed], end);
        Ok((Some(Rewritten { block, placed }), in_flight))
    }

    /// Takes effect in DRAM: the file of `old` bytes has `size` now, the blocks behind are freed.
    pub fn cut_off(
        &self,
        inode: &Arc<Inode>,
        old: u64,
        size: u64,
        freed: &mut Freed,
    ) -> Result<()> {
        let block_end = size.div_ceil(BLOCK_BYTES);
        if size >= old && block_end >= old.div_ceil(BLOCK_BYTES) {
            inode.size.store(size, Ordering::Release);
            return Ok(());
        }
        let (index, slot) = leaf_of(block_end);
        // the size first: a reader that sees the holes sees the size, too
        inode.size.store(size, Ordering::Release);
        let first_whole = if slot == 0 { index } else { index + 1 };
        if slot != 0 && self.leaf(inode, index)?.is_some() {
            let clears: Vec<SlotChange<'_>> =
                (slot..LEAF_BLOCKS as usize).map(|_| SlotChange::Clear).collect();
            self.publish(inode, block_end, &clears, freed, || {})?;
        }
        self.drop_leaves(inode, first_whole, freed)
    }

    /// Drops all leaves from `first` on, those in the tree included.
    fn drop_leaves(&self, inode: &Arc<Inode>, first: u64, freed: &mut Freed) -> Result<()> {
        let _loading = inode.map.loading.lock();
        let (mut cached, mut blocks) = (BTreeSet::new(), 0);
        inode.map.for_each(first, &mut |index, leaf| {
            cached.insert(index);
            blocks += leaf.blocks().len() as u64;
        });
        let before = freed.len();
        if inode.blocks.load(Ordering::Relaxed) > blocks {
            self.stored_blocks(inode, first, &cached, freed)?;
        }
        for index in cached {
            let Some(leaf) = inode.map.take(index) else { continue };
            if let Some(lock) = leaf.lock() {
                freed.extend(leaf.blocks());
                lock.kill();
            }
        }
        // most files that go have no block
        let gone = (freed.len() - before) as u64;
        if gone > 0 {
            inode.blocks.fetch_sub(gone, Ordering::Relaxed);
        }
        inode.map.tree_end.fetch_min(first, Ordering::Relaxed);
        inode.void_from.fetch_min(first, Ordering::Relaxed);
        Ok(())
    }

    /// Blocks of leaves that are in the tree and not in `cached`. Those of a leaf that makes no
    /// sense stay taken, so that nobody writes where it points; the file itself can go.
    fn stored_blocks(
        &self,
        inode: &Inode,
        first: u64,
        cached: &BTreeSet<u64>,
        blocks: &mut Freed,
    ) -> Result<()> {
        if !inode.map.in_tree(first) {
            return Ok(());
        }
        let (from, to) = keys::from_index(inode.ino, keys::MAP, first);
        self.pool.scan(keys::home(inode.ino), from, to, &mut |key, value| {
            if inode.map.in_tree(key.index) && !cached.contains(&key.index) {
                let named = crate::leaf_value::decode(value).unwrap_or_default();
                let fine = named.iter().all(|named| self.pool.contains(named.placed.addr));
                if !named.is_empty() && fine {
                    named.iter().for_each(|named| blocks.push(named.placed.addr, named.shared));
                } else {
                    let damage = crate::core::damaged_value(&key);
                    self.pool.note(format!("{damage}; its blocks stay taken"));
                }
            }
            true
        })?;
        Ok(())
    }

    /// The inode and all its data are gone.
    pub fn drop_data(&self, inode: &Arc<Inode>, freed: &mut Freed) -> Result<()> {
        inode.size.store(0, Ordering::Release);
        self.drop_leaves(inode, 0, freed)
    }

    /// Reserves, punches or zeroes a range. Of a reservation only the size is made, and only where
    /// there is room for it: space is taken when it is written.
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
        match mode {
            Fallocate::Allocate { keep_size } => {
                self.check_room_for(inode, offset, end)?;
                if keep_size { Ok(()) } else { self.extend(inode, end) }
            }
            Fallocate::PunchHole | Fallocate::Zero { keep_size: true } => {
                self.zero(inode, offset, end, 0)
            }
            Fallocate::Zero { keep_size: false } => self.zero(inode, offset, end, end),
        }
    }

    /// An error if the pool has less free than the file lacks for sure in this range.
    fn check_room_for(&self, inode: &Inode, offset: u64, end: u64) -> Result<()> {
        let wanted = end.div_ceil(BLOCK_BYTES) - offset / BLOCK_BYTES;
        let lacking = wanted.saturating_sub(inode.blocks.load(Ordering::Relaxed));
        match lacking > self.pool.blocks().1 {
            true => Err(pool::Error::NoSpace.into()),
            false => Ok(()),
        }
    }

    /// The file is at least `end` bytes long.
    fn extend(&self, inode: &Arc<Inode>, end: u64) -> Result<()> {
        self.change(|| {
            let _range = inode.ranges.lock(0, u64::MAX);
            if inode.size.load(Ordering::Acquire) >= end {
                return Ok(());
            }
            let time = now();
            let mut record = RecordBuffer::new(KIND_CHANGE, time);
            self.truncate(inode, end, &mut record, || inode.touch(time))
        })
    }

    /// The bytes `offset..end` read as zeros, and the file is at least `size_min` bytes long: one
    /// record for each GiB, the last of which sets the size.
    pub fn zero(&self, inode: &Arc<Inode>, offset: u64, end: u64, size_min: u64) -> Result<()> {
        let mut at = offset;
        loop {
            let step = end.min((at / BLOCK_BYTES + PUNCH_BLOCKS_MAX) * BLOCK_BYTES);
            let last = step >= end.min(inode.size.load(Ordering::Acquire));
            if last {
                return self.change(|| self.zero_step(inode, at, step, size_min));
            }
            request::repeatable(|| self.change(|| self.zero_step(inode, at, step, 0)))?;
            // on to where there is something to zero
            let next = self.first_leaf(inode, step / BLOCK_BYTES / LEAF_BLOCKS)?;
            at = step.max((next * LEAF_BLOCKS * BLOCK_BYTES).min(end - 1));
        }
    }

    fn zero_step(&self, inode: &Arc<Inode>, from: u64, to: u64, size_min: u64) -> Result<()> {
        let last = if size_min > 0 { u64::MAX } else { (to - 1) / BLOCK_BYTES };
        let _range = inode.ranges.lock(from / BLOCK_BYTES, last);
        let size = inode.size.load(Ordering::Acquire);
        let grows = size_min > size;
        if from >= size && !grows {
            return Ok(());
        }
        let time = now();
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        let mut zeroed = Zeroed::of(from, to.min(size).max(from), size);
        let edges = self.zero_edges(inode, &mut zeroed, &mut record);
        if zeroed.blocks > 0 {
            item::push_punch(&mut record, inode.ino, zeroed.first, zeroed.blocks);
        }
        if grows {
            item::push_truncate(&mut record, inode.ino, size_min);
        }
        if edges.is_ok() && record.payload_len() == 0 {
            // all of it is hole already
            return Ok(());
        }
        let in_flight = std::mem::replace(&mut zeroed.in_flight, InFlight::none());
        let mut freed = Freed::default();
        let mut published = Ok(());
        let logged = edges.and_then(|()| {
            self.log_after(&mut record, &[inode], in_flight, || {
                published = self.publish_zeroed(inode, &zeroed, &mut freed);
                if grows {
                    inode.size.store(size_min, Ordering::Release);
                }
                inode.touch(time);
                self.mark_dirty(inode);
            })
        });
        if let Err(error) = logged {
            zeroed.rewritten.into_iter().for_each(|r| self.give_rewritten(Some(r)));
            return Err(error);
        }
        self.retire(&freed);
        self.published(published)
    }

    /// Writes the blocks anew of which only a part becomes zero.
    fn zero_edges(
        &self,
        inode: &Inode,
        zeroed: &mut Zeroed,
        record: &mut RecordBuffer,
    ) -> Result<()> {
        for (block, from, to) in zeroed.edges.clone() {
            let (done, written) = self.zero_part(inode, block, from, to, record, 0)?;
            let before = std::mem::replace(&mut zeroed.in_flight, InFlight::none());
            zeroed.in_flight = before.and(written);
            zeroed.rewritten.extend(done);
        }
        Ok(())
    }

    fn publish_zeroed(&self, inode: &Arc<Inode>, zeroed: &Zeroed, freed: &mut Freed) -> Result<()> {
        self.clear_blocks(inode, zeroed.first, zeroed.blocks, freed)?;
        zeroed.rewritten.iter().try_for_each(|r| {
            self.publish(inode, r.block, &[SlotChange::Place(r.placed)], freed, || {})
        })
    }

    /// Takes effect in DRAM: whole blocks are holes. The same at run time and in replay.
    pub fn clear_blocks(
        &self,
        inode: &Arc<Inode>,
        first: u64,
        count: u64,
        freed: &mut Freed,
    ) -> Result<()> {
        let end = first + count;
        let mut block = first;
        while block < end {
            let index = leaf_of(block).0;
            let stop = end.min((index + 1) * LEAF_BLOCKS);
            if self.leaf(inode, index)?.is_some() {
                let clears: Vec<SlotChange<'_>> =
                    (block..stop).map(|_| SlotChange::Clear).collect();
                self.publish(inode, block, &clears, freed, || {})?;
            }
            block = stop;
        }
        Ok(())
    }
}
