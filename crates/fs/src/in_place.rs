//! Small writes into a block that is there: the bytes go into the record, and after the record's
//! fence into the block itself.
//!
//! What is written in which order, and what a crash between leaves:
//! 1. the record, with the bytes and the checksum that the block has with them; one fence;
//! 2. the bytes, in place, with ordinary stores that no one waits for;
//! 3. at the next checkpoint: flushes of those lines, a fence, and the roots.
//!
//! A crash after 1 and before 3 leaves the record in the log and any part of the bytes in the
//! block. Replay puts the bytes over the block again, and the checksum fits, because it is that
//! of the block with the bytes over it. So the log is a redo log here: what is overwritten in
//! place was durable elsewhere before.
//!
//! Readers take no lock: [`Leaf::still_in_place`](crate::leaf::Leaf::still_in_place) tells them
//! that what they copied may be half old.
//!
//! Not in the `sync` domain: there the medium may take the block's page before the record's. And
//! not where the block has other places: there the bytes are other files', too (`share.rs`).

use crate::clock::now;
use crate::core::Core;
use crate::error::Result;
use crate::inode::Inode;
use crate::item::{self, Placed};
use crate::leaf::LEAF_BLOCKS;
use crate::leaves::leaf_of;
use crate::patches::Patches;
use crate::slot::{Freed, InPlace, SlotChange, SlotView};
use crate::types::Ino;
use crate::write::grow;
use pool::{BLOCK_BYTES, BlockAddr, KIND_CHANGE, RecordBuffer};
use std::sync::Arc;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Largest piece that is written in place; above it, a block written anew costs the medium less.
pub const IN_PLACE_BYTES_MAX: usize = 1024;

/// Patches that lie over a block after recovery.
#[derive(Debug)]
pub struct Overlay {
    /// The file.
    pub ino: Ino,
    /// Its block.
    pub block: u64,
    /// Where that is.
    pub addr: BlockAddr,
    /// What lies over it.
    pub patches: Arc<Patches>,
}

impl Core {
    /// A write of up to `IN_PLACE_BYTES_MAX` bytes into one block that is verified, not shared and
    /// has no patches, under its range's lock; false if it is no such.
    #[inline(never)]
    pub fn write_small(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<bool> {
        let at = (offset % BLOCK_BYTES) as usize;
        if !self.stores_in_place || at + data.len() > BLOCK {
            return Ok(false);
        }
        let (index, slot) = leaf_of(offset / BLOCK_BYTES);
        let lent = inode.map.lent(index);
        let Some(leaf) = lent.as_ref().and_then(|lent| lent.as_ref()) else { return Ok(false) };
        // the slot stands still: this thread holds its range
        let Some(Placed { addr, crc }) = leaf.plain_own(slot) else { return Ok(false) };
        // a block of which a part cannot be read is not changed in place
        let Ok(difference) = self.pool.crc_difference(addr, at, data) else { return Ok(false) };
        let change = InPlace { addr, at, data, crc: crc ^ difference };
        let time = now();
        let end = offset + data.len() as u64;
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        item::push_patch(&mut record, inode.ino, offset, data, change.crc, end);
        let (stamp, slice) = self.append_one(&mut record, inode)?;
        let grown = || grow(inode, end, time);
        let published = match leaf.lock() {
            Some(lock) => {
                let change = SlotChange::InPlace(change);
                self.publish_locked(inode, (index, leaf), lock, (slot, &change), grown);
                // it owns nothing: to find that out takes a call
                std::mem::forget(change);
                Ok(())
            }
            // grown meanwhile: it is found anew
            None => {
                let change = [SlotChange::InPlace(change)];
                self.publish(inode, offset / BLOCK_BYTES, &change, &mut Freed::default(), grown)
            }
        };
        self.logged(inode, stamp, slice);
        self.published(published)?;
        Ok(true)
    }

    /// The change in place that puts `data` at `at` of the block in `view`; `None` if there is no
    /// block, or it is not to be changed in place. The caller holds the block's range.
    #[inline]
    pub fn in_place<'d>(
        &self,
        inode: &Inode,
        block: u64,
        view: &SlotView,
        at: usize,
        data: &'d [u8],
    ) -> Result<Option<InPlace<'d>>> {
        let may = self.stores_in_place && data.len() <= IN_PLACE_BYTES_MAX;
        let is_away = view.addr.device().is_some();
        if !may || is_away || view.addr.is_none() || view.patches.is_some() || view.shared {
            return Ok(None);
        }
        let crc = match self.crc_with(inode, block, view, at, data) {
            Err(_) if view.verified => return Ok(None),
            crc => crc?,
        };
        Ok(Some(InPlace { addr: view.addr, at, data, crc }))
    }

    /// The checksum of what is seen of the block in `view`, with `data` at `at`, at most
    /// `IN_PLACE_BYTES_MAX`. Whatever is there is verified first: a new checksum must not make
    /// damage look right.
    pub fn crc_with(
        &self,
        inode: &Inode,
        block: u64,
        view: &SlotView,
        at: usize,
        data: &[u8],
    ) -> Result<u32> {
        if view.verified && view.patches.is_none() && !view.addr.is_none() {
            return Ok(view.crc ^ self.pool.crc_difference(view.addr, at, data)?);
        }
        let mut old = [0; IN_PLACE_BYTES_MAX];
        let old = &mut old[..data.len()];
        self.copy_block(inode, block, view, at, old)?;
        let behind = BLOCK - at - data.len();
        Ok(view.crc_seen() ^ pmem::crc32c_difference(old, data, behind))
    }

    /// Checksum of a block with patches over it.
    pub fn crc_under(&self, addr: BlockAddr, patches: Option<&Patches>) -> Result<u32> {
        match patches {
            None if addr.device().is_some() => {
                let mut whole = [0; BLOCK];
                self.read_past_caches(addr, &mut whole)?;
                Ok(pmem::crc32c(0, &whole))
            }
            None => Ok(self.pool.crc(addr)?),
            Some(_) => Ok(pmem::crc32c(0, &self.read_under(addr, patches)?)),
        }
    }

    /// A whole block with patches over it.
    pub fn read_under(&self, addr: BlockAddr, patches: Option<&Patches>) -> Result<[u8; BLOCK]> {
        let mut whole = [0; BLOCK];
        self.read_under_into(addr, patches, &mut whole)?;
        Ok(whole)
    }

    /// The same, stored into `whole`.
    pub fn read_under_into(
        &self,
        addr: BlockAddr,
        patches: Option<&Patches>,
        whole: &mut [u8; BLOCK],
    ) -> Result<()> {
        self.read_raw(addr, whole)?;
        if let Some(patches) = patches {
            patches.apply(0, whole);
        }
        Ok(())
    }

    /// Takes the patches off all blocks that recovery found them over: they are to be put into
    /// the blocks. Nobody else is there.
    pub fn take_overlays(&self) -> Vec<Overlay> {
        let mut overlays = Vec::new();
        self.each_dirty_leaf(&mut |inode, index, leaf| {
            let Some(lock) = leaf.lock() else { return };
            for slot in 0..leaf.room() {
                // in the `sync` domain other patches are the trees' to hold
                let taken = self.stores_in_place || leaf.unwritten(slot).is_some();
                if taken && let Some(patches) = lock.take_patches(slot) {
                    let block = index * LEAF_BLOCKS + slot as u64;
                    let addr = leaf.view(slot).addr;
                    overlays.push(Overlay { ino: inode.ino, block, addr, patches });
                }
            }
        });
        overlays
    }

    /// Puts the bytes of all patches that recovery found over blocks into the blocks.
    pub fn settle_overlays(&self) {
        for overlay in self.take_overlays() {
            for (at, bytes) in overlay.patches.parts() {
                self.pool.store_in_place(overlay.addr, at, bytes);
            }
        }
    }
}
