//! What the capacity tier has done and holds, in numbers.

use crate::core::Core;
use crate::system::FileSystem;
use std::sync::atomic::Ordering;

/// What the capacity tier has done since open, and what it holds. Blocks are of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TierStats {
    /// Looks that found a block of a device in DRAM, or in a slice.
    pub hits: u64,
    /// Blocks that were read from devices.
    pub read_blocks: u64,
    /// Of these ahead of who reads in order.
    pub ahead_blocks: u64,
    /// Blocks that were written to devices; files may have been faster, and not need them there.
    pub written_blocks: u64,
    /// Blocks that files have on devices since, and no longer in slices.
    pub moved_blocks: u64,
    /// Time that changes were delayed by, all together, ns: blocks were written back more slowly
    /// than they took new ones.
    pub delayed_ns: u64,
    /// How often a change found no room at all, and waited for some.
    pub waits: u64,
    /// DRAM in the caches, bytes.
    pub cached_bytes: u64,
    /// Data blocks of all slices.
    pub slice_blocks: u64,
    /// Of these copies of what lies on devices, let go of when their room is needed.
    pub slice_blocks_clean: u64,
    /// Of these neither free for files nor such copies: what is not written back, trees, and what
    /// is kept for them.
    pub slice_blocks_used: u64,
    /// Data blocks of all devices.
    pub device_blocks: u64,
    /// Of these free.
    pub device_blocks_free: u64,
    /// Of these damaged ones, which are not used again until the pool is opened anew.
    pub blocks_withdrawn: u64,
}

impl FileSystem {
    /// What the capacity tier has done since open, and what it holds, if the pool has one.
    pub fn tier_stats(&self) -> Option<TierStats> {
        self.core.tier_stats()
    }

    /// Lets go of what is cached of the capacity tier, if the pool has one; gives how many bytes.
    /// What is being written back just now is waited for, so that its clean copies go, too.
    pub fn evict_caches(&self) -> Option<u64> {
        let tier = self.core.tier.as_ref()?;
        self.core.write_back.wait();
        Some(tier.evict_all())
    }
}

impl Core {
    /// See [`FileSystem::tier_stats`].
    pub fn tier_stats(&self) -> Option<TierStats> {
        let counts = self.tier.as_ref()?.counts();
        let room = self.slice_room();
        let spaces = || self.pool.devices().iter().map(|device| &device.space);
        Some(TierStats {
            hits: counts.hits,
            read_blocks: counts.read_blocks,
            ahead_blocks: counts.ahead_blocks,
            written_blocks: counts.written_blocks,
            moved_blocks: self.write_back.blocks.load(Ordering::Relaxed),
            delayed_ns: self.write_back.delayed().as_nanos() as u64,
            waits: self.write_back.waits.load(Ordering::Relaxed),
            cached_bytes: counts.cached_bytes,
            slice_blocks: room.blocks,
            slice_blocks_used: room.used(),
            slice_blocks_clean: room.copies,
            device_blocks: spaces().map(|space| space.blocks()).sum(),
            device_blocks_free: spaces().map(|space| space.free()).sum(),
            blocks_withdrawn: spaces().map(|space| space.withdrawn.len()).sum(),
        })
    }
}
