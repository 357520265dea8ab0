//! A sequence number with a lock bit: many stores that readers see all or none of.
//!
//! A writer makes the number odd, stores, and makes it even again. A reader notes an even number,
//! reads, and takes what it read only if the number is still the same. What is guarded must be
//! atomics, read and stored relaxed. A number that died never comes back.
//!
//! Checked by loom: `tests/loom_sequence.rs`.

use crate::sync::{AtomicU64, Ordering, fence, pause};

const DEAD: u64 = u64::MAX;

/// The number.
#[derive(Debug)]
pub struct Sequence(AtomicU64);

/// The number, odd: its holder stores.
#[derive(Debug)]
pub struct SequenceLock<'s> {
    sequence: &'s Sequence,
    before: u64,
    dead: bool,
}

impl Sequence {
    /// A number that nobody holds.
    pub fn new() -> Sequence {
        Sequence(AtomicU64::new(0))
    }

    /// Makes it odd; `None` if it is dead.
    #[inline]
    pub fn lock(&self) -> Option<SequenceLock<'_>> {
        let before = self.0.load(Ordering::Relaxed);
        if before.is_multiple_of(2)
            && let Some(lock) = self.try_lock(before)
        {
            return Some(lock);
        }
        self.lock_at_last()
    }

    #[inline]
    fn try_lock(&self, before: u64) -> Option<SequenceLock<'_>> {
        // ordering: Acquire, so that what the last holder stored is seen
        self.0.compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // ordering: who sees a store that follows sees the odd number, too
        fence(Ordering::Release);
        Some(SequenceLock { sequence: self, before, dead: false })
    }

    #[cold]
    fn lock_at_last(&self) -> Option<SequenceLock<'_>> {
        let mut tries = 0;
        loop {
            let before = self.0.load(Ordering::Relaxed);
            if before == DEAD {
                return None;
            }
            if before.is_multiple_of(2)
                && let Some(lock) = self.try_lock(before)
            {
                return Some(lock);
            }
            pause(&mut tries);
        }
    }

    /// The number to read under; `None` if it is dead.
    #[inline]
    pub fn begin_read(&self) -> Option<u64> {
        let mut tries = 0;
        loop {
            // ordering: Acquire pairs with the holder's Release at its end
            let now = self.0.load(Ordering::Acquire);
            if now == DEAD {
                return None;
            }
            if now.is_multiple_of(2) {
                return Some(now);
            }
            pause(&mut tries);
        }
    }

    /// Whether nothing was stored since `begin_read` gave `before`.
    #[inline]
    pub fn still(&self, before: u64) -> bool {
        // ordering: what was read is read before the number is read again
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == before
    }
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence::new()
    }
}

impl SequenceLock<'_> {
    /// The number dies when this lock ends.
    pub fn kill(mut self) {
        self.dead = true;
    }
}

impl Drop for SequenceLock<'_> {
    #[inline]
    fn drop(&mut self) {
        let after = if self.dead { DEAD } else { self.before + 2 };
        // ordering: Release makes the stores visible to who reads the new number
        self.sequence.0.store(after, Ordering::Release);
    }
}
