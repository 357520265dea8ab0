//! One slot of a leaf, as readers see it, and what may change in it.

use crate::item::Placed;
use crate::patches::Patches;
use pool::{BLOCK_BYTES, BlockAddr};
use std::sync::Arc;

/// Checksum of a block of zeros.
const ZEROS_CRC: u32 = pmem::crc32c_of_zeros(BLOCK_BYTES);

/// One slot, copied out.
#[derive(Clone, Debug, Default)]
pub struct SlotView {
    /// Where the block is; none: a hole, for which a block may be reserved.
    pub addr: BlockAddr,
    /// Checksum of the block with the patches over it.
    pub crc: u32,
    /// Whether the checksum was verified.
    pub verified: bool,
    /// Whether the block may have other places, too: then its bytes never change.
    pub shared: bool,
    /// Whether a block is set aside for it, which is not written.
    pub reserved: bool,
    /// What overlays it.
    pub patches: Option<Arc<Patches>>,
}

impl SlotView {
    /// Whether there is neither a block nor a patch.
    pub fn is_hole(&self) -> bool {
        self.addr.is_none() && self.patches.is_none()
    }

    /// Whether there is a hole that no block is reserved for.
    pub fn lacks_a_block(&self) -> bool {
        self.addr.is_none() && !self.reserved
    }

    /// The checksum of what is seen.
    #[inline]
    pub fn crc_seen(&self) -> u32 {
        if self.is_hole() { ZEROS_CRC } else { self.crc }
    }
}

/// What changed in one slot.
#[derive(Debug)]
pub enum SlotChange<'d> {
    /// A block took its place, with all that overlaid it.
    Place(Placed),
    /// The same, by a record of the log: nobody has seen the block since open.
    Recover(Placed),
    /// A block took its place that is not written yet: the patches are all that it is to hold.
    Unwritten(Placed, Arc<Patches>),
    /// This block is set aside for it: it is a hole.
    Reserve(BlockAddr),
    /// It moved here, with what overlaid it; its bytes are as they were.
    Move(BlockAddr),
    /// Patches overlay it, and this is the checksum of what is seen.
    Patch(Arc<Patches>, u32),
    /// Bytes of the block change.
    InPlace(InPlace<'d>),
    /// A block that has another place took this one, too, with what overlays it there.
    Share(SlotView),
    /// The block, if there is one, has more places from now on.
    Mark,
    /// It is a hole.
    Clear,
}

impl SlotChange<'_> {
    /// Whether there is a block afterwards, and not the one before, unless that was reserved.
    #[inline]
    pub fn places_a_block(&self) -> bool {
        match self {
            SlotChange::Place(_) | SlotChange::Recover(_) => true,
            SlotChange::Unwritten(..) | SlotChange::Share(_) | SlotChange::Reserve(_) => true,
            SlotChange::Patch(..) | SlotChange::InPlace(_) | SlotChange::Move(_) => false,
            SlotChange::Mark | SlotChange::Clear => false,
        }
    }
}

/// Bytes of a block that change in place: they are in the log already.
#[derive(Clone, Copy, Debug)]
pub struct InPlace<'d> {
    /// The block.
    pub addr: BlockAddr,
    /// Where in it.
    pub at: usize,
    /// The new bytes.
    pub data: &'d [u8],
    /// The block's checksum with them.
    pub crc: u32,
}

/// What a publication did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    /// The block that lost its place; none, if there was none.
    pub old: BlockAddr,
    /// That block may have other places.
    pub shared: bool,
    /// The slot has the block that it had: it was reserved.
    pub kept: bool,
    /// The slot has patches to be folded, and had none before.
    pub first_patch: bool,
}

/// Blocks that lost a place.
#[derive(Debug, Default)]
pub struct Freed {
    /// Blocks that had no other place.
    pub blocks: Vec<BlockAddr>,
    /// Blocks that may have others: their references are counted.
    pub shared: Vec<BlockAddr>,
}

impl Freed {
    /// One more.
    #[inline]
    pub fn push(&mut self, addr: BlockAddr, shared: bool) {
        if shared { self.shared.push(addr) } else { self.blocks.push(addr) }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.blocks.len() + self.shared.len()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = BlockAddr> {
        self.blocks.iter().chain(&self.shared).copied()
    }

    /// Takes over what `other` has.
    pub fn extend(&mut self, other: Freed) {
        self.blocks.extend(other.blocks);
        self.shared.extend(other.shared);
    }
}
