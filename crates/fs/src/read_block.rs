//! One block of a file as it is seen: hole, patches, and a checksum that may not have been verified
//! yet.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::leaves::leaf_of;
use crate::slot::SlotView;
use pool::{BLOCK_BYTES, BlockAddr};
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;

impl Core {
    /// Reads block by block, each as it is at one moment, whatever changes around it: a copy counts
    /// if it matches its checksum, or if nothing of the leaf changed meanwhile.
    #[cold]
    pub fn read_block_by_block(
        &self,
        inode: &Inode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let size = inode.size.load(Ordering::Acquire);
        let len = (buffer.len() as u64).min(size.saturating_sub(offset)) as usize;
        let (mut done, mut whole) = (0, [0; BLOCK]);
        while done < len {
            let at = offset + done as u64;
            self.read_whole(inode, at / BLOCK_BYTES, &mut whole)?;
            let from = (at % BLOCK_BYTES) as usize;
            let part = (BLOCK - from).min(len - done);
            buffer[done..done + part].copy_from_slice(&whole[from..from + part]);
            done += part;
        }
        Ok(len)
    }

    fn read_whole(&self, inode: &Inode, block: u64, whole: &mut [u8; BLOCK]) -> Result<()> {
        loop {
            let _pin = crossbeam_epoch::pin();
            let in_place = self.leaf(inode, leaf_of(block).0)?.map(|leaf| (leaf.in_place(), leaf));
            let view = self.view_block(inode, block)?;
            if view.is_hole() {
                whole.fill(0);
                return Ok(());
            }
            *whole = match view.addr.is_none() {
                true => [0; BLOCK],
                false => self.read_under(view.addr, None)?,
            };
            if let Some(patches) = &view.patches {
                patches.apply(0, whole);
            }
            if pmem::crc_fits(pmem::crc32c(0, whole), view.crc) {
                return Ok(());
            }
            let is_still = |(noted, leaf): &(u64, std::sync::Arc<crate::leaf::Leaf>)| {
                leaf.still_in_place(*noted)
            };
            if in_place.as_ref().is_some_and(is_still) {
                return Err(damaged_block(inode, block, view.addr));
            }
            std::hint::spin_loop();
        }
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
        if view.patches.as_ref().is_some_and(|patches| patches.cover_all()) {
            // the block may not even be written yet
        } else if view.addr.is_none() {
            out.fill(0);
        } else if view.verified {
            if let Err(error) = self.pool.read(view.addr, at as u64, out) {
                return self.read_other(view, at, out).ok_or(error.into());
            }
        } else {
            return self.verify_block(inode, block, view, at, out);
        }
        if let Some(patches) = &view.patches {
            patches.apply(at, out);
        }
        Ok(())
    }

    /// The same, and the block's checksum must fit what is seen of it.
    fn verify_block(
        &self,
        inode: &Inode,
        block: u64,
        view: &SlotView,
        at: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let fits = if view.patches.is_none() && view.addr.device().is_some() {
            self.read_part_below(view.addr, view.crc, at, out)
        } else if at == 0 && out.len() == BLOCK && view.patches.is_none() {
            let crc = self.pool.read_crc(view.addr, out).map_err(Error::from);
            crc.map(|crc| pmem::crc_fits(crc, view.crc))
        } else {
            self.read_under(view.addr, view.patches.as_deref()).map(|whole| {
                out.copy_from_slice(&whole[at..at + out.len()]);
                pmem::crc_fits(pmem::crc32c(0, &whole), view.crc)
            })
        };
        let bad = match fits {
            Ok(true) => None,
            Ok(false) if self.forget_page(view.addr) => Some(pool::Error::Away(view.addr).into()),
            Ok(false) => {
                self.withdraw(view.addr);
                Some(damaged_block(inode, block, view.addr))
            }
            Err(error) => Some(error),
        };
        if let Some(bad) = bad {
            // not as one that was verified: those are read in the first copy
            return self.read_other(view, at, out).ok_or(bad);
        }
        let (index, slot) = leaf_of(block);
        if view.addr.device().is_none()
            && let Some(leaf) = inode.map.cached(index)
        {
            leaf.set_verified(slot, view.addr);
        }
        Ok(())
    }

    /// A part of a block, with what lies over it, from the mirror, if that fits its checksum.
    #[cold]
    fn read_other(&self, view: &SlotView, at: usize, out: &mut [u8]) -> Option<()> {
        let whole = self.read_mirror(view.addr, view.patches.as_deref(), view.crc)?;
        out.copy_from_slice(&whole[at..at + out.len()]);
        Some(())
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

/// The error of a block that does not match its checksum.
pub fn damaged_block(inode: &Inode, block: u64, addr: BlockAddr) -> Error {
    Error::Damaged(format!(
        "inode {}, file offset {}: the block at {} does not match its checksum",
        inode.ino.0,
        block * BLOCK_BYTES,
        addr.place()
    ))
}
