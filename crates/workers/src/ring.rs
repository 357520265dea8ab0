//! A ring of requests: many put in, many take out, nobody waits or allocates.
//!
//! A slot has a sequence number, which says whose turn it is (Dmitry Vyukov's bounded queue): equal
//! to a putter's position when the slot is free for it, one more when the request is there for the
//! taker of that position, and a whole round more when it is free again. Everything is in words,
//! and positions are masked, so that no word sends anybody outside the ring; what a request means
//! is for its taker to check.
//!
//! Checked by loom: `tests/loom_ring.rs`.

use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Words of a request.
pub const WORDS: usize = 7;

/// A request, and its sequence number: one line of a cache.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The ring.
#[derive(Debug)]
pub struct Ring {
    mask: u64,
    slots: Box<[Slot]>,
    /// Position of the next request that is put in.
    put: CachePadded<AtomicU64>,
    /// Position of the next that is taken.
    take: CachePadded<AtomicU64>,
}

impl Ring {
    /// An empty ring for `1 << bits` requests.
    pub fn new(bits: u32) -> Ring {
        let slot = |sequence| Slot {
            sequence: AtomicU64::new(sequence),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Ring {
            mask: (1 << bits) - 1,
            slots: (0..1 << bits).map(slot).collect(),
            put: CachePadded::new(AtomicU64::new(0)),
            take: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Puts a request in; false if the ring is full.
    pub fn put(&self, request: &[u64; WORDS]) -> bool {
        let Some((slot, at)) = self.claim(&self.put, 0) else { return false };
        for (word, value) in slot.words.iter().zip(request) {
            // ordering: the slot is this putter's alone until the number says otherwise
            word.store(*value, Ordering::Relaxed);
        }
        // ordering: Release hands the words to the taker, who takes the number with Acquire
        slot.sequence.store(at.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest request out, if there is one.
    pub fn take(&self) -> Option<[u64; WORDS]> {
        let (slot, at) = self.claim(&self.take, 1)?;
        // ordering: as in `put`
        let request = std::array::from_fn(|word| slot.words[word].load(Ordering::Relaxed));
        slot.sequence.store(at.wrapping_add(self.mask + 1), Ordering::Release);
        Some(request)
    }

    /// A word of the oldest request, or of what was there: a hint.
    pub fn glance(&self, word: usize) -> u64 {
        let at = self.take.load(Ordering::Relaxed);
        let slot = self.slots.get((at & self.mask) as usize);
        slot.map_or(0, |slot| slot.words[word % WORDS].load(Ordering::Relaxed))
    }

    /// The slot at `position`, when its number is `ahead` of that, and where that is: from now on
    /// the caller's alone.
    fn claim(&self, position: &AtomicU64, ahead: u64) -> Option<(&Slot, u64)> {
        let mut at = position.load(Ordering::Relaxed);
        loop {
            let slot = self.slots.get((at & self.mask) as usize)?;
            // ordering: Acquire pairs with the Release of who had the slot before
            let sequence = slot.sequence.load(Ordering::Acquire);
            let distance = sequence.wrapping_sub(at.wrapping_add(ahead)) as i64;
            at = match distance {
                0 => {
                    let next = at.wrapping_add(1);
                    let (here, failed) = (Ordering::Relaxed, Ordering::Relaxed);
                    match position.compare_exchange_weak(at, next, here, failed) {
                        Ok(at) => return Some((slot, at)),
                        Err(now) => now,
                    }
                }
                // a round behind: full, or empty
                distance if distance < 0 => return None,
                _ => position.load(Ordering::Relaxed),
            };
        }
    }

    /// Whether nothing is in it: true at some moment of the call.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many requests are in it, about.
    pub fn len(&self) -> u64 {
        let taken = self.take.load(Ordering::SeqCst);
        self.put.load(Ordering::SeqCst).wrapping_sub(taken).min(self.mask + 1)
    }
}
