//! Clean copies: blocks of the tier that lie in slices, too.
//!
//! One comes to be when a block moves to the tier: what it had in its slice is as good as before,
//! and is kept for as long as nobody needs the room. Or when a block is read so often that it shall
//! stay when the caches in DRAM have no room for it. Known in DRAM only: on the medium the block in
//! the slice is free, as the record of the move says.
//!
//! What this keeps true: a copy holds what its block on the tier holds, until that is free. Who
//! frees it takes the copy away before ([`Tier::free`](crate::Tier::free)). Whoever reads a copy
//! holds an epoch from the look on, so that the block in the slice is not used again meanwhile.

use crate::circle::{Circle, part_of};
use parking_lot::Mutex;
use pool::BlockAddr;
use std::sync::atomic::{AtomicU64, Ordering};

const PARTS: usize = 64;

/// Blocks of slices, by those of the tier that they are copies of.
#[derive(Debug)]
pub struct Copies {
    parts: Box<[Mutex<Circle<BlockAddr>>]>,
    count: AtomicU64,
    /// Those of each slice.
    in_slices: Box<[AtomicU64]>,
    /// The part from which one was let go of last.
    hand: AtomicU64,
}

impl Copies {
    /// None yet, in so many slices.
    pub fn new(slices: usize) -> Copies {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        let in_slices = (0..slices).map(|_| AtomicU64::new(0)).collect();
        Copies { parts, count: AtomicU64::new(0), in_slices, hand: AtomicU64::new(0) }
    }

    fn part(&self, of: BlockAddr) -> &Mutex<Circle<BlockAddr>> {
        &self.parts[part_of(of, PARTS)]
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many there are in a slice.
    pub fn in_slice(&self, slice: usize) -> u64 {
        self.in_slices.get(slice).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn let_go(&self, near: BlockAddr) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        if let Some(count) = self.in_slices.get(usize::from(near.slice())) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Where a block's copy is. The caller holds an epoch until it is read.
    #[inline]
    pub fn get(&self, of: BlockAddr) -> Option<BlockAddr> {
        if self.len() == 0 {
            return None;
        }
        self.part(of).lock().get(of).copied()
    }

    /// Whether a block has a copy, for who counts them: it is not used thereby.
    pub fn has(&self, of: BlockAddr) -> bool {
        self.len() > 0 && self.part(of).lock().has(of)
    }

    /// A block has a copy from now on, if it has none, and still `is` what was copied; false:
    /// nobody has the copy.
    pub fn put_if(&self, of: BlockAddr, near: BlockAddr, is: impl FnOnce() -> bool) -> bool {
        let mut part = self.part(of).lock();
        let is_to_be = !part.has(of) && is();
        if is_to_be {
            self.count.fetch_add(1, Ordering::Relaxed);
            if let Some(count) = self.in_slices.get(usize::from(near.slice())) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            part.put(of, near);
        }
        is_to_be
    }

    /// A block has no copy any more: the caller is to retire this block of a slice.
    pub fn take(&self, of: BlockAddr) -> Option<BlockAddr> {
        let near = self.part(of).lock().take(of)?;
        self.let_go(near);
        Some(near)
    }

    /// Lets go of up to so many that nobody read lately and that `may` go: the caller is to retire
    /// them.
    pub fn evict(&self, count: u64, may: impl Fn(&BlockAddr) -> bool) -> Vec<BlockAddr> {
        let mut evicted = Vec::new();
        let mut empty = 0;
        while (evicted.len() as u64) < count && empty < PARTS {
            let next = self.hand.fetch_add(1, Ordering::Relaxed) as usize % PARTS;
            match self.parts[next].lock().evict_one(&may) {
                Some((_, near)) => {
                    self.let_go(near);
                    evicted.push(near);
                    empty = 0;
                }
                None => empty += 1,
            }
        }
        evicted
    }
}
