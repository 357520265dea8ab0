//! Blocks whose data the log holds: in the `sync` domain, for files that are synced often.
//!
//! A sync waits for every page that was stored to. A record that holds the data lies in one place,
//! with the records of others behind it; a block and a record are two places, and on most media
//! two waits. So small writes of a file that is synced after a few of them go into the log whole.
//!
//! What is written in which order, and what a crash between leaves:
//! 1. the record, with the block's address, checksum and data; the block is taken, not written;
//! 2. a sync closes the epoch;
//! 3. a checkpoint writes the block (before the cut as far as it can), syncs, and switches the
//!    roots.
//!
//! The block is written by a thread that holds neither the range nor the gate: a writer that
//! looked at the slot before may find its patches gone when it publishes. Patches that cover the
//! whole block are always a block to be written.
//!
//! A crash before 3 leaves the record; replay puts the data over the block again, and recovery's
//! checkpoint writes it. Until then readers see the data in DRAM; it is bounded by the log.

use crate::core::Core;
use crate::inode::Inode;
use crate::item::INLINE_BYTES;
use crate::leaf::Leaf;
use pmem::Domain;
use pool::BLOCK_BYTES;
use std::sync::atomic::Ordering;

/// Writes without a sync after which a file is no longer one that is synced often.
pub const UNSYNCED_MAX: u32 = 16;
/// Most blocks of one such write.
pub const BLOCKS_MAX: usize = 4;

impl Core {
    /// Whether a write that takes `blocks` blocks puts their data into its record.
    #[inline]
    pub fn inlines(&self, inode: &Inode, blocks: usize) -> bool {
        // ordering: a guess
        !self.stores_in_place
            && blocks <= BLOCKS_MAX
            && (blocks + 1) * INLINE_BYTES <= self.payload_max
            && inode.unsynced.load(Ordering::Relaxed) < UNSYNCED_MAX
    }

    /// Counts a write since the file's last sync.
    #[inline]
    pub fn count_unsynced(&self, inode: &Inode) {
        if !self.stores_in_place {
            // ordering: a guess; a lost count does no harm
            let unsynced = inode.unsynced.load(Ordering::Relaxed);
            inode.unsynced.store(unsynced.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Writes the blocks whose data only the log holds. While writes go on, some may be left.
    pub fn write_blocks(&self) {
        if self.pool.domain() != Domain::Sync {
            return;
        }
        self.each_dirty_leaf(&mut |_, _, leaf| self.write_blocks_of(leaf));
    }

    fn write_blocks_of(&self, leaf: &Leaf) {
        let mut block = [0; BLOCK_BYTES as usize];
        for slot in 0..leaf.room() {
            // the pin keeps the block from being used again, if it is replaced meanwhile
            let _pin = crossbeam_epoch::pin();
            let Some(sequence) = leaf.begin_read() else { return };
            let Some((addr, patches)) = leaf.unwritten(slot) else { continue };
            if !leaf.still(sequence) {
                continue;
            }
            patches.apply(0, &mut block);
            let (in_flight, _) = self.pool.write_block(addr, &block);
            let _ = pmem::fence(in_flight);
            if let Some(lock) = leaf.lock() {
                lock.written(slot, addr, &patches);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::item::Placed;
    use crate::leaf::Leaf;
    use crate::patches::Patches;
    use crate::slot::SlotChange;
    use pool::BlockAddr;
    use std::sync::Arc;

    /// A checkpoint wrote a block between a small write's look at it and its publication. The
    /// write's patches, all of the block, were then taken for a value of the tree, too long for it.
    #[test]
    fn patches_of_a_whole_block_are_written_again_where_the_block_was_written_meanwhile() {
        let leaf = Leaf::new(3);
        let placed = Placed { addr: BlockAddr::new(0, 9), crc: 1 };
        let whole = Arc::new(Patches::whole(&[1; 4096]));
        let publish = |change: SlotChange<'_>| {
            if let Some(lock) = leaf.lock() {
                lock.publish(2, &change);
            }
        };
        publish(SlotChange::Unwritten(placed, whole.clone()));
        let seen = leaf.view(2).patches.map(|patches| patches.with(5, b"new"));
        if let Some(lock) = leaf.lock() {
            lock.written(2, placed.addr, &whole);
        }
        assert!(leaf.unwritten(2).is_none(), "the checkpoint wrote it");
        let all = Arc::new(seen.unwrap_or_default());
        assert!(all.cover_all());
        publish(SlotChange::Patch(all.clone(), 2));
        assert_eq!(leaf.unwritten(2), Some((placed.addr, all.clone())));
        if let Some(lock) = leaf.lock() {
            lock.written(2, placed.addr, &all);
        }
        leaf.fold_patches(&mut |slot, _| assert_ne!(slot, 2, "no value of the tree"));
    }
}
