//! Space that is set aside, and the blocks that a write takes.
//!
//! A hole that is reserved has a block, which nobody has written: it is read as zeros, and counts
//! as taken. Who writes there writes into that block; so a pool that is full is in nobody's way
//! who reserved in time. What is different on the capacity tier is said in `reserve_below.rs`.
//!
//! What is written in which order, and what a crash between leaves:
//! 1. one record that names the holes and their blocks; one fence;
//! 2. in DRAM: the slots name their blocks.
//!
//! A write into such a block stores its data there before its record names it as written, as it
//! does with any block that it took: a crash between leaves a hole, whatever lies in the block.
//!
//! Patches have no block, so one cannot be reserved below them: a block with patches over a hole is
//! written anew, whole, with the record that reserves. A patch is never put over a reserved block.
//!
//! Written blocks are overwritten in blocks of their own, which takes as many free ones as it sets
//! free. On a full pool they are lent some of what is kept back for checkpoints.

use crate::core::Core;
use crate::error::Result;
use crate::fallocate::RESERVE_BLOCKS_MAX;
use crate::inode::Inode;
use crate::item::{BLOCK_RUN_BYTES, BlockRun};
use crate::leaf::LEAF_BLOCKS;
use crate::leased::take_spare;
use crate::leaves::leaf_of;
use crate::replay::damaged_record;
use crate::slot::{Freed, SlotChange, SlotView};
use crate::types::{FILE_BYTES_MAX, Ino};
use pool::{BLOCK_BYTES, BlockAddr, Extent, Record};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most runs of one record.
const RUNS_MAX: usize = 256;

impl Core {
    /// Neighbouring holes, and the blocks for them, as far as a record can name them; then also the
    /// index of the first hole that it cannot.
    pub fn runs_of(&self, holes: &[u64], addrs: &[BlockAddr]) -> (Vec<BlockRun>, Option<usize>) {
        let runs_max = RUNS_MAX.min(self.payload_max / 2 / BLOCK_RUN_BYTES);
        let mut runs: Vec<BlockRun> = Vec::new();
        for (index, (&block, &addr)) in holes.iter().zip(addrs).enumerate() {
            if let Some(run) = runs.last_mut().filter(|run| run.goes_on(block, addr)) {
                run.blocks += 1;
            } else if runs.len() < runs_max {
                runs.push(BlockRun { block, addr, blocks: 1 });
            } else {
                return (runs, Some(index));
            }
        }
        (runs, None)
    }

    /// Takes effect in DRAM: the holes have these blocks. The same at run time and in replay.
    pub fn publish_runs(
        &self,
        inode: &Arc<Inode>,
        runs: &[BlockRun],
        freed: &mut Freed,
    ) -> Result<()> {
        inode.reserves.store(true, Ordering::Relaxed);
        self.publish_by_run(inode, runs, freed, &|addr| SlotChange::Reserve(addr))
    }

    /// What reserves the blocks of each run, as [`Core::publish_parts`] takes it.
    pub fn reserved_by(&self, inode: &Inode, runs: &[BlockRun]) -> Vec<Vec<SlotChange<'static>>> {
        if !runs.is_empty() {
            inode.reserves.store(true, Ordering::Relaxed);
        }
        let of =
            |run: &BlockRun| (0..run.blocks).map(|i| SlotChange::Reserve(run.addr_at(i))).collect();
        runs.iter().map(of).collect()
    }

    /// Makes the same change to all blocks of the runs, each with its address.
    pub fn publish_by_run(
        &self,
        inode: &Arc<Inode>,
        runs: &[BlockRun],
        freed: &mut Freed,
        change: &dyn Fn(BlockAddr) -> SlotChange<'static>,
    ) -> Result<()> {
        for run in runs {
            let mut done = 0;
            while done < run.blocks {
                let in_leaf = LEAF_BLOCKS - (run.block + done) % LEAF_BLOCKS;
                let part = done..run.blocks.min(done + in_leaf);
                let changes: Vec<SlotChange<'_>> =
                    part.clone().map(|i| change(run.addr_at(i))).collect();
                self.publish(inode, run.block + done, &changes, freed, || {})?;
                done = part.end;
            }
        }
        Ok(())
    }

    /// Replays the record of a reservation.
    pub fn apply_reserve(
        &self,
        ino: Ino,
        runs: &[BlockRun],
        record: &Record,
        freed: &mut Freed,
    ) -> Result<()> {
        // what is reserved in a slice may be reserved on the tier instead
        let mut moves = false;
        let mut may = |addr: BlockAddr, view: &SlotView| {
            moves |= view.reserved;
            view.is_hole() && (!view.reserved || addr.device().is_some())
        };
        let inode = self.replayed_runs(ino, runs, record, &mut may)?;
        if !moves {
            inode.touch(record.time_ns);
        }
        self.publish_runs(&inode, runs, freed)
    }

    /// The file whose blocks a record gives these places, each of which its slot `may` get.
    pub fn replayed_runs(
        &self,
        ino: Ino,
        runs: &[BlockRun],
        record: &Record,
        may: &mut dyn FnMut(BlockAddr, &SlotView) -> bool,
    ) -> Result<Arc<Inode>> {
        let inode = self.replayed_file(ino, record)?;
        match self.runs_fit(&inode, runs, may)? {
            true => Ok(inode),
            false => Err(damaged_record(record)),
        }
    }

    /// Whether the runs of a record lie where a file can have blocks, and name those of the pool;
    /// and each slot may get its address.
    fn runs_fit(
        &self,
        inode: &Inode,
        runs: &[BlockRun],
        may: &mut dyn FnMut(BlockAddr, &SlotView) -> bool,
    ) -> Result<bool> {
        let blocks = runs.iter().try_fold(0u64, |sum, run| sum.checked_add(run.blocks));
        if blocks.is_none_or(|blocks| blocks > RESERVE_BLOCKS_MAX) {
            return Ok(false);
        }
        for run in runs {
            let last = run.block.saturating_add(run.blocks);
            let fits = last <= FILE_BYTES_MAX / BLOCK_BYTES && run.has_addrs();
            if !fits || !(0..run.blocks).all(|i| self.pool.contains(run.addr_at(i))) {
                return Ok(false);
            }
            for index in 0..run.blocks {
                let view = self.view_block(inode, run.block + index)?;
                if !may(run.addr_at(index), &view) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The block of a slice that is reserved for one of a file. The caller holds its range.
    pub fn reserved(&self, inode: &Inode, block: u64) -> Result<Option<BlockAddr>> {
        let (index, slot) = leaf_of(block);
        let reserved = self.leaf(inode, index)?.and_then(|leaf| leaf.reserved(slot));
        Ok(reserved.filter(|addr| addr.device().is_none()))
    }

    /// Whether a block is reserved for any of these. The caller holds their range.
    pub fn reserves_any(&self, inode: &Inode, blocks: Range<u64>) -> Result<bool> {
        let mut block = blocks.start;
        while block < blocks.end {
            let (index, first) = leaf_of(block);
            let end = blocks.end.min((index + 1) * LEAF_BLOCKS);
            let slots = first..first + (end - block) as usize;
            let leaf = self.leaf(inode, index)?;
            if leaf.is_some_and(|leaf| slots.into_iter().any(|slot| leaf.reserved(slot).is_some()))
            {
                return Ok(true);
            }
            block = end;
        }
        Ok(false)
    }

    /// The block that is reserved there, where that is cheap to say: of a file without a reserved
    /// block nothing is looked at, and one whose leaf is not in DRAM is only missed where space is.
    #[inline]
    fn known_reserved(&self, inode: &Inode, block: u64) -> Result<Option<BlockAddr>> {
        // ordering: a guess
        match inode.reserves.load(Ordering::Relaxed) {
            true => self.reserved(inode, block),
            false => Ok(None),
        }
    }

    /// One block to be written in the place of `block`, and whether it was reserved for it.
    #[inline(always)]
    pub fn take_one(&self, inode: &Inode, block: u64) -> Result<(BlockAddr, bool)> {
        if let Some(addr) = self.known_reserved(inode, block)? {
            return Ok((addr, true));
        }
        match self.pool.reclaim().allocate_one(self.slice_of(inode, block)) {
            Ok(addr) => Ok((addr, false)),
            Err(error) => self.take_one_when_full(inode, block, error),
        }
    }

    #[cold]
    fn take_one_when_full(
        &self,
        inode: &Inode,
        block: u64,
        error: pool::Error,
    ) -> Result<(BlockAddr, bool)> {
        if let Some(addr) = self.reserved(inode, block)? {
            return Ok((addr, true));
        }
        if let Some([addr]) = take_spare(1).as_deref() {
            return Ok((*addr, false));
        }
        match self.sets_one_free(inode, block)? {
            true => Ok((self.pool.reclaim().exchange_one(self.slice_of(inode, block))?, false)),
            false => Err(error.into()),
        }
    }

    /// Blocks to be written in the places of these, in their order: those that are reserved for
    /// them, others from what is free. The latter go to `extents`.
    pub fn take_blocks(
        &self,
        inode: &Inode,
        blocks: impl Iterator<Item = u64> + Clone,
        extents: &mut Vec<Extent>,
    ) -> Result<Vec<BlockAddr>> {
        let mut addrs = Vec::new();
        for block in blocks.clone() {
            addrs.push(self.known_reserved(inode, block)?.unwrap_or_default());
        }
        let without = addrs.iter().zip(blocks.clone()).filter(|(addr, _)| addr.is_none());
        let without: Vec<u64> = without.map(|(_, block)| block).collect();
        let taken = match without[..] {
            [block] => {
                let addr = self.pool.reclaim().allocate_one(self.slice_of(inode, block));
                addr.inspect(|addr| extents.push(Extent { addr: *addr, count: 1 }))
                    .map(|addr| vec![addr])
            }
            _ => self.take_placed(inode, &without, extents),
        };
        let mut new = match taken {
            Ok(taken) => taken.into_iter(),
            Err(error) => {
                self.take_when_full(inode, blocks, &mut addrs, extents, error)?.into_iter()
            }
        };
        for addr in addrs.iter_mut().filter(|addr| addr.is_none()) {
            *addr = new.next().unwrap_or_default();
        }
        Ok(addrs)
    }

    /// On a full pool, blocks for those that have none, but are reserved or set one free. What is
    /// reserved goes to `addrs`.
    #[cold]
    fn take_when_full(
        &self,
        inode: &Inode,
        mut blocks: impl Iterator<Item = u64> + Clone,
        addrs: &mut [BlockAddr],
        extents: &mut Vec<Extent>,
        error: pool::Error,
    ) -> Result<Vec<BlockAddr>> {
        let without = addrs.iter().filter(|addr| addr.is_none()).count();
        if let Some(spare) = take_spare(without) {
            extents.extend(spare.iter().map(|addr| Extent { addr: *addr, count: 1 }));
            return Ok(spare);
        }
        let first = blocks.clone().next().unwrap_or_default();
        for (block, addr) in blocks.by_ref().zip(addrs.iter_mut()) {
            *addr = self.reserved(inode, block)?.unwrap_or_default();
            if addr.is_none() && !self.sets_one_free(inode, block)? {
                return Err(error.into());
            }
        }
        let lacking = addrs.iter().filter(|addr| addr.is_none()).count() as u64;
        self.pool.reclaim().exchange(lacking, self.slice_of(inode, first), extents)?;
        Ok(extents.iter().flat_map(Extent::blocks).collect())
    }

    /// Whether a block is written there that a full pool has room for.
    pub fn needs_no_more(&self, inode: &Inode, block: u64) -> Result<bool> {
        let _range = inode.ranges.lock(block, block);
        Ok(self.reserved(inode, block)?.is_some() || self.sets_one_free(inode, block)?)
    }

    /// Whether a block that is written there takes the place of one that is then free: in a slice,
    /// or on the tier, where one of the slices can move then.
    #[cold]
    fn sets_one_free(&self, inode: &Inode, block: u64) -> Result<bool> {
        let view = self.view_block(inode, block)?;
        Ok(view.reserved || !view.addr.is_none() && !view.shared)
    }
}

impl BlockRun {
    /// Whether a block and its place come next.
    pub fn goes_on(&self, block: u64, addr: BlockAddr) -> bool {
        self.block + self.blocks == block && self.addr.bits() + self.blocks == addr.bits()
    }

    /// Whether all its addresses are ones.
    fn has_addrs(&self) -> bool {
        let last = self.addr.bits().checked_add(self.blocks);
        !self.addr.is_none() && last.is_some_and(|last| BlockAddr::from_bits(last).is_some())
    }

    fn addr_at(&self, index: u64) -> BlockAddr {
        BlockAddr::from_bits(self.addr.bits() + index).unwrap_or_default()
    }
}
