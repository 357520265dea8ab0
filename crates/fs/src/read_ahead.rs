//! Reading ahead from the capacity tier: who reads a file in order gets the next blocks with those
//! that he waits for, in the same call to the device.
//!
//! A file knows where the last fetch ended. A read that misses a block there goes on in order, and
//! its window doubles; one that misses a block elsewhere gets what it asked for, and nothing else.

use crate::core::Core;
use crate::error::Result;
use crate::inode::Inode;
use crate::leaf::LEAF_BLOCKS;
use crate::slot::SlotView;
use pool::BlockAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks that are fetched together when a reader goes on in order for the first time.
const WINDOW_MIN: u64 = 8;
/// Most of them: 512 KiB.
const WINDOW_MAX: u64 = 128;
/// Bits of the word that hold the window.
const WINDOW_BITS: u32 = 8;

/// Where the next read of a sequence would miss a block, and the last window. Readers of one file
/// that race make a guess worse, and nothing else.
#[derive(Debug)]
pub struct ReadAhead(AtomicU64);

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        // no file has a block there
        ReadAhead(AtomicU64::new(u64::MAX))
    }
}

impl ReadAhead {
    /// Blocks to be fetched, from `first` on, for a read up to `last` that misses some of them; a
    /// window has at most `most`.
    fn end(&self, first: u64, last: u64, most: u64) -> u64 {
        // ordering: a guess
        let known = self.0.load(Ordering::Relaxed);
        let (expected, before) = (known >> WINDOW_BITS, known & ((1 << WINDOW_BITS) - 1));
        let window = match expected == first {
            true => (before * 2).clamp(WINDOW_MIN, WINDOW_MAX).min(most),
            false => 0,
        };
        let end = (last + 1).max(first + window);
        self.0.store(end << WINDOW_BITS | window, Ordering::Relaxed);
        end
    }
}

impl Core {
    /// Brings into memory what of these views is not, `missing` in any case, and what comes behind
    /// them in the file if they are read in order. The caller holds no lock, nor an epoch.
    #[cold]
    pub fn fetch_for_read(
        &self,
        inode: &Inode,
        (first, last): (u64, u64),
        missing: BlockAddr,
        views: &[SlotView],
    ) -> Result<()> {
        let Some(tier) = &self.tier else { return self.fetch(&[missing]) };
        let end = inode.read_ahead.end(first, last, tier.ahead_max());
        let ahead = self.below(inode, last + 1..end);
        let away = views.iter().map(|view| view.addr);
        let away = away.filter(|addr| addr.device().is_some() && !tier.has(*addr));
        let wanted: Vec<BlockAddr> =
            std::iter::once(missing).chain(away.filter(|addr| *addr != missing)).collect();
        match tier.fetch_with(self.pool.devices(), &wanted, &ahead) {
            // what nobody asked for is in nobody's way
            Err(_) if !ahead.is_empty() => self.fetch(&wanted),
            done => Ok(done?),
        }
    }

    /// Where these blocks of a file lie on devices, those that do.
    fn below(&self, inode: &Inode, blocks: Range<u64>) -> Vec<BlockAddr> {
        let mut addrs = Vec::new();
        let mut block = blocks.start;
        while block < blocks.end {
            let (index, slot) = (block / LEAF_BLOCKS, (block % LEAF_BLOCKS) as usize);
            let end = blocks.end.min((index + 1) * LEAF_BLOCKS);
            let views = self.views_of(inode, index).unwrap_or_default();
            let own = views.iter().skip(slot).take((end - block) as usize);
            addrs.extend(own.map(|view| view.addr).filter(|addr| addr.device().is_some()));
            block = end;
        }
        addrs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_doubles_while_blocks_are_missed_in_order() {
        let ahead = ReadAhead::default();
        let mut first = 0;
        for blocks in [1, 8, 16, 32, 64, 128, 128] {
            assert_eq!(ahead.end(first, first, u64::MAX), first + blocks);
            first += blocks;
        }
        assert_eq!(ahead.end(first, first + 299, u64::MAX), first + 300, "more than any window");
        // elsewhere, and on from there
        assert_eq!(ahead.end(7, 9, u64::MAX), 10);
        assert_eq!(ahead.end(10, 10, u64::MAX), 18);
        assert_eq!(ahead.end(18, 18, 5), 23, "no more than there is room for");
        assert_eq!(ahead.end(22, 22, u64::MAX), 23);
    }
}
