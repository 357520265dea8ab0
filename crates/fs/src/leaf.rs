//! A leaf of a file's block map: where 128 blocks (512 KiB) of the file are.
//!
//! What it keeps true:
//! - writers publish under the leaf's lock bit, for nanoseconds; readers take nothing: they copy
//!   the slots they need and take the copy only if the sequence number did not move meanwhile;
//! - a leaf that was replaced (grown, dropped by a truncation) is dead for ever: who still holds it
//!   finds out and looks the leaf up again.
//!
//! Stored as a value: `runs u8`, then `(first u8, count-1 u8, addr 48 bits)` each, then the
//! checksums of all blocks in order, 32 bits each.

use crate::bytes::Bytes;
use crate::item::Placed;
use crate::patches::Patches;
use crate::sequence::{Sequence, SequenceLock};
use crate::types::FILE_BYTES_MAX;
use arc_swap::ArcSwapOption;
use pool::BlockAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Blocks of a leaf.
pub const LEAF_BLOCKS: u64 = 128;
/// Index of the last leaf that a file can have.
pub const LEAF_INDEX_MAX: u64 = FILE_BYTES_MAX / (LEAF_BLOCKS * 4096) - 1;
/// Slots of a new leaf: most files are small.
const SLOTS_FIRST: usize = 4;

const ADDR_BITS: u64 = (1 << 48) - 1;
/// The block's checksum was verified since open, or the block was written since.
const VERIFIED: u64 = 1 << 63;
/// Patches overlay the block.
const PATCHED: u64 = 1 << 62;
/// The patches changed since the last fold.
const PATCH_DIRTY: u64 = 1 << 61;
/// The tree holds patches for the block.
const PATCH_STORED: u64 = 1 << 60;

#[derive(Debug, Default)]
struct Slot {
    word: AtomicU64,
    crc: AtomicU32,
    patches: ArcSwapOption<Patches>,
}

/// One slot, copied out.
#[derive(Clone, Debug, Default)]
pub struct SlotView {
    /// Where the block is; none: a hole.
    pub addr: BlockAddr,
    /// Its checksum.
    pub crc: u32,
    /// Whether the checksum was verified.
    pub verified: bool,
    /// What overlays it.
    pub patches: Option<Arc<Patches>>,
}

/// A leaf.
#[derive(Debug)]
pub struct Leaf {
    sequence: Sequence,
    /// Changed since the last cut.
    pub dirty: AtomicBool,
    slots: Box<[Slot]>,
}

/// What changed in one slot.
#[derive(Debug)]
pub enum SlotChange {
    /// A block took its place, with all that overlaid it.
    Place(Placed),
    /// The same, by recovery: nobody has looked at the block since it was written.
    Recover(Placed),
    /// Patches overlay it.
    Patch(Arc<Patches>),
    /// It is a hole.
    Clear,
}

/// What a publication did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    /// The block that lost its place; none, if there was none.
    pub old: BlockAddr,
    /// The slot has patches to be folded, and had none before.
    pub first_patch: bool,
}

/// A leaf, locked for publication. Readers wait for its end: only stores in between.
#[derive(Debug)]
pub struct LeafLock<'l> {
    leaf: &'l Leaf,
    lock: SequenceLock<'l>,
}

fn value_word(values: &[u8]) -> u64 {
    values.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl Leaf {
    /// An empty leaf with room for slot `slot`.
    pub fn new(slot: usize) -> Leaf {
        let room = (slot + 1).next_power_of_two().max(SLOTS_FIRST);
        Leaf {
            sequence: Sequence::new(),
            dirty: AtomicBool::new(false),
            slots: (0..room).map(|_| Slot::default()).collect(),
        }
    }

    /// Slots that it has; those behind are holes.
    pub fn room(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of DRAM that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Leaf>() + self.slots.len() * size_of::<Slot>()
    }

    /// It changed; true if it had not since the last cut. Under its lock, so that who grows the
    /// leaf takes the mark along.
    #[inline]
    pub fn set_dirty(&self) -> bool {
        !self.dirty.load(Ordering::Relaxed) && !self.dirty.swap(true, Ordering::Relaxed)
    }

    /// Locks it for publication; `None` if it is dead.
    #[inline]
    pub fn lock(&self) -> Option<LeafLock<'_>> {
        Some(LeafLock { leaf: self, lock: self.sequence.lock()? })
    }

    /// The number to read under; `None` if the leaf is dead.
    #[inline]
    pub fn begin_read(&self) -> Option<u64> {
        self.sequence.begin_read()
    }

    /// Whether nothing was published since `begin_read` gave `sequence`.
    #[inline]
    pub fn still(&self, sequence: u64) -> bool {
        self.sequence.still(sequence)
    }

    /// One slot as it is; to be validated with `still`.
    #[inline]
    pub fn view(&self, slot: usize) -> SlotView {
        let Some(slot) = self.slots.get(slot) else { return SlotView::default() };
        let word = slot.word.load(Ordering::Relaxed);
        SlotView {
            addr: addr_in(word),
            crc: slot.crc.load(Ordering::Relaxed),
            verified: word & VERIFIED != 0,
            patches: if word & PATCHED == 0 { None } else { slot.patches.load_full() },
        }
    }

    /// The block's checksum fits: later reads need not look again.
    pub fn set_verified(&self, slot: usize, addr: BlockAddr) {
        let Some(slot) = self.slots.get(slot) else { return };
        let word = slot.word.load(Ordering::Relaxed);
        if addr_in(word) == addr {
            // ordering: a hint; a writer that comes between wins and the hint is lost
            let _ = slot.word.compare_exchange(
                word,
                word | VERIFIED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// A copy with room for slot `slot`; the caller holds the lock of `self`.
    pub fn grown(&self, slot: usize) -> Leaf {
        let larger = Leaf::new(slot.max(self.slots.len()));
        for (from, to) in self.slots.iter().zip(&larger.slots) {
            to.word.store(from.word.load(Ordering::Relaxed), Ordering::Relaxed);
            to.crc.store(from.crc.load(Ordering::Relaxed), Ordering::Relaxed);
            to.patches.store(from.patches.load_full());
        }
        larger.dirty.store(self.dirty.load(Ordering::Relaxed), Ordering::Relaxed);
        larger
    }

    /// Blocks that it names.
    pub fn blocks(&self) -> Vec<BlockAddr> {
        let addrs = self.slots.iter().map(|slot| addr_in(slot.word.load(Ordering::Relaxed)));
        addrs.filter(|addr| !addr.is_none()).collect()
    }

    /// First slot at or after `from` that is data (`data`) or a hole.
    pub fn find(&self, from: usize, data: bool) -> Option<usize> {
        (from..LEAF_BLOCKS as usize).find(|slot| {
            let word = self.slots.get(*slot).map_or(0, |slot| slot.word.load(Ordering::Relaxed));
            (word & (ADDR_BITS | PATCHED) != 0) == data
        })
    }

    /// As a value of the tree; `None`: it names no block.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut runs: Vec<(u8, u8, u64)> = Vec::new();
        let mut crcs = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let addr = slot.word.load(Ordering::Relaxed) & ADDR_BITS;
            if addr == 0 {
                continue;
            }
            crcs.extend_from_slice(&slot.crc.load(Ordering::Relaxed).to_le_bytes());
            match runs.last_mut() {
                Some((first, more, start))
                    if usize::from(*first) + usize::from(*more) + 1 == index
                        && *start + u64::from(*more) + 1 == addr =>
                {
                    *more += 1;
                }
                _ => runs.push((index as u8, 0, addr)),
            }
        }
        if runs.is_empty() {
            return None;
        }
        let mut out = Vec::with_capacity(1 + runs.len() * 8 + crcs.len());
        out.push(runs.len() as u8);
        for (first, more, addr) in runs {
            out.extend_from_slice(&[first, more]);
            out.extend_from_slice(&addr.to_le_bytes()[..6]);
        }
        out.extend_from_slice(&crcs);
        Some(out)
    }

    /// Calls `each` with what the tree must change about patches: slot, and the patches or nothing
    /// if they are gone. Marks them as folded. Nobody publishes meanwhile.
    pub fn fold_patches(&self, each: &mut dyn FnMut(usize, Option<Arc<Patches>>)) {
        for (index, slot) in self.slots.iter().enumerate() {
            let word = slot.word.load(Ordering::Relaxed);
            if word & PATCHED != 0 && word & PATCH_DIRTY != 0 {
                each(index, slot.patches.load_full());
                slot.word.store((word & !PATCH_DIRTY) | PATCH_STORED, Ordering::Relaxed);
            } else if word & PATCHED == 0 && word & PATCH_STORED != 0 {
                each(index, None);
                slot.word.store(word & !PATCH_STORED, Ordering::Relaxed);
            }
        }
    }

    /// The leaf that a stored value and stored patches say.
    pub fn load(value: Option<&[u8]>, patches: &[(usize, Arc<Patches>)]) -> Option<Leaf> {
        let blocks = value.map_or(Some(Vec::new()), decode)?;
        let last =
            blocks.iter().map(|(slot, _)| *slot).chain(patches.iter().map(|(s, _)| *s)).max();
        let leaf = Leaf::new(last.unwrap_or(0));
        for (slot, placed) in blocks {
            let slot = leaf.slots.get(slot)?;
            slot.word.store(placed.addr.bits(), Ordering::Relaxed);
            slot.crc.store(placed.crc, Ordering::Relaxed);
        }
        for (slot, patches) in patches {
            let slot = leaf.slots.get(*slot)?;
            slot.patches.store(Some(patches.clone()));
            slot.word.fetch_or(PATCHED | PATCH_STORED, Ordering::Relaxed);
        }
        Some(leaf)
    }
}

impl LeafLock<'_> {
    /// Changes one slot.
    #[inline]
    pub fn publish(&self, slot: usize, change: &SlotChange) -> Published {
        let Some(slot) = self.leaf.slots.get(slot) else { return Published::default() };
        let word = slot.word.load(Ordering::Relaxed);
        let keep = word & PATCH_STORED;
        match change {
            SlotChange::Place(placed) => {
                slot.word.store(placed.addr.bits() | VERIFIED | keep, Ordering::Relaxed);
                slot.crc.store(placed.crc, Ordering::Relaxed);
            }
            SlotChange::Recover(placed) => {
                slot.word.store(placed.addr.bits() | keep, Ordering::Relaxed);
                slot.crc.store(placed.crc, Ordering::Relaxed);
            }
            SlotChange::Patch(patches) => {
                slot.patches.store(Some(patches.clone()));
                slot.word.store(word | PATCHED | PATCH_DIRTY, Ordering::Relaxed);
                return Published { first_patch: word & PATCH_DIRTY == 0, ..Published::default() };
            }
            SlotChange::Clear => {
                slot.word.store(keep, Ordering::Relaxed);
                slot.crc.store(0, Ordering::Relaxed);
            }
        }
        if word & PATCHED != 0 {
            slot.patches.store(None);
        }
        Published { old: addr_in(word), first_patch: false }
    }

    /// The leaf is replaced or gone when this lock ends.
    pub fn kill(self) {
        self.lock.kill();
    }
}

fn addr_in(word: u64) -> BlockAddr {
    BlockAddr::from_bits(word & ADDR_BITS).unwrap_or(BlockAddr::NONE)
}

/// The blocks that a stored leaf names, by slot; `None` if it makes no sense.
pub fn decode(value: &[u8]) -> Option<Vec<(usize, Placed)>> {
    let mut bytes = Bytes(value);
    let runs = bytes.u8()?;
    let mut blocks: Vec<(usize, Placed)> = Vec::new();
    for _ in 0..runs {
        let (first, more) = (usize::from(bytes.u8()?), u64::from(bytes.u8()?));
        let addr = BlockAddr::from_bits(value_word(bytes.take(6)?))?;
        let follows = blocks.last().is_none_or(|(slot, _)| *slot < first);
        if addr.is_none() || !follows || first as u64 + more >= LEAF_BLOCKS {
            return None;
        }
        for i in 0..=more {
            let addr = BlockAddr::from_bits(addr.bits() + i)?;
            blocks.push((first + i as usize, Placed { addr, crc: 0 }));
        }
    }
    for (_, placed) in &mut blocks {
        placed.crc = bytes.u32()?;
    }
    (bytes.is_empty() && !blocks.is_empty()).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(block: u64) -> Placed {
        Placed { addr: BlockAddr::new(1, block), crc: block as u32 * 3 }
    }

    #[test]
    fn a_leaf_with_runs_and_holes_round_trips() {
        let leaf = Leaf::new(127);
        let lock = leaf.lock().expect("alive");
        for slot in [0, 1, 2, 9, 10, 127] {
            lock.publish(slot, &SlotChange::Place(placed(1000 + slot as u64)));
        }
        drop(lock);
        let value = leaf.encode().expect("has blocks");
        assert_eq!(value.len(), 1 + 3 * 8 + 6 * 4);
        let again = Leaf::load(Some(&value), &[]).expect("just encoded");
        assert_eq!(again.encode(), Some(value));
        assert_eq!(again.view(9).addr, BlockAddr::new(1, 1009));
        assert!(again.view(8).addr.is_none());
        assert!(!again.view(9).verified, "stored blocks are verified at their first read");
    }

    #[test]
    fn the_most_fragmented_leaf_fits_a_tree_value() {
        let leaf = Leaf::new(127);
        let lock = leaf.lock().expect("alive");
        for slot in 0..128 {
            lock.publish(slot, &SlotChange::Place(placed(10_000 - 2 * slot as u64)));
        }
        drop(lock);
        let value = leaf.encode().expect("has blocks");
        assert!(value.len() <= pool::tree::VALUE_BYTES_MAX);
        assert_eq!(decode(&value).map(|blocks| blocks.len()), Some(128));
    }

    #[test]
    fn a_reader_notices_a_publication_and_a_dead_leaf() {
        let leaf = Leaf::new(3);
        let sequence = leaf.begin_read().expect("alive");
        assert!(leaf.still(sequence));
        let lock = leaf.lock().expect("alive");
        lock.publish(0, &SlotChange::Place(placed(5)));
        drop(lock);
        assert!(!leaf.still(sequence));
        leaf.lock().expect("alive").kill();
        assert!(leaf.begin_read().is_none());
        assert!(leaf.lock().is_none());
    }

    #[test]
    fn bytes_that_no_leaf_wrote_are_refused() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0]), None);
        assert_eq!(decode(&[1, 127, 1, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(decode(&[255; 300]), None);
    }
}
