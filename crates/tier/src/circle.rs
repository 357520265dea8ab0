//! What is kept of blocks, in a circle: a hand goes round and lets go of what nobody looked at
//! since it came by last (an approximate LRU).
//!
//! There is one entry for each block in memory, so they are small: the table that finds them holds
//! their numbers only.

use crate::hasher::hash;
use hashbrown::HashTable;
use pool::BlockAddr;

/// Which of so many parts, each with a circle, a block is in: neighbours are in different ones.
pub fn part_of(addr: BlockAddr, parts: usize) -> usize {
    (addr.bits().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % parts
}

/// A circle.
#[derive(Debug)]
pub struct Circle<V> {
    /// Where the entry of a block is.
    places: HashTable<u32>,
    entries: Vec<(BlockAddr, V)>,
    /// Which of them somebody looked at.
    used: Vec<bool>,
    hand: usize,
}

impl<V> Default for Circle<V> {
    fn default() -> Circle<V> {
        Circle { places: HashTable::new(), entries: Vec::new(), used: Vec::new(), hand: 0 }
    }
}

impl<V> Circle<V> {
    /// How many blocks something is kept of.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn place(&self, addr: BlockAddr) -> Option<usize> {
        let is_it = |at: &u32| self.entries[*at as usize].0 == addr;
        self.places.find(hash(addr), is_it).map(|at| *at as usize)
    }

    /// Whether something is kept of a block, for who does not want it yet.
    pub fn has(&self, addr: BlockAddr) -> bool {
        self.place(addr).is_some()
    }

    /// What is kept of a block.
    pub fn get(&mut self, addr: BlockAddr) -> Option<&mut V> {
        let at = self.place(addr)?;
        self.used[at] = true;
        Some(&mut self.entries[at].1)
    }

    /// Keeps something of a block that nothing is kept of.
    pub fn put(&mut self, addr: BlockAddr, value: V) {
        debug_assert!(!self.has(addr), "nothing is kept twice");
        // as many blocks are 16 TiB, and a cache has many circles
        assert!(self.entries.len() < u32::MAX as usize, "a number for each entry");
        let at = self.entries.len() as u32;
        self.places.insert_unique(hash(addr), at, |at| hash(self.entries[*at as usize].0));
        self.entries.push((addr, value));
        self.used.push(false);
    }

    /// Takes out what is kept of a block.
    pub fn take(&mut self, addr: BlockAddr) -> Option<V> {
        let at = self.place(addr)?;
        Some(self.take_at(at).1)
    }

    /// Takes out what nobody looked at since the hand came by last, if it `may`.
    pub fn evict_one(&mut self, may: impl Fn(&V) -> bool) -> Option<(BlockAddr, V)> {
        for _ in 0..2 * self.entries.len() {
            self.hand = (self.hand + 1) % self.entries.len();
            if may(&self.entries[self.hand].1) && !std::mem::take(&mut self.used[self.hand]) {
                return Some(self.take_at(self.hand));
            }
        }
        None
    }

    /// Takes out all that `may`; gives how many that were.
    pub fn evict_all(&mut self, may: impl Fn(&V) -> bool) -> usize {
        let (before, mut at) = (self.entries.len(), 0);
        while let Some((_, value)) = self.entries.get(at) {
            match may(value) {
                true => drop(self.take_at(at)),
                false => at += 1,
            }
        }
        before - self.entries.len()
    }

    /// The last one takes the place of one that is taken out.
    fn take_at(&mut self, at: usize) -> (BlockAddr, V) {
        let last = self.entries.len() - 1;
        self.renumber(at, None);
        if last != at {
            self.renumber(last, Some(at));
        }
        self.used.swap_remove(at);
        self.entries.swap_remove(at)
    }

    /// The table knows an entry by another number, or no longer.
    fn renumber(&mut self, at: usize, to: Option<usize>) {
        let hash = hash(self.entries[at].0);
        match (self.places.find_entry(hash, |it| *it as usize == at), to) {
            (Ok(mut place), Some(to)) => *place.get_mut() = to as u32,
            (Ok(place), None) => drop(place.remove()),
            (Err(_), _) => unreachable!("the table knows each entry"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Like a map, whatever is put, looked at, taken and evicted.
    #[test]
    fn it_keeps_what_was_put_until_it_is_taken() {
        let (mut circle, mut known) = (Circle::default(), HashMap::new());
        let mut state = 1u64;
        for step in 0..200_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step | 1);
            let addr = BlockAddr::on_device((state >> 60) as usize, (state >> 33) % 300);
            match (state >> 50) % 8 {
                0..3 if !known.contains_key(&addr) => {
                    known.insert(addr, step);
                    circle.put(addr, step);
                }
                0..5 => assert_eq!(circle.get(addr).copied(), known.get(&addr).copied()),
                5 => assert_eq!(circle.take(addr), known.remove(&addr)),
                6 => {
                    let evicted = circle.evict_one(|value| value % 3 > 0);
                    assert!(evicted.is_some() || known.values().all(|value| value % 3 == 0));
                    if let Some((addr, value)) = evicted {
                        assert!(value % 3 > 0);
                        assert_eq!(known.remove(&addr), Some(value));
                    }
                }
                _ if step % 1000 == 0 => {
                    let before = known.len();
                    known.retain(|_, value| *value % 2 == 0);
                    assert_eq!(circle.evict_all(|value| value % 2 > 0), before - known.len());
                }
                _ => assert_eq!(circle.has(addr), known.contains_key(&addr)),
            }
            assert_eq!(circle.len(), known.len());
        }
        assert!(known.len() > 100, "{}", known.len());
        assert!(known.iter().all(|(addr, value)| circle.get(*addr) == Some(&mut value.clone())));
    }

    #[test]
    fn who_was_looked_at_stays_for_a_round() {
        let mut circle = Circle::default();
        let addr = |block| BlockAddr::on_device(0, block);
        (0..20).for_each(|block| circle.put(addr(block), block));
        for _ in 0..15 {
            (5..10).for_each(|block| assert_eq!(circle.get(addr(block)), Some(&mut block.clone())));
            let (_, block) = circle.evict_one(|_| true).unwrap();
            assert!(!(5..10).contains(&block), "{block}");
        }
        assert!(circle.evict_one(|_| true).is_some(), "they go when nobody else is there");
    }
}
