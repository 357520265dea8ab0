//! Which blocks of a leaf can be moved from one slice to the capacity tier, and have been left
//! alone for a while.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::leaf::{LEAF_BLOCKS, Leaf};
use crate::lines::Place;
use crate::slot::SlotView;
use crate::types::{FileKind, Ino};
use pool::BlockAddr;
use std::collections::HashSet;
use std::sync::Arc;
use tier::BlockList;

/// How often a block is looked at while its leaf changes each time.
const LOOKS_MAX: usize = 8;

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
    /// The slice in which its blocks lie.
    pub slice: Option<u8>,
    /// Blocks whose bytes were copied.
    pub blocks: Vec<Cold>,
    /// Shared ones that lie on the tier already, or will once this batch is written.
    pub twins: Vec<u64>,
    /// Blocks that are set aside, not written.
    pub reserved: Vec<u64>,
    /// There are others, for another time.
    pub more: bool,
}

impl ColdLeaf {
    fn new(inode: Arc<Inode>, index: u64, slice: Option<u8>) -> ColdLeaf {
        let (blocks, twins, reserved) = (Vec::new(), Vec::new(), Vec::new());
        ColdLeaf { inode, index, slice, blocks, twins, reserved, more: false }
    }

    /// One block of it, as it was when it was looked at.
    pub fn of_block(inode: Arc<Inode>, block: u64, view: SlotView) -> ColdLeaf {
        let slice = view.addr.device().is_none().then(|| view.addr.slice());
        let mut cold = ColdLeaf::new(inode, block / LEAF_BLOCKS, slice);
        cold.blocks.push(Cold { block, view });
        cold
    }

    /// Where the shared blocks lie whose bytes were copied: whoever else has them in the same batch
    /// names the place that they get.
    pub fn shared(&self) -> impl Iterator<Item = BlockAddr> {
        let views = self.blocks.iter().map(|it| &it.view);
        views.filter(|view| view.shared && view.patches.is_none()).map(|view| view.addr)
    }

    /// How many of its blocks can be moved.
    pub fn len(&self) -> usize {
        self.blocks.len() + self.twins.len() + self.reserved.len()
    }
}

impl Core {
    /// The file, if there is one that may have blocks to be written back.
    pub fn inode_to_cool(&self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        match self.inode(ino) {
            Ok(inode) if inode.kind == FileKind::File => Ok(Some(inode)),
            Ok(_) | Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The blocks of a leaf in this slice that can be moved and that nobody used since it came by
    /// last (or `all`), with their bytes behind `data`, but for shared ones that the batch has
    /// `copied` for another place. `None`: it has none there that ever could be.
    pub fn cold_blocks(
        &self,
        (ino, index): Place,
        slice: u8,
        all: bool,
        copied: &HashSet<BlockAddr>,
        data: &mut BlockList,
    ) -> Result<Option<ColdLeaf>> {
        let Some(inode) = self.inode_to_cool(ino)? else { return Ok(None) };
        let before = data.len();
        loop {
            let Some(leaf) = self.leaf(&inode, index)? else { return Ok(None) };
            let mut cold = ColdLeaf::new(inode.clone(), index, Some(slice));
            let mut slots = 0..leaf.room();
            if slots.all(|slot| self.look_at(&leaf, slot, all, copied, &mut cold, data).is_some()) {
                return Ok((cold.more || cold.len() > 0).then_some(cold));
            }
            // the leaf is dead: there is another one in its place, or none
            data.truncate(before);
        }
    }

    /// Adds one slot of a leaf to what can be moved, if it can. `None`: the leaf is dead.
    fn look_at(
        &self,
        leaf: &Leaf,
        slot: usize,
        all: bool,
        copied: &HashSet<BlockAddr>,
        cold: &mut ColdLeaf,
        data: &mut BlockList,
    ) -> Option<()> {
        let block = cold.index * LEAF_BLOCKS + slot as u64;
        // the pin keeps the block from being used again while it is copied
        let _pin = crossbeam_epoch::pin();
        for _ in 0..LOOKS_MAX {
            let sequence = leaf.begin_read()?;
            let view = leaf.view(slot);
            let addr = leaf.reserved(slot).filter(|_| view.reserved).unwrap_or(view.addr);
            if addr.is_none() || Some(addr.slice()) != cold.slice {
                return Some(());
            }
            if view.reserved {
                cold.reserved.push(block);
                return Some(());
            }
            // one that is not written yet is the next checkpoint's to write
            if leaf.unwritten(slot).is_some() || leaf.cool(slot) && !all {
                break;
            }
            let is_twin = || {
                copied.contains(&view.addr)
                    || cold.shared().any(|addr| addr == view.addr)
                    || self.references.twins.has(view.addr)
            };
            if view.shared && view.patches.is_none() && is_twin() {
                cold.twins.push(block);
                return Some(());
            }
            let before = data.len();
            let bytes = data.push();
            let is_whole = self.read_under_into(view.addr, view.patches.as_deref(), bytes).is_ok()
                && pmem::crc_fits(pmem::crc32c(0, bytes), view.crc);
            let is_still = leaf.still(sequence);
            if is_still && is_whole {
                cold.blocks.push(Cold { block, view });
                return Some(());
            }
            data.truncate(before);
            if is_still {
                // it is damaged: then it stays for those who mend it
                break;
            }
            // it changed meanwhile, or others of the leaf did
        }
        cold.more = true;
        Some(())
    }
}
