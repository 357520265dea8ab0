//! Clean copies: which blocks of the capacity tier lie in slices, too, and for how long.
//!
//! What moves to the tier leaves one behind, and what is read often gets one, while enough of their
//! slice is free for files and for the trees. They are let go of before anybody has to wait. See
//! `tier::Tier` for what they keep true.

use crate::core::Core;
use crate::leaf::LEAF_BLOCKS;
use crate::write_back::{BATCH_BLOCKS, SliceRoom};
use pool::BlockAddr;
use std::collections::HashSet;

/// The share of a slice's blocks, in percent, that is kept free of clean copies.
const FREE_PERCENT: u64 = 25;

impl SliceRoom {
    /// What is kept free of clean copies.
    fn kept_free(&self) -> u64 {
        (self.blocks * FREE_PERCENT).div_ceil(100)
    }

    /// What is to become free of clean copies.
    fn lacking(&self) -> u64 {
        self.kept_free().saturating_sub(self.free)
    }

    /// Whether so little is free that clean copies are to go.
    fn is_crowded(&self) -> bool {
        self.free < self.kept_free()
    }
}

impl Core {
    /// Whether so little of a slice is free that clean copies are to go.
    pub fn is_crowded(&self, slice: u8) -> bool {
        self.room_in(slice.into()).is_crowded()
    }

    /// Keeps blocks of slices as copies of those that took their places, while there is room.
    pub fn keep_clean(&self, pairs: &[(BlockAddr, BlockAddr)], freed: &mut Vec<BlockAddr>) {
        let Some(tier) = &self.tier else { return };
        let mut kept = HashSet::new();
        for pairs in pairs.chunk_by(|(one, _), (next, _)| one.slice() == next.slice()) {
            if !self.is_crowded(pairs[0].0.slice()) {
                let own = pairs.iter().filter(|(near, far)| tier.keep(*far, *near));
                kept.extend(own.map(|(near, _)| *near));
            }
        }
        freed.retain(|addr| !kept.contains(addr));
    }

    /// Lets go of clean copies in all slices until as much is free as is to be, one batch at least.
    pub fn let_go_of_copies(&self) -> u64 {
        let Some(tier) = self.tier.as_ref().filter(|tier| tier.copies() > 0) else { return 0 };
        let lacking = self.slice_room().lacking();
        tier.evict_copies(lacking.max(BATCH_BLOCKS as u64))
    }

    /// Lets go of copies where a slice has little room, and makes some there of what is read often
    /// where it has some. For the thread that writes it back.
    pub fn tend_copies(&self, slice: usize) {
        let Some(tier) = &self.tier else { return };
        let room = self.room_in(slice);
        if room.is_crowded() {
            tier.evict_copies_in(slice, room.lacking().max(BATCH_BLOCKS as u64));
        }
        let slices = self.pool.slices().len() as u64;
        let is_own = |addr: BlockAddr| addr.block() / LEAF_BLOCKS % slices == slice as u64;
        // taken where there is no room, too: the list is everybody's, and no longer than it may be
        let spare = room.free.saturating_sub(room.kept_free());
        for addr in tier.take_hot(is_own).into_iter().take(spare as usize) {
            let Ok(near) = self.pool.reclaim().allocate_one(slice as u8) else { return };
            // others see the copy only when it is there
            let write = |bytes: &[u8]| {
                pmem::fence(self.pool.write_block(near, bytes).0);
            };
            if !tier.promote(addr, near, write) {
                self.pool.reclaim().give_one(near);
            }
        }
    }
}
