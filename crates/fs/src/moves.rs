//! Moving blocks from the slices to the capacity tier; within it those whose place is damaged.
//! From slice to slice they move by the same record (`migrate.rs`).
//!
//! What is written in which order, and what a crash between leaves:
//! 1. the block's bytes, to a place on a device that nobody names; the device is synced;
//! 2. one record that names the blocks of a leaf and their new places; one fence;
//! 3. in DRAM: the slots name the new places, and the blocks in the slices are retired, or kept as
//!    clean copies.
//!
//! A crash before 2 leaves the blocks where they were. Nobody is kept waiting meanwhile: the bytes
//! are copied as any reader copies them, and before the record they must still be what the file
//! holds there, which the range's lock then keeps so.
//!
//! A block that has several places is moved once for each: the first time as any other, but its
//! new place is counted, too; afterwards the others are only named where it is (`twins.rs`). One
//! that is reserved has no bytes to be moved: it is reserved anew (`reserve_below.rs`).

use crate::clock::now;
use crate::cold::{Cold, ColdLeaf};
use crate::core::Core;
use crate::error::Result;
use crate::inode::{Inode, Meta};
use crate::item::{self, BlockRun};
use crate::leaf::LEAF_BLOCKS;
use crate::references::COUNTS_UNITS;
use crate::request;
use crate::slot::{Freed, SlotChange, SlotView};
use crate::types::Ino;
use ::locks::RwLockReadGuard;
use pmem::Domain;
use pool::{BLOCK_BYTES, BlockAddr, Extent, KIND_CHANGE, Record, RecordBuffer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Shared blocks that one record moves, in any pool: a checkpoint must be able to fold what it
/// changes.
const SHARED_MIN: u64 = 6;

/// An inode that is there for as long as this is. Who removes one has no range of it, but needs its
/// attributes to himself: its end is logged before, or after.
pub struct Alive<'i> {
    /// The inode.
    pub inode: &'i Arc<Inode>,
    _meta: RwLockReadGuard<'i, Meta>,
}

impl<'i> Alive<'i> {
    /// `None`: it is gone. The caller holds the range that he is to change.
    pub fn of(inode: &'i Arc<Inode>) -> Option<Alive<'i>> {
        let meta = inode.meta.read();
        (!meta.gone).then_some(Alive { inode, _meta: meta })
    }
}

/// Where blocks are to be named from now on, and what is to be undone if they are not.
#[derive(Default)]
pub struct Plan {
    /// The blocks, and their new places.
    runs: Vec<BlockRun>,
    /// New places of shared blocks: a reference is counted already.
    counted: Vec<BlockAddr>,
    /// The same where others have these places, too.
    borrowed: Vec<BlockAddr>,
    /// Blocks in slices that are as they lie what their new places hold, with those.
    clean: Vec<(BlockAddr, BlockAddr)>,
    /// New places of those that have others, with the old ones.
    twins: Vec<(BlockAddr, BlockAddr)>,
}

impl Plan {
    /// One more block gets another place.
    pub fn push(&mut self, block: u64, addr: BlockAddr) {
        match self.runs.last_mut().filter(|run| run.goes_on(block, addr)) {
            Some(run) => run.blocks += 1,
            None => self.runs.push(BlockRun { block, addr, blocks: 1 }),
        }
    }

    /// The same for one that others have, too: a reference is counted already.
    pub fn push_borrowed(&mut self, block: u64, addr: BlockAddr) {
        self.push(block, addr);
        self.borrowed.push(addr);
    }
}

impl Core {
    /// Moves the blocks of a batch, the bytes of those that have any being `data`; gives how many
    /// were moved.
    pub fn move_batch(&self, tier: &tier::Tier, batch: &[ColdLeaf], data: &[u8]) -> Result<u64> {
        let mut moved = 0;
        for cold in batch.iter().filter(|cold| !cold.reserved.is_empty()) {
            moved += self.reserve_below(&cold.inode, &cold.reserved, cold.slice)?;
        }
        let mut extents = Vec::new();
        let result = self.move_bytes(tier, batch, data, &mut extents);
        // places that nobody was moved to
        self.pool.reclaim().give_extents(&mut extents);
        // those that were just written among them, and whatever became of these
        for cold in batch {
            for twins in cold.twins.chunks(self.shared_blocks_max()) {
                moved += self.change_unpaid(|| self.move_to_twins(&cold.inode, twins))?;
            }
        }
        Ok(moved + result?)
    }

    /// Writes the blocks of a batch to devices, and has their files name them there; gives how many
    /// were moved. Places that nobody has are left in `extents`.
    fn move_bytes(
        &self,
        tier: &tier::Tier,
        batch: &[ColdLeaf],
        data: &[u8],
        extents: &mut Vec<Extent>,
    ) -> Result<u64> {
        let wanted = (data.len() / BLOCK) as u64;
        let near = batch.first().and_then(|cold| cold.slice);
        let taken = self.find_below(near, wanted, extents) as usize * BLOCK;
        if taken == 0 {
            return Ok(0);
        }
        let devices = self.pool.devices();
        tier.write(devices, extents, &data[..taken])?;
        if self.pool.domain() != Domain::Process {
            tier::sync(devices, extents)?;
        }
        let places: Vec<BlockAddr> = extents.iter().flat_map(Extent::blocks).collect();
        let mut given = places.iter().copied();
        let (mut moved, mut unused, mut from) = (0, Vec::new(), 0);
        extents.clear();
        for (cold, blocks) in batch.iter().flat_map(|cold| self.by_record(cold)) {
            let pairs: Vec<(&Cold, BlockAddr)> = blocks.iter().zip(given.by_ref()).collect();
            let bytes = &data[from..from + pairs.len() * BLOCK];
            from += pairs.len() * BLOCK;
            let done =
                self.change_unpaid(|| self.move_blocks(&cold.inode, &pairs, bytes, &mut unused));
            match done {
                Ok(done) => moved += done,
                Err(error) => {
                    let rest = pairs.iter().map(|(_, addr)| *addr).chain(given);
                    extents.extend(rest.map(|addr| Extent { addr, count: 1 }));
                    return Err(error);
                }
            }
            extents.extend(unused.drain(..).map(|addr| Extent { addr, count: 1 }));
        }
        Ok(moved)
    }

    /// The blocks of a leaf that one record can move.
    fn by_record<'c>(
        &self,
        cold: &'c ColdLeaf,
    ) -> impl Iterator<Item = (&'c ColdLeaf, &'c [Cold])> + use<'c> {
        let count = match cold.blocks.iter().any(|it| it.view.shared) {
            true => self.shared_blocks_max(),
            false => LEAF_BLOCKS as usize,
        };
        cold.blocks.chunks(count).map(move |blocks| (cold, blocks))
    }

    /// Has a file name these blocks in their new places, those that still hold what was copied;
    /// the other places go to `unused`.
    fn move_blocks(
        &self,
        inode: &Arc<Inode>,
        pairs: &[(&Cold, BlockAddr)],
        bytes: &[u8],
        unused: &mut Vec<BlockAddr>,
    ) -> Result<u64> {
        unused.clear();
        let (Some((first, _)), Some((last, _))) = (pairs.first(), pairs.last()) else {
            return Ok(0);
        };
        let _range = inode.ranges.lock(first.block, last.block);
        let Some(alive) = Alive::of(inode) else {
            unused.extend(pairs.iter().map(|(_, addr)| *addr));
            return Ok(0);
        };
        let mut plan = Plan::default();
        let planned = self.plan_moves(inode, pairs, bytes, &mut plan, unused);
        self.log_moves(&alive, plan, planned)
    }

    /// Which of these blocks still hold what was copied; the other places go to `unused`.
    fn plan_moves(
        &self,
        inode: &Inode,
        pairs: &[(&Cold, BlockAddr)],
        bytes: &[u8],
        plan: &mut Plan,
        unused: &mut Vec<BlockAddr>,
    ) -> Result<()> {
        let shared_max = self.shared_blocks_max();
        for ((cold, addr), copied) in pairs.iter().zip(bytes.chunks_exact(BLOCK)) {
            let is = self.unchanged(inode, cold, copied)?;
            let shared = plan.counted.len() + plan.borrowed.len();
            let Some(is) = is.filter(|is| !is.shared || shared < shared_max) else {
                unused.push(*addr);
                continue;
            };
            if is.shared
                && is.patches.is_none()
                && let Some(far) = self.refer_to_twin(is.addr)?
            {
                // another of its places has moved since this one was looked at
                plan.push_borrowed(cold.block, far);
                unused.push(*addr);
                continue;
            }
            if is.shared {
                self.refer(*addr, 1)?;
                plan.counted.push(*addr);
            }
            plan.push(cold.block, *addr);
            match (is.shared, is.patches) {
                (_, Some(_)) => {}
                // it was damaged on its device, and is there no more
                _ if is.addr.device().is_some() => {}
                (true, None) => plan.twins.push((is.addr, *addr)),
                (false, None) => plan.clean.push((is.addr, *addr)),
            }
        }
        Ok(())
    }

    /// How many shared blocks one record may move.
    pub fn shared_blocks_max(&self) -> usize {
        (self.record_units() / (2 * COUNTS_UNITS) / 2).max(SHARED_MIN) as usize
    }

    /// Logs that blocks have other places, and publishes it, if they were `planned`; gives how
    /// many. The caller holds their range.
    pub fn log_moves(&self, alive: &Alive<'_>, plan: Plan, planned: Result<()>) -> Result<u64> {
        let done = planned.and_then(|()| self.log_plan(alive, &plan));
        if done.is_err() {
            // the caller has the new ones back
            plan.counted.iter().try_for_each(|addr| self.unrefer(*addr).map(drop))?;
            let borrowed = plan.borrowed;
            self.retire(&Freed { shared: borrowed, ..Freed::default() });
        }
        done
    }

    fn log_plan(&self, alive: &Alive<'_>, plan: &Plan) -> Result<u64> {
        if plan.runs.is_empty() {
            return Ok(0);
        }
        let mut record = RecordBuffer::new(KIND_CHANGE, now());
        item::push_move(&mut record, alive.inode.ino, &plan.runs);
        let mut freed = self.log_places(alive, &mut record, |freed| {
            let published = self.publish_moves(alive.inode, &plan.runs, freed);
            self.references.twins.remember(&plan.twins);
            published
        })?;
        self.keep_clean(&plan.clean, &mut freed.blocks);
        self.retire(&freed);
        Ok(plan.runs.iter().map(|run| run.blocks).sum())
    }

    /// Logs a record that gives blocks of a file other places, and publishes it; gives what nobody
    /// has any more. The caller holds their range.
    pub fn log_places(
        &self,
        alive: &Alive<'_>,
        record: &mut RecordBuffer,
        publish: impl FnOnce(&mut Freed) -> Result<()>,
    ) -> Result<Freed> {
        let (mut freed, mut published) = (Freed::default(), Ok(()));
        // whoever's request comes by here, this is not its change
        request::repeatable(|| {
            self.log(record, &[alive.inode], || published = publish(&mut freed))
        })?;
        // where that failed the pool takes nothing more; the places are the record's
        let _ = self.published(published);
        Ok(freed)
    }

    /// Takes effect in DRAM: blocks are where the runs say, and are not verified there. The same at
    /// run time and in replay.
    fn publish_moves(
        &self,
        inode: &Arc<Inode>,
        runs: &[BlockRun],
        freed: &mut Freed,
    ) -> Result<()> {
        self.publish_by_run(inode, runs, freed, &|addr| SlotChange::Move(addr))
    }

    /// Replays the record of a move.
    pub fn apply_move(
        &self,
        ino: Ino,
        runs: &[BlockRun],
        record: &Record,
        freed: &mut Freed,
    ) -> Result<()> {
        let mut shared = Vec::new();
        let mut may = |addr: BlockAddr, view: &SlotView| {
            shared.extend(view.shared.then_some(addr));
            let is_own = view.addr.device().is_none() && !view.shared;
            !view.addr.is_none() && (addr.device().is_some() || is_own)
        };
        let inode = self.replayed_runs(ino, runs, record, &mut may)?;
        shared.iter().try_for_each(|addr| self.refer(*addr, 1))?;
        self.publish_moves(&inode, runs, freed)
    }

    /// A block's slot, if the block still is where it was copied, and what was copied. The caller
    /// holds its range.
    fn unchanged(&self, inode: &Inode, cold: &Cold, copied: &[u8]) -> Result<Option<SlotView>> {
        let (was, is) = (&cold.view, self.view_block(inode, cold.block)?);
        if is.addr != was.addr || is.crc != was.crc || is.reserved {
            return Ok(None);
        }
        // a checksum is no proof: a block may have changed in place
        let bytes = self.read_under(is.addr, is.patches.as_deref());
        Ok(bytes.is_ok_and(|bytes| bytes.as_slice() == copied).then_some(is))
    }

    /// Up to so many blocks of devices, of all in turn: those on this slice's node first.
    pub fn take_below(&self, near: Option<u8>, count: u64, extents: &mut Vec<Extent>) -> u64 {
        let (nodes, devices) = (self.pool.nodes(), self.pool.devices());
        let node = near.and_then(|slice| nodes.of(slice));
        // ordering: whichever device
        let first = self.write_back.turn.fetch_add(1, Ordering::Relaxed);
        let turn = |step: usize| first.wrapping_add(step) % devices.len();
        let mut order: Vec<usize> = (0..devices.len()).map(turn).collect();
        order.sort_by_key(|at| node.is_none() || devices[*at].device.node() != node);
        let take = |left, at| left - self.pool.reclaim().take_below(at, left, extents);
        count - order.into_iter().fold(count, take)
    }

    /// The same; where there are too few, those that wait for a reader are waited for. The caller
    /// holds no lock.
    pub fn find_below(&self, near: Option<u8>, count: u64, extents: &mut Vec<Extent>) -> u64 {
        let taken = self.take_below(near, count, extents);
        let slices = self.pool.slices().len();
        let held = || self.pool.reclaim().held_in().split_off(slices);
        if taken == count || held().iter().all(|held| *held == 0) {
            return taken;
        }
        self.pool.reclaim().gather_all();
        taken + self.take_below(near, count - taken, extents)
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
pub(crate) mod tests;
