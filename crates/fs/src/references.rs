//! How many places blocks have that may have several.
//!
//! A block has one place in one file, until a copy shares it (`share.rs`). From then on the slots
//! that name it are marked, and its references are counted here: the block belongs to its count,
//! and to no file. What this keeps true:
//! - the count is the number of marked slots that name the block, in DRAM as in the trees, for a
//!   cut finds no change under way;
//! - a block is free when its count falls to none, and not before; the record that took its last
//!   place away is durable then;
//! - a slot that is not marked costs nothing: nobody looks here for it.
//!
//! A block whose other places have all gone keeps its mark and a count of one, until its last
//! place is written anew or goes: nobody knows where that is.
//!
//! Counts lie in DRAM for 128 blocks at a time. They are loaded when they are asked for, and are
//! values of the tree: `runs u8`, then `(first u8, blocks-1 u8, references u32)` each. Those that
//! changed since the last cut stay in DRAM; others are let go at a cut when they are too many.

use crate::by_slice::BySlice;
use crate::bytes::Bytes;
use crate::core::{Core, damaged_value};
use crate::error::{Error, Result};
use crate::inode_hash::InodeHash;
use crate::keys::{self, REFERENCES_BLOCKS};
use crate::slot::{Freed, Published};
use crate::twins::Twins;
use ::locks::Mutex;
use crossbeam_utils::CachePadded;
use pool::tree::{Change, Key};
use pool::{BlockAddr, SliceBatch};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// Parts of the table with a lock each.
const SHARDS: usize = 64;
/// Most references to one block that a copy adds to: behind it, blocks are copied again.
pub const REFERENCES_MAX: u32 = 1 << 31;
/// Units of a value at worst; see `Core::dirty_units`.
pub const COUNTS_UNITS: u64 = 13;
/// A part of the memory for caches.
const MEMORY_SHARE: u64 = 32;
/// Bytes of DRAM that the counts of 128 blocks take.
const COUNTS_BYTES: u64 = size_of::<[u32; REFERENCES_BLOCKS as usize]>() as u64 + 64;

/// The references to 128 neighbours.
#[derive(Debug)]
struct Counts {
    counts: Box<[u32; REFERENCES_BLOCKS as usize]>,
    /// They changed since the last cut.
    dirty: bool,
}

#[derive(Debug)]
struct Part {
    /// By the key's index.
    counts: HashMap<u64, Counts, InodeHash>,
    dirty: Vec<u64>,
}

/// The counts in DRAM.
#[derive(Debug)]
pub struct References {
    parts: Box<[CachePadded<Mutex<Part>>]>,
    /// Slices of the pool.
    slices: usize,
    /// Bytes of DRAM that they take.
    pub bytes: BySlice,
    /// Those that have moved to the capacity tier.
    pub twins: Twins,
}

/// As a value of the tree; `None`: there are none.
pub fn encode(counts: &[u32; REFERENCES_BLOCKS as usize]) -> Option<Vec<u8>> {
    let mut runs: Vec<(u8, u8, u32)> = Vec::new();
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        match runs.last_mut() {
            Some((first, more, same))
                if same == count && usize::from(*first) + usize::from(*more) + 1 == index =>
            {
                *more += 1;
            }
            _ => runs.push((index as u8, 0, *count)),
        }
    }
    let mut value = vec![runs.len() as u8];
    for (first, more, count) in &runs {
        value.extend_from_slice(&[*first, *more]);
        value.extend_from_slice(&count.to_le_bytes());
    }
    (!runs.is_empty()).then_some(value)
}

/// The blocks that the value under a key's index counts, with their references; `None` if it makes
/// no sense.
pub fn decode(index: u64, value: &[u8]) -> Option<Vec<(BlockAddr, u32)>> {
    let mut bytes = Bytes(value);
    let runs = bytes.u8()?;
    let first_block = index.checked_mul(REFERENCES_BLOCKS)?;
    let mut counts: Vec<(BlockAddr, u32)> = Vec::new();
    for _ in 0..runs {
        let (first, more) = (u64::from(bytes.u8()?), u64::from(bytes.u8()?));
        let count = bytes.u32()?;
        let follows = counts.last().is_none_or(|(addr, _)| addr.bits() < first_block + first);
        if count == 0 || !follows || first + more >= REFERENCES_BLOCKS {
            return None;
        }
        for block in first..=first + more {
            counts.push((BlockAddr::from_bits(first_block + block)?, count));
        }
    }
    (bytes.is_empty() && !counts.is_empty()).then_some(counts)
}

/// The slice whose tree has the value under a key's index, in a pool of so many.
pub fn home(index: u64, slices: usize) -> usize {
    let first = index.checked_mul(REFERENCES_BLOCKS).and_then(BlockAddr::from_bits);
    first.map_or(usize::MAX, |first| first.home(slices))
}

fn place_in(addr: BlockAddr) -> usize {
    (addr.bits() % REFERENCES_BLOCKS) as usize
}

impl References {
    /// None yet, in a pool of so many slices.
    pub fn new(slices: usize) -> References {
        let hash = InodeHash::new();
        let part = || Part { counts: HashMap::with_hasher(hash.clone()), dirty: Vec::new() };
        let parts = (0..SHARDS).map(|_| CachePadded::new(Mutex::new(part()))).collect();
        References { parts, slices, bytes: BySlice::new(slices), twins: Twins::default() }
    }

    fn part(&self, index: u64) -> &Mutex<Part> {
        &self.parts[index as usize % SHARDS]
    }

    /// Adds what changed since the last cut to the batches of the slices. The gate is closed, or
    /// nobody else is there.
    pub fn cut(&self, batch: &mut [SliceBatch]) {
        let slices = self.slices;
        for part in &self.parts {
            let Part { counts, dirty } = &mut *part.lock();
            for index in dirty.drain(..) {
                let Some(changed) = counts.get_mut(&index) else { continue };
                changed.dirty = false;
                let change = encode(&changed.counts).map_or(Change::Delete, Change::Put);
                if let Some(slice) = batch.get_mut(home(index, slices)) {
                    slice.changes.push((Key::new(0, keys::REFERENCES, index), change));
                }
            }
        }
    }

    /// Lets go of what the tree has, if they take more than their part of `memory`. The gate is
    /// closed, and no checkpoint is under way.
    pub fn evict(&self, memory: u64) {
        if self.bytes.sum() <= memory / MEMORY_SHARE {
            return;
        }
        for part in &self.parts {
            let mut part = part.lock();
            part.counts.retain(|index, counts| {
                if !counts.dirty {
                    self.bytes.add(home(*index, self.slices) as u8, COUNTS_BYTES.wrapping_neg());
                }
                counts.dirty
            });
        }
    }
}

impl Core {
    fn load_references(&self, index: u64) -> Result<Counts> {
        let key = Key::new(0, keys::REFERENCES, index);
        let mut counts = Box::new([0; REFERENCES_BLOCKS as usize]);
        let home = home(index, self.pool.slices().len()) as u8;
        if let Some(value) = self.pool.get(home, &key)? {
            for (addr, count) in decode(index, &value).ok_or_else(|| damaged_value(&key))? {
                counts[place_in(addr)] = count;
            }
        }
        self.references.bytes.add(home, COUNTS_BYTES);
        Ok(Counts { counts, dirty: false })
    }

    /// Runs `act` with the count of a block of this pool, which it may change: 0 where it has no
    /// mark. True if it says that it did.
    fn with_count<T>(&self, addr: BlockAddr, act: impl FnOnce(&mut u32) -> (T, bool)) -> Result<T> {
        let index = keys::references(addr).index;
        let Part { counts, dirty } = &mut *self.references.part(index).lock();
        let counts = match counts.entry(index) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(self.load_references(index)?)
            }
        };
        let (value, changed) = act(&mut counts.counts[place_in(addr)]);
        if changed && !counts.dirty {
            counts.dirty = true;
            dirty.push(index);
            self.dirty_units.fetch_add(COUNTS_UNITS, Ordering::Relaxed);
        }
        Ok(value)
    }

    /// How many references the block has that are counted. They are in DRAM then, for as long as
    /// the change goes on.
    pub fn references_to(&self, addr: BlockAddr) -> Result<u32> {
        self.with_count(addr, |count| (*count, false))
    }

    /// The block has `more` places more whose slots are marked.
    pub fn refer(&self, addr: BlockAddr, more: u32) -> Result<()> {
        let counted = self.with_count(addr, |count| match count.checked_add(more) {
            Some(sum) => {
                *count = sum;
                (true, true)
            }
            None => (false, false),
        })?;
        if counted { Ok(()) } else { Err(miscounted(addr)) }
    }

    /// The same for one place more, if it has any that is counted.
    pub fn refer_again(&self, addr: BlockAddr) -> Result<bool> {
        self.with_count(addr, |count| {
            let may = (1..REFERENCES_MAX).contains(count);
            *count += u32::from(may);
            (may, may)
        })
    }

    /// The block lost a place whose slot was marked. True if that was its last.
    pub fn unrefer(&self, addr: BlockAddr) -> Result<bool> {
        let last = self.with_count(addr, |count| match *count {
            0 => (None, false),
            _ => {
                *count -= 1;
                (Some(*count == 0), true)
            }
        })?;
        last.ok_or_else(|| miscounted(addr))
    }

    /// A durable record took the places of these blocks away: those that have no other are free.
    #[inline]
    pub fn retire(&self, freed: &Freed) {
        self.free(&freed.blocks);
        if !freed.shared.is_empty() {
            self.retire_shared(&freed.shared);
        }
    }

    /// The same for one block.
    #[inline]
    pub fn retire_one(&self, published: &Published) {
        if published.shared {
            return self.retire_shared(&[published.old]);
        }
        if published.old.device().is_some() {
            return self.free(&[published.old]);
        }
        self.pool.reclaim().retire_one(published.old);
    }

    /// Nobody has these blocks any more, nor copies of them.
    fn free(&self, blocks: &[BlockAddr]) {
        if let Some(tier) = &self.tier {
            tier.free(blocks);
        }
        self.pool.reclaim().retire(blocks);
    }

    #[cold]
    fn retire_shared(&self, blocks: &[BlockAddr]) {
        let mut last = Vec::new();
        for addr in blocks {
            match self.unrefer(*addr) {
                Ok(true) => last.push(*addr),
                Ok(false) => {}
                // another file may have it: nobody is to write there
                Err(error) => self.pool.note(format!("{error}; the block stays taken")),
            }
        }
        self.keep_twins(&mut last);
        self.references.twins.forget(&last);
        self.free(&last);
    }
}

/// The references to a block are fewer than those who name it, or more than can be counted.
pub fn miscounted(addr: BlockAddr) -> Error {
    Error::Damaged(format!(
        "the references to the block at slice {}, byte {} are miscounted",
        addr.slice(),
        addr.block() * pool::BLOCK_BYTES
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_round_trip_in_runs() {
        let mut counts = [0; REFERENCES_BLOCKS as usize];
        counts[0] = 7;
        counts[3..9].fill(2);
        counts[9..128].fill(REFERENCES_MAX);
        let value = encode(&counts).expect("there are some");
        assert_eq!(value.len(), 1 + 3 * 6);
        let index = keys::references(BlockAddr::new(3, 128 * 77 + 5)).index;
        assert_eq!(home(index, 5), 3);
        let found = decode(index, &value).expect("just encoded");
        let mut again = [0; REFERENCES_BLOCKS as usize];
        for (addr, count) in found {
            assert_eq!((addr.slice(), addr.block() / 128), (3, 77));
            again[place_in(addr)] = count;
        }
        assert_eq!(again, counts);
        assert_eq!(encode(&[0; REFERENCES_BLOCKS as usize]), None);
    }

    #[test]
    fn the_most_fragmented_counts_fit_the_units_that_are_reckoned() {
        let counts = std::array::from_fn(|index| 1 + index as u32 % 2);
        let value = encode(&counts).expect("there are some");
        assert!(value.len() as u64 + 19 <= COUNTS_UNITS * 64, "{} bytes", value.len());
        assert!(value.len() <= pool::tree::VALUE_BYTES_MAX);
    }

    #[test]
    fn bytes_that_count_nothing_are_refused() {
        for value in [
            &[][..],
            &[0],
            &[1, 0, 0, 0, 0, 0, 0],
            &[1, 127, 1, 1, 0, 0, 0],
            &[2, 5, 0, 1, 0, 0, 0, 5, 0, 1, 0, 0, 0],
            &[1, 0, 0, 1, 0, 0, 0, 9],
            &[255; 700],
        ] {
            assert_eq!(decode(1, value), None, "{value:?}");
        }
        assert_eq!(decode(u64::MAX, &[1, 0, 0, 1, 0, 0, 0]), None);
        assert_eq!(decode(1 << 42, &[1, 0, 0, 1, 0, 0, 0]), None, "no address has such bits");
    }
}
