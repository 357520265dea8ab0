//! A checkpoint: from the cut to the roots.
//!
//! 1. the cut: with the gate closed, every lane ends its chunk, and the caller takes what changed;
//! 2. the fold: new pages of all slices; what was stored in place before the cut is flushed; the
//!    checksums of the roots that are not current are taken away; fence (and sync);
//! 3. the roots: each slice's into the slot that is not current; fence (and sync);
//! 4. the log below the cut is free, the pages of the old trees are free once no reader holds them.
//!
//! A crash before all roots are written leaves the generation before, whose pages and log are
//! untouched until step 4. What it leaves of the roots may lack only bytes that the next checkpoint
//! writes there, too: it must be gone before that writes any, as its pages have other owners then.

use crate::addr::{BlockAddr, Extent};
use crate::error::{Error, Result};
use crate::fold::{DataBlocks, Folded, Pages, SliceBatch};
use crate::gate::Closed;
use crate::pool::{Pool, Roots};
use crate::root::{self, SliceRoot};
use crate::superblock::BLOCK_BYTES;
use pmem::{Deferred, InFlight};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// How often a fold that found no space is tried again.
const FOLDS_MAX: u32 = 50;

/// Where the line begins in a root that holds its checksum.
const CHECKSUM_LINE: u64 = (size_of::<SliceRoot>() - pmem::LINE_BYTES) as u64;

/// Where a checkpoint cuts the log.
#[derive(Debug)]
pub struct Cut {
    /// Bytes stored in place before it, by slice, not yet flushed.
    in_place: Vec<Vec<Deferred>>,
    /// Blocks of the payloads of records before it.
    spilled: Vec<Extent>,
    floors: Vec<u64>,
    inodes_next: Vec<u64>,
    inodes: u64,
}

/// What a checkpoint wrote.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Bytes of tree pages, roots, and lines stored in place.
    pub bytes: u64,
    /// Pages of the old trees, to be retired (unless the free space is loaded anew).
    pub freed: Vec<BlockAddr>,
}

impl Pool {
    /// Cuts the log, with `inodes` existing: the changes taken while the gate is closed are exactly
    /// those before the cut.
    pub fn cut(&self, _closed: &Closed<'_>, inodes: u64) -> Cut {
        Cut {
            inodes,
            in_place: self.take_in_place(),
            spilled: self.take_spilled(),
            floors: self.slices.iter().map(|slice| slice.log.cut()).collect(),
            inodes_next: self
                .slices
                .iter()
                .map(|slice| slice.inode_next.load(Ordering::Relaxed))
                .collect(),
        }
    }

    /// Folds `batch` and switches all slices to the new generation. On an error the pool is
    /// poisoned: the log still holds everything, and the next open recovers it.
    pub fn commit(
        &self,
        mut cut: Cut,
        batch: &[SliceBatch],
        blocks: &dyn DataBlocks,
    ) -> Result<Written> {
        if self.slices.iter().any(|slice| slice.space.freed_twice()) {
            let what = "a block was freed twice: it had two owners".to_owned();
            self.poison(&what);
            return Err(Error::Damaged { slice: 0, offset: 0, what });
        }
        let mut pages = Pages::default();
        let mut folded = self.fold(batch, blocks, &mut pages);
        for _ in 0..FOLDS_MAX {
            if !matches!(folded, Err(Error::NoSpace)) {
                break;
            }
            // nothing is switched yet: the reserve may still wait for readers of the last fold
            self.give_pages(&pages);
            self.reclaim.gather_all();
            std::thread::sleep(std::time::Duration::from_millis(1));
            pages = Pages::default();
            folded = self.fold(batch, blocks, &mut pages);
        }
        let lines = self.flush_in_place(&mut cut, &mut pages);
        let result = folded.and_then(|folded| self.switch(&cut, &folded, &mut pages));
        match &result {
            Ok(()) => self.give_spilled(std::mem::take(&mut cut.spilled)),
            Err(error) => self.poison(&format!("a checkpoint failed: {error}")),
        }
        let pages_now = self.tree_pages.load(Ordering::Relaxed) + pages.more;
        let pages_now = pages_now.saturating_sub(pages.less);
        self.tree_pages.store(pages_now, Ordering::Relaxed);
        let bytes = (pages.new.len() + self.slices.len()) as u64 * BLOCK_BYTES;
        let bytes = bytes + lines * pmem::LINE_BYTES as u64;
        result.map(|()| Written { bytes, freed: pages.freed })
    }

    /// Sends on their way what was stored in place before the cut; gives the number of lines.
    fn flush_in_place(&self, cut: &mut Cut, pages: &mut Pages) -> u64 {
        let mut all = 0;
        for (slice, stored) in self.slices.iter().zip(cut.in_place.drain(..)) {
            let (in_flight, lines) = slice.mapping.flush_deferred(stored);
            let before = pages.in_flight.take().unwrap_or_else(InFlight::none);
            pages.in_flight = Some(before.and(in_flight));
            all += lines;
        }
        all
    }

    /// Pages of a fold that came to nothing.
    fn give_pages(&self, pages: &Pages) {
        for addr in &pages.new {
            self.slices[usize::from(addr.slice())].space.give(&[addr.block()]);
        }
    }

    /// Takes away the line with the checksum of the root in each slice's slot, so that it is none.
    /// While the line is on its way, that cannot make a torn root whole.
    fn void_slots(&self, slots: &[usize]) -> InFlight {
        let mut written = InFlight::none();
        for (slice, slot) in self.slices.iter().zip(slots) {
            for block in root::blocks(*slot) {
                let place = block * BLOCK_BYTES + CHECKSUM_LINE;
                written = written.and(slice.mapping.write(place, &[0; pmem::LINE_BYTES]));
            }
        }
        written
    }

    pub(crate) fn switch(&self, cut: &Cut, folded: &Folded, pages: &mut Pages) -> Result<()> {
        let old = self.roots();
        let slots: Vec<usize> = old.slots.iter().map(|slot| 1 - slot).collect();
        let written = pages.in_flight.take().unwrap_or_else(InFlight::none);
        let _ = pmem::fence(written.and(self.void_slots(&slots)));
        self.sync()?;
        // all of them break together
        if self.slices[0].mapping.broken() {
            return Err(Error::store_lost());
        }
        let mut highest = self.generation_highest.lock();
        let generation = *highest + 1;
        let mut written = InFlight::none();
        for (index, slice) in self.slices.iter().enumerate() {
            let mut root = SliceRoot::new(slice.superblock.slice_uuid);
            root.generation = U64::new(generation);
            root.log_floor = U64::new(cut.floors[index]);
            root.inode_next = U64::new(cut.inodes_next[index]);
            root.inodes = U64::new(if index == 0 { cut.inodes } else { 0 });
            root.blocks_free = U64::new(slice.space.free());
            root.set_trees(&folded.trees[index], &folded.spaces[index]);
            let root = root.seal();
            for block in root::blocks(slots[index]) {
                let place = block * BLOCK_BYTES;
                written = written.and(slice.mapping.write(place, root.as_bytes()));
            }
        }
        let _ = pmem::fence(written);
        self.sync()?;
        *highest = generation;
        self.roots.store(Arc::new(Roots {
            generation,
            trees: folded.trees.clone(),
            spaces: folded.spaces.clone(),
            slots,
        }));
        for (slice, floor) in self.slices.iter().zip(&cut.floors) {
            slice.log.release(*floor, generation);
        }
        Ok(())
    }
}
