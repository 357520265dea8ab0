//! Writing back: blocks that nobody wants soon move from the slices to the capacity tier.
//!
//! What is written in which order, and what a crash between leaves:
//! 1. the block's bytes, to a place on a device that nobody names; the device is synced;
//! 2. one record that names the blocks of a leaf and their new places; one fence;
//! 3. in DRAM: the slots name the new places, and the blocks in the slices are retired.
//!
//! A crash before 2 leaves the blocks where they were. Nobody is kept waiting meanwhile: the bytes
//! are copied as any reader copies them, and before the record they must still be what the file
//! holds there, which the range's lock then keeps so.
//!
//! Who is cold: leaves with blocks in slices are in a line, those that changed longest ago first. A
//! block that was written or read since its leaf came by last is let off once (a clock).

use crate::core::{Core, now};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::item::{self, BlockRun};
use crate::keys;
use crate::leaf::{LEAF_BLOCKS, LEAF_INDEX_MAX};
use crate::leaf_value;
use crate::slot::{Freed, SlotChange, SlotView};
use crate::types::{FileKind, Ino};
use crate::writer::Signals;
use parking_lot::Mutex;
use pmem::Domain;
use pool::tree::Key;
use pool::{BLOCK_BYTES, BlockAddr, Extent, KIND_CHANGE, RecordBuffer};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that are written together.
pub const BATCH_BLOCKS: usize = 256;
/// Leaves that are looked at before what was found in them is written.
const BATCH_LEAVES: usize = 4096;
/// The share of the slices' blocks, in percent, above which blocks are written back.
pub const DIRTY_PERCENT: u64 = 30;

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
#[derive(Debug, Default)]
pub struct WriteBack {
    line: Mutex<Line>,
    /// One fills it.
    filling: Mutex<()>,
    /// What its thread and those who wait for it tell each other.
    pub signals: Signals,
    /// Blocks that were written back, since open.
    pub blocks: AtomicU64,
}

/// A block that is to move: as it was when its bytes were copied.
struct Cold {
    block: u64,
    view: SlotView,
}

/// Cold blocks of one leaf.
struct ColdLeaf {
    inode: Arc<Inode>,
    blocks: Vec<Cold>,
}

impl WriteBack {
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
    /// Whether more of the slices is in use than is to be.
    pub fn is_dirty(&self) -> bool {
        let (all, free) = self.pool.slice_blocks();
        (all - free.min(all)) * 100 > all * DIRTY_PERCENT
    }

    /// Moves at least `want` blocks to the tier, if there are as many that can be moved and the
    /// tier has room; gives how many it moved.
    pub fn write_back(&self, want: u64) -> Result<u64> {
        let Some(tier) = &self.tier else { return Ok(0) };
        self.pool.check_writable()?;
        self.fill_line()?;
        let mut moved = 0;
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
                batch.push((index, cold));
            }
            if batch.is_empty() {
                break;
            }
            let mut extents = Vec::new();
            let result = match count {
                0 => Ok(0),
                _ => self.move_batch(tier, &batch, &data, &mut extents),
            };
            // places that nobody was moved to
            self.pool.reclaim().give_extents(&mut extents);
            // there are more in these leaves, or not all may have been moved
            batch.iter().for_each(|(index, cold)| self.write_back.list(cold.inode.ino, *index));
            let done = result?;
            if done == 0 && self.pool.devices().iter().all(|it| it.space.free() == 0) {
                break;
            }
            moved += done;
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

    /// The blocks of a leaf that can be moved and that nobody used since it came by last, with
    /// their bytes behind `data`. `None`: it has none in slices that ever could be.
    fn cold_blocks(&self, ino: Ino, index: u64, data: &mut Vec<u8>) -> Result<Option<ColdLeaf>> {
        let inode = match self.inode(ino) {
            Ok(inode) if inode.kind == FileKind::File => inode,
            Ok(_) | Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(leaf) = self.leaf(&inode, index)? else { return Ok(None) };
        match leaf.lock() {
            Some(_lock) => leaf.unlist(),
            // the one that took its place has its marks
            None => return Ok(Some(ColdLeaf { inode, blocks: Vec::new() })),
        }
        let (mut blocks, mut more) = (Vec::new(), false);
        for slot in 0..leaf.room() {
            // the pin keeps the block from being used again while it is copied
            let _pin = crossbeam_epoch::pin();
            let Some(sequence) = leaf.begin_read() else {
                more = true;
                break;
            };
            let view = leaf.view(slot);
            let is_movable = !view.addr.is_none() && view.addr.device().is_none() && !view.shared;
            if !is_movable {
                continue;
            }
            if leaf.unwritten(slot).is_some() {
                // the next checkpoint writes it
                more = true;
                continue;
            }
            if leaf.cool(slot) {
                more = true;
                continue;
            }
            let bytes = self.read_under(view.addr, view.patches.as_deref());
            let is_whole = |bytes: &[u8; BLOCK]| pmem::crc_fits(pmem::crc32c(0, bytes), view.crc);
            match bytes {
                Ok(bytes) if leaf.still(sequence) && is_whole(&bytes) => {
                    data.extend_from_slice(&bytes);
                    blocks.push(Cold { block: index * LEAF_BLOCKS + slot as u64, view });
                }
                // it changed meanwhile, or is damaged: then it stays for those who mend it
                _ => more = true,
            }
        }
        Ok((more || !blocks.is_empty()).then_some(ColdLeaf { inode, blocks }))
    }

    /// Writes the blocks of a batch to devices, and has their files name them there; gives how many
    /// were moved. Places that nobody has are left in `extents`.
    fn move_batch(
        &self,
        tier: &tier::Tier,
        batch: &[(u64, ColdLeaf)],
        data: &[u8],
        extents: &mut Vec<Extent>,
    ) -> Result<u64> {
        let devices = self.pool.devices();
        let mut left = (data.len() / BLOCK) as u64;
        for step in 0..devices.len() {
            let device =
                (self.write_back.blocks.load(Ordering::Relaxed) as usize + step) % devices.len();
            left -= self.pool.reclaim().take_below(device, left, extents);
        }
        let taken = data.len() - left as usize * BLOCK;
        if taken == 0 {
            return Ok(0);
        }
        tier.write(devices, extents, &data[..taken])?;
        if self.pool.domain() != Domain::Process {
            tier::sync(devices)?;
        }
        let places: Vec<BlockAddr> = extents.iter().flat_map(Extent::blocks).collect();
        let mut given = places.iter().copied();
        let (mut moved, mut unused, mut from) = (0, Vec::new(), 0);
        extents.clear();
        for (_, cold) in batch {
            let pairs: Vec<(&Cold, BlockAddr)> = cold.blocks.iter().zip(given.by_ref()).collect();
            let bytes = &data[from..from + pairs.len() * BLOCK];
            from += pairs.len() * BLOCK;
            let done = self.change(|| self.move_blocks(&cold.inode, &pairs, bytes, &mut unused));
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
        // who removes the inode has no range, but this: its end is logged before, or after
        let meta = inode.meta.read();
        if meta.gone {
            unused.extend(pairs.iter().map(|(_, addr)| *addr));
            return Ok(0);
        }
        let mut runs: Vec<BlockRun> = Vec::new();
        for ((cold, addr), copied) in pairs.iter().zip(bytes.chunks_exact(BLOCK)) {
            if !self.is_unchanged(inode, cold, copied)? {
                unused.push(*addr);
                continue;
            }
            match runs.last_mut().filter(|run| run.goes_on(cold.block, *addr)) {
                Some(run) => run.blocks += 1,
                None => runs.push(BlockRun { block: cold.block, addr: *addr, blocks: 1 }),
            }
        }
        if runs.is_empty() {
            return Ok(0);
        }
        let mut record = RecordBuffer::new(KIND_CHANGE, now());
        item::push_move(&mut record, inode.ino, &runs);
        let (mut freed, mut published) = (Freed::default(), Ok(()));
        self.log(&mut record, &[inode], || {
            published = self.publish_moves(inode, &runs, &mut freed);
        })?;
        self.retire(&freed);
        // where that failed the pool takes nothing more; the places are the record's
        let _ = self.published(published);
        Ok(runs.iter().map(|run| run.blocks).sum())
    }

    /// Takes effect in DRAM: blocks are where the runs say, and are not verified there. The same at
    /// run time and in replay.
    pub fn publish_moves(
        &self,
        inode: &Arc<Inode>,
        runs: &[BlockRun],
        freed: &mut Freed,
    ) -> Result<()> {
        self.publish_by_run(inode, runs, freed, &|addr| SlotChange::Move(addr))
    }

    /// Whether a block still is where it was copied, and what was copied. The caller holds its
    /// range.
    fn is_unchanged(&self, inode: &Inode, cold: &Cold, copied: &[u8]) -> Result<bool> {
        let (was, is) = (&cold.view, self.view_block(inode, cold.block)?);
        if is.addr != was.addr || is.crc != was.crc || is.shared || is.reserved {
            return Ok(false);
        }
        // a checksum is no proof: a block may have changed in place
        let bytes = self.read_under(is.addr, is.patches.as_deref());
        Ok(bytes.is_ok_and(|bytes| bytes.as_slice() == copied))
    }
}
