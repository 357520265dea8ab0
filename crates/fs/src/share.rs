//! Sharing: blocks of one file become blocks of another, too.
//!
//! What is written in which order, and what a crash between leaves:
//! 1. one record that names both ranges and no block: `to` has now what `from` has; one fence;
//! 2. in DRAM: the references are counted, the slots of both files are marked, those of `to` name
//!    the blocks; what `to` had there is retired.
//!
//! Both ranges are locked meanwhile, so that the record's stamp is above those of all that made
//! what it shares, and below those of all that changes it later: replay finds in `from` what the
//! call found, and counts the same references. A crash before the fence leaves both as they were.
//!
//! A marked slot's block never changes: writes to it take a block of their own. So bytes that lie
//! in the log only (patches, and blocks that the log holds) are not shared, but copied. What
//! recovery finds over a block, on its way into it, goes along.

use crate::clock::now;
use crate::copy::Place;
use crate::core::Core;
use crate::error::Result;
use crate::inode::Inode;
use crate::item::{self, Share};
use crate::leaf::LEAF_BLOCKS;
use crate::leaves::leaf_of;
use crate::references::{COUNTS_UNITS, REFERENCES_MAX, miscounted};
use crate::replay::damaged_record;
use crate::slot::{Freed, SlotChange, SlotView};
use crate::types::FILE_BYTES_MAX;
use crate::write::grow;
use pool::{BLOCK_BYTES, KIND_CHANGE, Record, RecordBuffer};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most blocks that one record shares: 16 MiB.
pub const SHARE_BLOCKS_MAX: u64 = 4096;
/// Blocks that are looked at, at most, for how many are not to be shared: 1 MiB.
const COPIED_BLOCKS_MAX: u64 = 256;
/// Units of both files' leaves; see `Core::dirty_units`.
const LEAVES_UNITS: u64 = 52;
/// Units that a record may add in any pool.
const UNITS_MIN: u64 = 4 * LEAVES_UNITS;

/// What came of it.
pub enum Shared {
    /// So many bytes are shared; none: the source ends.
    Done(u64),
    /// So many are not to be shared.
    NotToBe(u64),
}

/// Blocks of two files, and where the bytes end in the second.
struct Range<'r> {
    from: (&'r Arc<Inode>, u64),
    to: (&'r Arc<Inode>, u64),
    end: u64,
}

impl Core {
    /// Shares some blocks of the `len` bytes at the beginnings of two blocks.
    pub fn share(&self, from: Place<'_>, to: Place<'_>, len: u64) -> Result<Shared> {
        self.change(|| {
            let blocks = len.div_ceil(BLOCK_BYTES).min(SHARE_BLOCKS_MAX);
            let (first, to_first) = (from.1 / BLOCK_BYTES, to.1 / BLOCK_BYTES);
            let last = blocks - 1;
            let mut ranges = [(from.0, first, first + last), (to.0, to_first, to_first + last)];
            ranges.sort_unstable_by_key(|(inode, first, _)| (inode.ino, *first));
            let _ranges = lock(ranges);
            for (inode, first, last) in ranges {
                self.check_leased(inode, first, last)?;
            }
            self.may_change(to.0, to_first, to_first + last)?;
            self.share_locked(from, to, len.min(blocks * BLOCK_BYTES))
        })
    }

    fn share_locked(&self, from: Place<'_>, to: Place<'_>, len: u64) -> Result<Shared> {
        let (size, to_size) =
            (from.0.size.load(Ordering::Acquire), to.0.size.load(Ordering::Acquire));
        let len = len.min(size.saturating_sub(from.1));
        // bytes behind a file's end are zeros: where both end, the last block is as a whole one
        let whole = from.1 + len == size && to_size <= to.1 + len;
        let blocks = if whole { len.div_ceil(BLOCK_BYTES) } else { len / BLOCK_BYTES };
        let first = from.1 / BLOCK_BYTES;
        let views = self.to_be_shared(from.0, first, blocks)?;
        if views.is_empty() {
            let found = self.not_to_be_shared(from.0, first, blocks.min(COPIED_BLOCKS_MAX))?;
            let bytes = (found * BLOCK_BYTES).min(len);
            return Ok(if len == 0 { Shared::Done(0) } else { Shared::NotToBe(bytes) });
        }
        self.check_room()?;
        let bytes = (views.len() as u64 * BLOCK_BYTES).min(len);
        let range =
            Range { from: (from.0, first), to: (to.0, to.1 / BLOCK_BYTES), end: to.1 + bytes };
        let time = now();
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        let blocks = views.len() as u32;
        let (ino, block) = (to.0.ino, range.to.1);
        let share = Share { ino, block, blocks, end: range.end, from: from.0.ino, first };
        item::push_share(&mut record, &share);
        let mut freed = Freed::default();
        let mut published = Ok(());
        self.log(&mut record, &[from.0, to.0], || {
            published = self.publish_shared(&range, views, &mut freed, time);
        })?;
        self.retire(&freed);
        to.0.tell_changed(to.1, bytes);
        self.published(published).map(|()| Shared::Done(bytes))
    }

    /// The slots of up to `blocks` blocks from `first` on, as far as they are to be shared.
    fn to_be_shared(&self, inode: &Inode, first: u64, blocks: u64) -> Result<Vec<SlotView>> {
        let mut views = Vec::new();
        let units_max = UNITS_MIN.max(self.record_units());
        let (mut units, mut counts) = (LEAVES_UNITS, u64::MAX);
        for block in first..first + blocks {
            let view = self.view_block(inode, block)?;
            let index = crate::keys::references(view.addr).index;
            if !view.addr.is_none() && index != counts {
                units += COUNTS_UNITS;
                counts = index;
            }
            units += if block % LEAF_BLOCKS == 0 { LEAVES_UNITS } else { 0 };
            // a checkpoint must be able to fold what one record changes
            if units > units_max || !self.is_to_be_shared(&view)? {
                break;
            }
            views.push(view);
        }
        Ok(views)
    }

    /// Whether a slot is one to be shared: a hole, or a block that holds all of its bytes. The
    /// references to it are in DRAM then.
    fn is_to_be_shared(&self, view: &SlotView) -> Result<bool> {
        if view.patches.is_some() || view.addr.is_none() {
            return Ok(view.is_hole());
        }
        match self.references_to(view.addr)? {
            count if (count > 0) != view.shared => Err(miscounted(view.addr)),
            count => Ok(count < REFERENCES_MAX),
        }
    }

    /// How many blocks from `first` on, at most `blocks` but one at least, are not to be shared.
    fn not_to_be_shared(&self, inode: &Inode, first: u64, blocks: u64) -> Result<u64> {
        let mut count = 1;
        while count < blocks && !self.is_to_be_shared(&self.view_block(inode, first + count)?)? {
            count += 1;
        }
        Ok(count)
    }

    /// Takes effect in DRAM: the second range has what the first has. The same at run time and in
    /// replay.
    fn publish_shared(
        &self,
        range: &Range<'_>,
        views: Vec<SlotView>,
        freed: &mut Freed,
        time: i64,
    ) -> Result<()> {
        for view in views.iter().filter(|view| !view.addr.is_none()) {
            // a block that had one place has two that are counted
            self.refer(view.addr, if view.shared { 1 } else { 2 })?;
        }
        let (from, mut block) = range.from;
        let mut rest = &views[..];
        while !rest.is_empty() {
            let in_leaf = LEAF_BLOCKS as usize - leaf_of(block).1;
            let (part, more) = rest.split_at(rest.len().min(in_leaf));
            if part.iter().any(|view| !view.addr.is_none() && !view.shared) {
                let marks: Vec<SlotChange<'_>> = part.iter().map(|_| SlotChange::Mark).collect();
                self.publish(from, block, &marks, freed, || {})?;
            }
            block += part.len() as u64;
            rest = more;
        }
        let change = |view: SlotView| match view.addr.is_none() {
            true => SlotChange::Clear,
            false => SlotChange::Share(view),
        };
        let changes: Vec<SlotChange<'_>> = views.into_iter().map(change).collect();
        let (to, first) = range.to;
        self.publish(to, first, &changes, freed, || grow(to, range.end, time))
    }

    /// Replays the record of a sharing.
    pub fn apply_share(&self, share: &Share, record: &Record, freed: &mut Freed) -> Result<()> {
        let fits = |first: u64| {
            let end = first.checked_add(u64::from(share.blocks));
            end.is_some_and(|end| end <= FILE_BYTES_MAX / BLOCK_BYTES)
        };
        let count = u64::from(share.blocks);
        let apart = share.first.abs_diff(share.block) >= count || share.from != share.ino;
        let fine = (1..=SHARE_BLOCKS_MAX).contains(&count) && share.end <= FILE_BYTES_MAX;
        if !fine || !apart || !fits(share.first) || !fits(share.block) {
            return Err(damaged_record(record));
        }
        let from = self.replayed_file(share.from, record)?;
        let to = self.replayed_file(share.ino, record)?;
        let mut views = Vec::new();
        for block in share.first..share.first + count {
            let view = self.view_block(&from, block)?;
            // what lies over a block is on its way into it, or it had not been shared
            let over = view.patches.as_ref();
            let settled = over.is_none_or(|over| self.stores_in_place || over.cover_all());
            if !view.is_hole() && (view.addr.is_none() || !settled) {
                return Err(damaged_record(record));
            }
            views.push(view);
        }
        let range = Range { from: (&from, share.first), to: (&to, share.block), end: share.end };
        self.publish_shared(&range, views, freed, record.time_ns)
    }
}

/// Locks both ranges, in the order given, which is the same for everybody; of one file, all from
/// the first to the last: who waited for a part while it held another might wait for itself.
fn lock<'l>(
    [one, two]: [(&'l Arc<Inode>, u64, u64); 2],
) -> SmallVec<[crate::range_lock::RangeGuard<'l>; 2]> {
    let mut guards = SmallVec::new();
    if one.0.ino == two.0.ino {
        guards.push(one.0.ranges.lock(one.1, two.2));
    } else {
        guards.push(one.0.ranges.lock(one.1, one.2));
        guards.push(two.0.ranges.lock(two.1, two.2));
    }
    guards
}
