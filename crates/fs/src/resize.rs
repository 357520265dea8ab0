//! Truncating and extending; blocks that become zero in part, or holes.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::item::{self, Placed};
use crate::keys;
use crate::leaf::LEAF_BLOCKS;
use crate::leaf_value;
use crate::leaves::{Part, leaf_of};
use crate::slot::{Freed, SlotChange};
use crate::types::FILE_BYTES_MAX;
use pmem::InFlight;
use pool::{BLOCK_BYTES, RecordBuffer};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;

/// As many holes as a leaf has slots.
static CLEARS: [SlotChange<'static>; LEAF_BLOCKS as usize] =
    [const { SlotChange::Clear }; LEAF_BLOCKS as usize];

/// A block written anew because a part of it became zero.
pub struct Rewritten {
    /// Which.
    pub block: u64,
    /// Where it is now.
    pub placed: Placed,
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
        if size < old {
            inode.tell_cuts(size);
        }
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
        inode.tell_changed(size.min(old), size.abs_diff(old));
        self.published(published)
    }

    fn give_rewritten(&self, rewritten: Option<Rewritten>) {
        if let Some(rewritten) = rewritten {
            self.pool.reclaim().give_one(rewritten.placed.addr);
        }
    }

    /// Writes `block` anew with zeros from `from` to `to`; nothing if it is a hole.
    pub fn zero_part(
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
        let (reclaim, near) = (self.pool.reclaim(), self.slice_of(inode, block));
        let addr = reclaim.allocate_one(near).or_else(|_| reclaim.exchange_one(near))?;
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
        // what is reserved behind the end stays where the file grows
        let same = size == old && inode.blocks.load(Ordering::Relaxed) == 0;
        if size > old || same {
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
                let named = leaf_value::decode(value).unwrap_or_default();
                let fine = named.iter().all(|named| self.pool.contains(named.placed.addr));
                if !named.is_empty() && fine {
                    for named in &named {
                        blocks.push(named.placed.addr, named.part == leaf_value::Part::Shared);
                    }
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

    /// Takes effect in DRAM, at one moment: whole blocks are holes. The same at run time and in
    /// replay.
    pub fn clear_blocks(
        &self,
        inode: &Arc<Inode>,
        blocks: Range<u64>,
        freed: &mut Freed,
    ) -> Result<()> {
        let clears = self.clears(inode, blocks)?;
        self.publish_parts(inode, &clears, freed, || {})
    }

    /// What makes holes of these blocks, leaf by leaf, as [`Core::publish_parts`] takes it. Where
    /// there is no leaf they are holes.
    pub fn clears(&self, inode: &Inode, blocks: Range<u64>) -> Result<Vec<Part<'static>>> {
        let mut clears = Vec::new();
        let mut block = blocks.start;
        while block < blocks.end {
            let index = leaf_of(block).0;
            let stop = blocks.end.min((index + 1) * LEAF_BLOCKS);
            if self.leaf(inode, index)?.is_some() {
                clears.push((block, &CLEARS[..(stop - block) as usize]));
            }
            block = stop;
        }
        Ok(clears)
    }
}
