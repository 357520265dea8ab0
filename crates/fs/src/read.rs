//! Reading a file: without a lock, one version of all blocks of the call.
//!
//! 1. pin an epoch, so that no block is used again while it is copied;
//! 2. copy the slots of all blocks, and the size;
//! 3. take them only if no leaf published meanwhile, else begin again;
//! 4. copy the data out of the blocks.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::leaf::{Leaf, SlotView};
use crate::leaves::leaf_of;
use pool::{BLOCK_BYTES, BlockAddr};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Views that a thread keeps room for between calls: of a read of 4 MiB.
const VIEWS_MAX: usize = 1024;

thread_local! {
    static VIEWS: Cell<Vec<SlotView>> = const { Cell::new(Vec::new()) };
}

/// A leaf that was read, with the number it was read under; none: it was a hole.
type Seen = (u64, Option<(Arc<Leaf>, u64)>);

impl Core {
    /// Reads at `offset`; fewer bytes than asked only at the end of the file.
    pub fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let _pin = crossbeam_epoch::pin();
        let mut views = VIEWS.take();
        let result = self.read_pinned(inode, offset, buffer, &mut views);
        views.clear();
        views.shrink_to(VIEWS_MAX);
        VIEWS.set(views);
        result
    }

    fn read_pinned(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
        views: &mut Vec<SlotView>,
    ) -> Result<usize> {
        loop {
            let size = inode.size.load(Ordering::Acquire);
            if offset >= size || buffer.is_empty() {
                return Ok(0);
            }
            let len = (buffer.len() as u64).min(size - offset) as usize;
            let first = offset / BLOCK_BYTES;
            let last = (offset + len as u64 - 1) / BLOCK_BYTES;
            let one_leaf = leaf_of(first).0 == leaf_of(last).0;
            let whole = if one_leaf {
                self.view_one_leaf(inode, first, last, size, views)?
            } else {
                self.view_leaves(inode, first, last, size, views)?
            };
            if whole {
                self.copy_out(inode, first, views, offset, &mut buffer[..len])?;
                return Ok(len);
            }
        }
    }

    #[inline]
    fn view_one_leaf(
        &self,
        inode: &Inode,
        first: u64,
        last: u64,
        size: u64,
        views: &mut Vec<SlotView>,
    ) -> Result<bool> {
        let (index, slot) = leaf_of(first);
        views.clear();
        if let Some(lent) = inode.map.lent(index)
            && let Some(leaf) = lent.as_ref()
        {
            return Ok(view_slots(inode, leaf, slot, (last - first) as usize + 1, size, views));
        }
        let Some(leaf) = self.leaf(inode, index)? else {
            views.resize((last - first + 1) as usize, SlotView::default());
            return Ok(
                inode.map.cached(index).is_none() && inode.size.load(Ordering::Acquire) == size
            );
        };
        Ok(view_slots(inode, &leaf, slot, (last - first) as usize + 1, size, views))
    }

    fn view_leaves(
        &self,
        inode: &Inode,
        first: u64,
        last: u64,
        size: u64,
        views: &mut Vec<SlotView>,
    ) -> Result<bool> {
        views.clear();
        let mut seen: Vec<Seen> = Vec::new();
        for index in leaf_of(first).0..=leaf_of(last).0 {
            let leaf = match self.leaf(inode, index)? {
                Some(leaf) => match leaf.begin_read() {
                    Some(sequence) => Some((leaf, sequence)),
                    None => return Ok(false),
                },
                None => None,
            };
            seen.push((index, leaf));
        }
        for block in first..=last {
            let (index, slot) = leaf_of(block);
            let leaf = &seen[(index - leaf_of(first).0) as usize].1;
            views.push(leaf.as_ref().map_or_else(SlotView::default, |(leaf, _)| leaf.view(slot)));
        }
        let same_size = inode.size.load(Ordering::Acquire) == size;
        Ok(same_size
            && seen.iter().all(|(index, leaf)| match leaf {
                Some((leaf, sequence)) => leaf.still(*sequence),
                None => inode.map.cached(*index).is_none(),
            }))
    }

    fn copy_out(
        &self,
        inode: &Inode,
        first: u64,
        views: &[SlotView],
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let mut at = (offset - first * BLOCK_BYTES) as usize;
        let mut done = 0;
        let mut index = 0;
        while done < buffer.len() {
            let run = run_length(&views[index..]);
            let len = (run * BLOCK - at).min(buffer.len() - done);
            let out = &mut buffer[done..done + len];
            if run > 1 || is_plain(&views[index]) {
                self.pool.read(views[index].addr, at as u64, out)?;
            } else {
                self.copy_block(inode, first + index as u64, &views[index], at, out)?;
            }
            done += len;
            index += run;
            at = 0;
        }
        Ok(())
    }

    /// Copies a part of one block out: hole, patches and a checksum not yet verified included.
    pub fn copy_block(
        &self,
        inode: &Inode,
        block: u64,
        view: &SlotView,
        at: usize,
        out: &mut [u8],
    ) -> Result<()> {
        if view.addr.is_none() {
            out.fill(0);
        } else if view.verified {
            self.pool.read(view.addr, at as u64, out)?;
        } else {
            let crc = if at == 0 && out.len() == BLOCK {
                self.pool.read_crc(view.addr, out)?
            } else {
                let mut whole = [0u8; BLOCK];
                let crc = self.pool.read_crc(view.addr, &mut whole)?;
                out.copy_from_slice(&whole[at..at + out.len()]);
                crc
            };
            if crc != view.crc {
                return Err(damaged_block(inode, block, view.addr));
            }
            let (index, slot) = leaf_of(block);
            if let Some(leaf) = inode.map.cached(index) {
                leaf.set_verified(slot, view.addr);
            }
        }
        if let Some(patches) = &view.patches {
            patches.apply(at, out);
        }
        Ok(())
    }

    /// One slot as it is now. The caller holds the block's range, or the gate is closed.
    pub fn view_block(&self, inode: &Inode, block: u64) -> Result<SlotView> {
        let (index, slot) = leaf_of(block);
        loop {
            let Some(leaf) = self.leaf(inode, index)? else { return Ok(SlotView::default()) };
            if let Some(sequence) = leaf.begin_read() {
                let view = leaf.view(slot);
                if leaf.still(sequence) {
                    return Ok(view);
                }
            }
        }
    }
}

/// Copies slots of one leaf; false if they, or the size, changed meanwhile.
#[inline]
fn view_slots(
    inode: &Inode,
    leaf: &Leaf,
    slot: usize,
    count: usize,
    size: u64,
    views: &mut Vec<SlotView>,
) -> bool {
    let Some(sequence) = leaf.begin_read() else { return false };
    views.extend((slot..slot + count).map(|slot| leaf.view(slot)));
    let same_size = inode.size.load(Ordering::Acquire) == size;
    same_size && leaf.still(sequence)
}

/// The error of a block that does not match its checksum.
pub fn damaged_block(inode: &Inode, block: u64, addr: BlockAddr) -> Error {
    Error::Damaged(format!(
        "inode {}, file offset {}: the block at slice {}, byte {} does not match its checksum",
        inode.ino.0,
        block * BLOCK_BYTES,
        addr.slice(),
        addr.block() * BLOCK_BYTES
    ))
}

#[inline]
fn is_plain(view: &SlotView) -> bool {
    view.verified && view.patches.is_none() && !view.addr.is_none()
}

/// How many views from the first on are neighbours in PM that can be copied in one go.
#[inline]
fn run_length(views: &[SlotView]) -> usize {
    let Some(first) = views.first().filter(|view| is_plain(view)) else { return 1 };
    let neighbours = views.iter().enumerate().take_while(|(i, view)| {
        is_plain(view) && view.addr.bits() == first.addr.bits() + *i as u64
    });
    neighbours.count()
}
