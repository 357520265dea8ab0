//! Clean copies: which blocks of the capacity tier lie in slices, too, and for how long.
//!
//! What moves to the tier leaves one behind, and what is read often gets one, while enough of the
//! slices is free for files and for the trees. They are let go of before anybody has to wait. See
//! `tier::Tier` for what they keep true.

use crate::core::Core;
use crate::leaf::LEAF_BLOCKS;
use crate::write_back::{BATCH_BLOCKS, SliceRoom};
use pool::BlockAddr;
use std::collections::HashSet;

/// The share of the slices' blocks, in percent, that is kept free of clean copies.
const FREE_PERCENT: u64 = 25;

impl SliceRoom {
    /// What is kept free of clean copies.
    fn kept_free(&self) -> u64 {
        (self.blocks * FREE_PERCENT).div_ceil(100)
    }

    /// Whether so little is free that clean copies are to go.
    fn is_crowded(&self) -> bool {
        self.free < self.kept_free()
    }
}

impl Core {
    /// Keeps blocks of slices as copies of those that took their places, while there is room.
    pub fn keep_clean(&self, pairs: &[(BlockAddr, BlockAddr)], freed: &mut Vec<BlockAddr>) {
        let Some(tier) = self.tier.as_ref().filter(|_| !self.slice_room().is_crowded()) else {
            return;
        };
        for (near, far) in pairs {
            tier.keep(*far, *near);
        }
        let kept: HashSet<&BlockAddr> = pairs.iter().map(|(near, _)| near).collect();
        freed.retain(|addr| !kept.contains(addr));
    }

    /// Lets go of clean copies until as much is free as is to be, one batch at least.
    pub fn let_go_of_copies(&self) -> u64 {
        let Some(tier) = self.tier.as_ref().filter(|tier| tier.copies() > 0) else { return 0 };
        let room = self.slice_room();
        let lacking = room.kept_free().saturating_sub(room.free);
        tier.evict_copies(lacking.max(BATCH_BLOCKS as u64))
    }

    /// Lets go of copies where room is scarce, and makes some of what is read often where it is
    /// not. For the thread that writes back.
    pub fn tend_copies(&self) {
        let Some(tier) = &self.tier else { return };
        let room = self.slice_room();
        if room.is_crowded() {
            self.let_go_of_copies();
            return;
        }
        let slices = self.pool.slices().len() as u64;
        let spare = room.free - room.kept_free();
        for addr in tier.take_hot().into_iter().take(spare as usize) {
            let slice = (addr.block() / LEAF_BLOCKS % slices) as u8;
            let Ok(near) = self.pool.reclaim().allocate_one(slice) else { return };
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
