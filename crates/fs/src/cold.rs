//! Which blocks of a leaf can be moved to the capacity tier, and have been left alone for a while.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::leaf::{LEAF_BLOCKS, Leaf};
use crate::slot::SlotView;
use crate::types::{FileKind, Ino};
use pool::BLOCK_BYTES;
use std::sync::Arc;

const BLOCK: usize = BLOCK_BYTES as usize;

/// A block that is to move: as it was when it was looked at.
pub struct Cold {
    /// Which of the file.
    pub block: u64,
    /// Its slot.
    pub view: SlotView,
}

/// Blocks of one leaf that can be moved.
pub struct ColdLeaf {
    /// The file.
    pub inode: Arc<Inode>,
    /// Which leaf of it.
    pub index: u64,
    /// Blocks whose bytes were copied.
    pub blocks: Vec<Cold>,
    /// Shared ones that lie on the tier already.
    pub twins: Vec<u64>,
    /// Blocks that are set aside, not written.
    pub reserved: Vec<u64>,
    /// There are others, for another time.
    more: bool,
}

impl ColdLeaf {
    fn new(inode: Arc<Inode>, index: u64) -> ColdLeaf {
        let (blocks, twins, reserved) = (Vec::new(), Vec::new(), Vec::new());
        ColdLeaf { inode, index, blocks, twins, reserved, more: false }
    }

    /// One block of it, as it was when it was looked at.
    pub fn of_block(inode: Arc<Inode>, block: u64, view: SlotView) -> ColdLeaf {
        let mut cold = ColdLeaf::new(inode, block / LEAF_BLOCKS);
        cold.blocks.push(Cold { block, view });
        cold
    }

    fn has_any(&self) -> bool {
        self.more || self.blocks.len() + self.twins.len() + self.reserved.len() > 0
    }
}

impl Core {
    /// The blocks of a leaf that can be moved and that nobody used since it came by last, with
    /// their bytes behind `data`. `None`: it has none in slices that ever could be.
    pub fn cold_blocks(
        &self,
        ino: Ino,
        index: u64,
        data: &mut Vec<u8>,
    ) -> Result<Option<ColdLeaf>> {
        let inode = match self.inode(ino) {
            Ok(inode) if inode.kind == FileKind::File => inode,
            Ok(_) | Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(leaf) = self.leaf(&inode, index)? else { return Ok(None) };
        let mut cold = ColdLeaf::new(inode, index);
        match leaf.lock() {
            Some(_lock) => leaf.unlist(),
            // the one that took its place has its marks
            None => {
                cold.more = true;
                return Ok(Some(cold));
            }
        }
        for slot in 0..leaf.room() {
            self.look_at(&leaf, slot, &mut cold, data);
        }
        Ok(cold.has_any().then_some(cold))
    }

    /// Adds one slot of a leaf to what can be moved, if it can.
    fn look_at(&self, leaf: &Leaf, slot: usize, cold: &mut ColdLeaf, data: &mut Vec<u8>) {
        let block = cold.index * LEAF_BLOCKS + slot as u64;
        // the pin keeps the block from being used again while it is copied
        let _pin = crossbeam_epoch::pin();
        let Some(sequence) = leaf.begin_read() else {
            cold.more = true;
            return;
        };
        let view = leaf.view(slot);
        if view.reserved {
            if leaf.reserved(slot).is_some_and(|addr| addr.device().is_none()) {
                cold.reserved.push(block);
            }
            return;
        }
        if view.addr.is_none() || view.addr.device().is_some() {
            return;
        }
        // one that is not written yet is the next checkpoint's to write
        if leaf.unwritten(slot).is_some() || leaf.cool(slot) {
            cold.more = true;
            return;
        }
        if view.shared && view.patches.is_none() && self.references.twins.has(view.addr) {
            cold.twins.push(block);
            return;
        }
        let bytes = self.read_under(view.addr, view.patches.as_deref());
        let is_whole = |bytes: &[u8; BLOCK]| pmem::crc_fits(pmem::crc32c(0, bytes), view.crc);
        match bytes {
            Ok(bytes) if leaf.still(sequence) && is_whole(&bytes) => {
                data.extend_from_slice(&bytes);
                cold.blocks.push(Cold { block, view });
            }
            // it changed meanwhile, or is damaged: then it stays for those who mend it
            _ => cold.more = true,
        }
    }
}
