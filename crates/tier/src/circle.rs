//! What is kept of blocks, in a circle: a hand goes round and lets go of what nobody looked at
//! since it came by last (an approximate LRU).

use pool::BlockAddr;
use std::collections::HashMap;

/// Which of so many parts, each with a circle, a block is in: neighbours are in different ones.
pub fn part_of(addr: BlockAddr, parts: usize) -> usize {
    (addr.bits().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % parts
}

#[derive(Debug)]
struct Frame<V> {
    addr: BlockAddr,
    value: V,
    was_used: bool,
}

/// A circle.
#[derive(Debug)]
pub struct Circle<V> {
    places: HashMap<BlockAddr, usize>,
    frames: Vec<Frame<V>>,
    hand: usize,
}

impl<V> Default for Circle<V> {
    fn default() -> Circle<V> {
        Circle { places: HashMap::new(), frames: Vec::new(), hand: 0 }
    }
}

impl<V> Circle<V> {
    /// How many blocks something is kept of.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether something is kept of a block, for who does not want it yet.
    pub fn has(&self, addr: BlockAddr) -> bool {
        self.places.contains_key(&addr)
    }

    /// What is kept of a block.
    pub fn get(&mut self, addr: BlockAddr) -> Option<&mut V> {
        let frame = &mut self.frames[*self.places.get(&addr)?];
        frame.was_used = true;
        Some(&mut frame.value)
    }

    /// Keeps something of a block that nothing is kept of.
    pub fn put(&mut self, addr: BlockAddr, value: V) {
        debug_assert!(!self.has(addr), "nothing is kept twice");
        self.places.insert(addr, self.frames.len());
        self.frames.push(Frame { addr, value, was_used: false });
    }

    /// Takes out what is kept of a block.
    pub fn take(&mut self, addr: BlockAddr) -> Option<V> {
        let at = self.places.get(&addr).copied()?;
        Some(self.take_at(at).1)
    }

    /// Takes out what nobody looked at since the hand came by last, if it `may`.
    pub fn evict_one(&mut self, may: impl Fn(&V) -> bool) -> Option<(BlockAddr, V)> {
        for _ in 0..2 * self.frames.len() {
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[self.hand];
            if may(&frame.value) && !std::mem::take(&mut frame.was_used) {
                return Some(self.take_at(self.hand));
            }
        }
        None
    }

    /// Takes out all that `may`; gives how many that were.
    pub fn evict_all(&mut self, may: impl Fn(&V) -> bool) -> usize {
        let (before, mut at) = (self.frames.len(), 0);
        while let Some(frame) = self.frames.get(at) {
            match may(&frame.value) {
                true => drop(self.take_at(at)),
                false => at += 1,
            }
        }
        before - self.frames.len()
    }

    /// The last one takes the place of one that is taken out.
    fn take_at(&mut self, at: usize) -> (BlockAddr, V) {
        let frame = self.frames.swap_remove(at);
        self.places.remove(&frame.addr);
        if let Some(moved) = self.frames.get(at) {
            self.places.insert(moved.addr, at);
        }
        (frame.addr, frame.value)
    }
}
