//! The block map of one file in DRAM: leaves, made or loaded on demand.
//!
//! The first leaf lies in the inode (most files have no other); the rest in a radix tree whose
//! inner nodes live as long as the inode (16 MiB for each TiB that is touched; they count as
//! leaves do). Looking up a leaf takes no lock.

use crate::leaf::{LEAF_INDEX_MAX, Leaf};
use ::locks::Mutex;
use arc_swap::{ArcSwapOption, Guard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const FANOUT_BITS: u32 = 9;
const FANOUT: usize = 1 << FANOUT_BITS;
const _: () = assert!(LEAF_INDEX_MAX < 1 << (3 * FANOUT_BITS));

type LeafSlots = Box<[ArcSwapOption<Leaf>; FANOUT]>;
type Middle = Box<[OnceLock<LeafSlots>; FANOUT]>;

/// The block map of one file.
#[derive(Debug)]
pub struct BlockMap {
    first: ArcSwapOption<Leaf>,
    /// Leaves 1.. by 9 + 9 + 9 bits of their index: 64 TiB need them all.
    rest: OnceLock<Box<[OnceLock<Middle>; FANOUT]>>,
    /// Leaves from this index on are not in the tree (made since, or cut off by a truncation).
    pub tree_end: AtomicU64,
    /// Serialises loading, growing and dropping leaves.
    pub loading: Mutex<()>,
}

const TOP_BYTES: u64 = size_of::<[OnceLock<Middle>; FANOUT]>() as u64;
const MIDDLE_BYTES: u64 = size_of::<[OnceLock<LeafSlots>; FANOUT]>() as u64;
const LOW_BYTES: u64 = size_of::<[ArcSwapOption<Leaf>; FANOUT]>() as u64;

/// The place of leaf `index` in its inner node `level` above the lowest.
#[inline]
fn part(index: u64, level: u32) -> usize {
    (index >> (level * FANOUT_BITS)) as usize & (FANOUT - 1)
}

fn slots<T: Default>() -> Box<[T; FANOUT]> {
    Box::new(std::array::from_fn(|_| T::default()))
}

impl BlockMap {
    /// A map whose leaves may be in the tree (`stored`) or that is new.
    pub fn new(stored: bool) -> BlockMap {
        BlockMap {
            first: ArcSwapOption::empty(),
            rest: OnceLock::new(),
            tree_end: AtomicU64::new(if stored { u64::MAX } else { 0 }),
            loading: Mutex::new(()),
        }
    }

    #[inline]
    fn place(&self, index: u64, make: bool) -> Option<&ArcSwapOption<Leaf>> {
        if index == 0 {
            return Some(&self.first);
        }
        if index >> (3 * FANOUT_BITS) != 0 {
            return None;
        }
        if make {
            let middle = self.rest.get_or_init(slots)[part(index, 2)].get_or_init(slots);
            return Some(&middle[part(index, 1)].get_or_init(slots)[part(index, 0)]);
        }
        Some(&self.rest.get()?[part(index, 2)].get()?[part(index, 1)].get()?[part(index, 0)])
    }

    /// The leaf, if it is in DRAM.
    #[inline]
    pub fn cached(&self, index: u64) -> Option<Arc<Leaf>> {
        self.place(index, false)?.load_full()
    }

    /// The leaf, if it is in DRAM, lent for a short while: cheaper than `cached`.
    #[inline]
    pub fn lent(&self, index: u64) -> Option<Guard<Option<Arc<Leaf>>>> {
        Some(self.place(index, false)?.load())
    }

    /// Puts a leaf in place; gives the bytes of the inner nodes that were made for it. The caller
    /// holds `loading`.
    pub fn store(&self, index: u64, leaf: Arc<Leaf>) -> u64 {
        let made = self.missing_bytes(index);
        if let Some(place) = self.place(index, true) {
            place.store(Some(leaf));
        }
        made
    }

    /// Bytes of the inner nodes that leaf `index` needs and that are not there.
    fn missing_bytes(&self, index: u64) -> u64 {
        if index == 0 || index >> (3 * FANOUT_BITS) != 0 {
            return 0;
        }
        let Some(top) = self.rest.get() else { return TOP_BYTES + MIDDLE_BYTES + LOW_BYTES };
        let Some(middle) = top[part(index, 2)].get() else { return MIDDLE_BYTES + LOW_BYTES };
        middle[part(index, 1)].get().map_or(LOW_BYTES, |_| 0)
    }

    /// Bytes of the inner nodes.
    pub fn inner_bytes(&self) -> u64 {
        let Some(top) = self.rest.get() else { return 0 };
        let middle_bytes = |middle: &Middle| {
            let low = middle.iter().filter_map(OnceLock::get).count() as u64;
            MIDDLE_BYTES + LOW_BYTES * low
        };
        TOP_BYTES + top.iter().filter_map(OnceLock::get).map(middle_bytes).sum::<u64>()
    }

    /// Takes a leaf out. The caller holds `loading`.
    pub fn take(&self, index: u64) -> Option<Arc<Leaf>> {
        self.place(index, false)?.swap(None)
    }

    /// Calls `each` with every leaf in DRAM from `from` on, in order.
    pub fn for_each(&self, from: u64, each: &mut dyn FnMut(u64, &Arc<Leaf>)) {
        if from == 0
            && let Some(leaf) = self.first.load_full()
        {
            each(0, &leaf);
        }
        let Some(top) = self.rest.get() else { return };
        for (high, middle) in top.iter().enumerate() {
            let Some(middle) = middle.get() else { continue };
            for (mid, leaves) in middle.iter().enumerate() {
                let Some(leaves) = leaves.get() else { continue };
                let base = ((high << FANOUT_BITS | mid) << FANOUT_BITS) as u64;
                for (low, leaf) in leaves.iter().enumerate() {
                    let index = base + low as u64;
                    if index >= from.max(1)
                        && let Some(leaf) = leaf.load_full()
                    {
                        each(index, &leaf);
                    }
                }
            }
        }
    }

    /// The first leaf in DRAM from `from` on.
    pub fn first_from(&self, from: u64) -> Option<u64> {
        if from == 0 && self.first.load().is_some() {
            return Some(0);
        }
        let top = self.rest.get()?;
        let from = from.max(1);
        let first = from as usize;
        for (high, middle) in top.iter().enumerate().skip(first >> (2 * FANOUT_BITS)) {
            let Some(middle) = middle.get() else { continue };
            for (mid, leaves) in middle.iter().enumerate() {
                let Some(leaves) = leaves.get() else { continue };
                let base = ((high << FANOUT_BITS | mid) << FANOUT_BITS) as u64;
                if base + leaves.len() as u64 <= from {
                    continue;
                }
                let indices = (base..).zip(leaves.iter());
                let there = |(index, leaf): &(u64, &ArcSwapOption<Leaf>)| {
                    *index >= from && leaf.load().is_some()
                };
                if let Some((index, _)) = indices.into_iter().find(there) {
                    return Some(index);
                }
            }
        }
        None
    }

    /// Whether the tree may hold leaf `index`.
    pub fn in_tree(&self, index: u64) -> bool {
        index < self.tree_end.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_found_where_they_were_put() {
        let map = BlockMap::new(false);
        let indexes = [0u64, 1, 511, 512, 513, 1 << 18, (1 << 25) - 1];
        let mut inner = 0;
        for index in indexes {
            assert!(map.cached(index).is_none());
            inner += map.store(index, Arc::new(Leaf::new(0)));
            assert_eq!(map.inner_bytes(), inner);
        }
        assert_eq!(map.store(511, Arc::new(Leaf::new(0))), 0, "its nodes are there");
        let mut seen = Vec::new();
        map.for_each(0, &mut |index, _| seen.push(index));
        assert_eq!(seen, indexes);
        let mut seen = Vec::new();
        map.for_each(513, &mut |index, _| seen.push(index));
        assert_eq!(seen, [513, 1 << 18, (1 << 25) - 1]);
        assert!(map.take(512).is_some());
        assert!(map.cached(512).is_none());
        assert!(map.cached(1 << 30).is_none(), "past the largest file");
    }
}
