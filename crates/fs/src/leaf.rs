//! A leaf of a file's block map: where 128 blocks (512 KiB) of the file are.
//!
//! What it keeps true:
//! - writers publish under the leaf's lock bit, for nanoseconds; readers take nothing: they copy
//!   the slots they need and take the copy only if the sequence number did not move meanwhile;
//! - a leaf that was replaced (grown, dropped by a truncation) is dead for ever: who still holds it
//!   finds out and looks the leaf up again;
//! - bytes of a block change in place only under the lock, after a count of such changes went up:
//!   a reader that copied the block meanwhile finds the count changed, and copies again;
//! - a slot's checksum is that of the block with its patches over it. So it fits whatever part of
//!   the patches' bytes lies in the block already.

use crate::item::Placed;
use crate::leaf_value::{self, Named, Part};
use crate::patches::Patches;
use crate::sequence::Sequence;
use crate::slot::{Freed, SlotView};
use crate::types::FILE_BYTES_MAX;
use arc_swap::ArcSwapOption;
use placement::Heat;
use pool::{BlockAddr, Pool};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

#[path = "leaf_lock.rs"]
mod lock;

pub use lock::LeafLock;

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
/// The block is not written yet: the patches are all that it is to hold.
const UNWRITTEN: u64 = 1 << 59;
/// The block may have other places: its references are counted, and its bytes never change.
const SHARED: u64 = 1 << 58;
/// The block is set aside for this slot and not written: a hole to all but the writer who fills it.
/// Neither verified nor patched nor shared.
const RESERVED: u64 = 1 << 57;
/// The block was written or read since somebody looked who is cold: a hint, see `write_back`.
const USED: u64 = 1 << 56;

/// Of a leaf: it changed since the last cut.
pub const DIRTY: u8 = 1;
/// Of a leaf: it is listed as one that changed and may have blocks to be written back (`lines.rs`).
const LISTED: u8 = 2;
const BOTH: u8 = DIRTY | LISTED;

#[derive(Debug, Default)]
struct Slot {
    word: AtomicU64,
    crc: AtomicU32,
    patches: ArcSwapOption<Patches>,
}

/// A leaf.
#[derive(Debug)]
pub struct Leaf {
    sequence: Sequence,
    /// Changes of blocks in place, and 1 when the leaf died.
    in_place: AtomicU64,
    /// [`DIRTY`], [`LISTED`].
    state: AtomicU8,
    /// Some slot may be reserved.
    reserves: AtomicBool,
    /// Who has lost how much for its blocks being where they are: see `placement::Heat`.
    heat: [AtomicU64; 2],
    slots: Box<[Slot]>,
}

impl Leaf {
    /// An empty leaf with room for slot `slot`.
    pub fn new(slot: usize) -> Leaf {
        let room = (slot + 1).next_power_of_two().max(SLOTS_FIRST);
        Leaf {
            sequence: Sequence::new(),
            in_place: AtomicU64::new(0),
            state: AtomicU8::new(0),
            reserves: AtomicBool::new(false),
            heat: Default::default(),
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

    /// It changed: what it was not before, of [`DIRTY`] and [`LISTED`]. Under its lock, so that who
    /// grows the leaf takes the marks along.
    #[inline]
    pub fn set_dirty(&self) -> u8 {
        match self.state.load(Ordering::Relaxed) {
            BOTH => 0,
            _ => BOTH & !self.state.fetch_or(BOTH, Ordering::Relaxed),
        }
    }

    /// Whether it changed since the last cut.
    pub fn is_dirty(&self) -> bool {
        self.state.load(Ordering::Relaxed) & DIRTY != 0
    }

    /// The cut has it as it is.
    pub fn set_clean(&self) {
        self.state.fetch_and(!DIRTY, Ordering::Relaxed);
    }

    /// It is no longer listed as one that changed. Under its lock: what was published before is
    /// seen by who looks now, and what comes later lists it again.
    pub fn unlist(&self) {
        self.state.fetch_and(!LISTED, Ordering::Relaxed);
    }

    /// Locks it for publication; `None` if it is dead.
    #[inline]
    pub fn lock(&self) -> Option<LeafLock<'_>> {
        Some(LeafLock::new(self, self.sequence.lock()?))
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

    /// A number to compare with [`still_in_place`](Leaf::still_in_place) after a copy; noted under
    /// a sequence number that still holds.
    #[inline]
    pub fn in_place(&self) -> u64 {
        self.in_place.load(Ordering::Relaxed)
    }

    /// Whether no block of the leaf changed in place since `noted`: what was copied out since is
    /// as the slots said.
    #[inline]
    pub fn still_in_place(&self, noted: u64) -> bool {
        // ordering: pairs with the Release fence of `count`; who copied a changed byte sees that
        // the count moved
        fence(Ordering::Acquire);
        self.in_place.load(Ordering::Relaxed) == noted
    }

    /// One slot as it is; to be validated with `still`.
    #[inline]
    pub fn view(&self, slot: usize) -> SlotView {
        let Some(slot) = self.slots.get(slot) else { return SlotView::default() };
        let word = slot.word.load(Ordering::Relaxed);
        let reserved = word & RESERVED != 0;
        SlotView {
            addr: if reserved { BlockAddr::NONE } else { addr_in(word) },
            crc: slot.crc.load(Ordering::Relaxed),
            verified: word & VERIFIED != 0,
            shared: word & SHARED != 0,
            reserved,
            patches: if word & PATCHED == 0 { None } else { slot.patches.load_full() },
        }
    }

    /// Where the slot's block is, if it is verified and nothing overlays it; to be validated.
    #[inline]
    pub fn plain(&self, slot: usize) -> Option<BlockAddr> {
        let word = self.slots.get(slot)?.word.load(Ordering::Relaxed);
        let addr = addr_in(word);
        let plain = word & (VERIFIED | PATCHED) == VERIFIED && !addr.is_none();
        plain.then_some(addr)
    }

    /// The same if the block has no other place, with its checksum.
    #[inline]
    pub fn plain_own(&self, slot: usize) -> Option<Placed> {
        let slot = self.slots.get(slot)?;
        let word = slot.word.load(Ordering::Relaxed);
        let addr = addr_in(word);
        let own = word & (VERIFIED | PATCHED | SHARED) == VERIFIED && !addr.is_none();
        own.then(|| Placed { addr, crc: slot.crc.load(Ordering::Relaxed) })
    }

    /// The block that is set aside for the slot and not written. The caller holds the slot's range.
    #[inline]
    pub fn reserved(&self, slot: usize) -> Option<BlockAddr> {
        if !self.reserves.load(Ordering::Relaxed) {
            return None;
        }
        let word = self.slots.get(slot)?.word.load(Ordering::Relaxed);
        (word & RESERVED != 0).then(|| addr_in(word))
    }

    /// Whether some slot may be reserved.
    #[inline]
    pub fn reserves(&self) -> bool {
        self.reserves.load(Ordering::Relaxed)
    }

    /// The block's checksum fits: later reads need not look again.
    pub fn set_verified(&self, slot: usize, addr: BlockAddr) {
        let Some(slot) = self.slots.get(slot) else { return };
        let word = slot.word.load(Ordering::Relaxed);
        if addr_in(word) == addr && word & RESERVED == 0 {
            // ordering: a hint; a writer that comes between wins and the hint is lost
            let _ = slot.word.compare_exchange(
                word,
                word | VERIFIED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Somebody reads the block.
    #[inline]
    pub fn heat(&self, slot: usize) {
        let Some(slot) = self.slots.get(slot) else { return };
        let word = slot.word.load(Ordering::Relaxed);
        if word & USED == 0 {
            // ordering: a hint
            let (order, used) = (Ordering::Relaxed, word | USED);
            let _ = slot.word.compare_exchange(word, used, order, order);
        }
    }

    /// What accesses have lost for its blocks being where they are.
    #[inline]
    pub fn lost(&self) -> Heat {
        Heat::from_words([0, 1].map(|word: usize| self.heat[word].load(Ordering::Relaxed)))
    }

    /// Sets that: an account, in which one of two who come at one time is lost.
    #[inline]
    pub fn set_lost(&self, heat: Heat) {
        let words = heat.to_words();
        self.heat.iter().zip(words).for_each(|(own, word)| own.store(word, Ordering::Relaxed));
    }

    /// Whether somebody used the block since the last such look, or it changes just now.
    pub fn cool(&self, slot: usize) -> bool {
        let Some(slot) = self.slots.get(slot) else { return false };
        let word = slot.word.load(Ordering::Relaxed);
        let (order, unused) = (Ordering::Relaxed, word & !USED);
        let changed = slot.word.compare_exchange(word, unused, order, order).is_err();
        word & USED != 0 || changed
    }

    /// Whether every block is one that the pool has, and nothing lies over those of the
    /// capacity tier.
    pub fn fits(&self, pool: &Pool) -> bool {
        let flags = PATCHED | UNWRITTEN;
        self.slots.iter().map(|slot| slot.word.load(Ordering::Relaxed)).all(|word| {
            let addr = addr_in(word);
            addr.is_none() || pool.contains(addr) && (addr.device().is_none() || word & flags == 0)
        })
    }

    /// A copy with room for slot `slot`; the caller holds the lock of `self`.
    pub fn grown(&self, slot: usize) -> Leaf {
        let larger = Leaf::new(slot.max(self.slots.len()));
        for (from, to) in self.slots.iter().zip(&larger.slots) {
            to.word.store(from.word.load(Ordering::Relaxed), Ordering::Relaxed);
            to.crc.store(from.crc.load(Ordering::Relaxed), Ordering::Relaxed);
            to.patches.store(from.patches.load_full());
        }
        larger.state.store(self.state.load(Ordering::Relaxed), Ordering::Relaxed);
        larger.reserves.store(self.reserves(), Ordering::Relaxed);
        larger.set_lost(self.lost());
        larger
    }

    /// Blocks that it names.
    pub fn blocks(&self) -> Freed {
        let mut blocks = Freed::default();
        for slot in &self.slots {
            let word = slot.word.load(Ordering::Relaxed);
            if !addr_in(word).is_none() {
                blocks.push(addr_in(word), word & SHARED != 0);
            }
        }
        blocks
    }

    /// First slot at or after `from` that is data (`data`) or a hole.
    pub fn find(&self, from: usize, data: bool) -> Option<usize> {
        (from..LEAF_BLOCKS as usize).find(|slot| {
            let word = self.slots.get(*slot).map_or(0, |slot| slot.word.load(Ordering::Relaxed));
            (word & (ADDR_BITS | PATCHED) != 0 && word & RESERVED == 0) == data
        })
    }

    /// As a value of the tree; `None`: it names no block.
    pub fn encode(&self) -> Option<Vec<u8>> {
        leaf_value::encode(self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let word = slot.word.load(Ordering::Relaxed);
            let placed = Placed { addr: addr_in(word), crc: slot.crc.load(Ordering::Relaxed) };
            let part = match word & (SHARED | RESERVED) {
                0 => Part::Own,
                SHARED => Part::Shared,
                _ => Part::Reserved,
            };
            (!placed.addr.is_none()).then_some(Named { slot: index, placed, part })
        }))
    }

    /// The slot's block and all that it is to hold, if it is not written yet. Under the lock, or to
    /// be checked under it.
    pub fn unwritten(&self, slot: usize) -> Option<(BlockAddr, Arc<Patches>)> {
        let slot = self.slots.get(slot)?;
        let word = slot.word.load(Ordering::Relaxed);
        let patches = if word & UNWRITTEN == 0 { None } else { slot.patches.load_full() };
        Some((addr_in(word), patches?))
    }

    /// Where its blocks lie that are in slices: written or reserved, in the order of its slots.
    pub fn slices(&self) -> impl Iterator<Item = u8> {
        let addrs = self.slots.iter().map(|slot| addr_in(slot.word.load(Ordering::Relaxed)));
        addrs.filter(|addr| !addr.is_none() && addr.device().is_none()).map(|addr| addr.slice())
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
        let blocks = value.map_or(Some(Vec::new()), leaf_value::decode)?;
        let patched = patches.iter().map(|(slot, _)| *slot);
        let last = blocks.iter().map(|named| named.slot).chain(patched).max();
        let leaf = Leaf::new(last.unwrap_or(0));
        for named in blocks {
            let slot = leaf.slots.get(named.slot)?;
            let flags = match named.part {
                Part::Own => 0,
                Part::Shared => SHARED,
                Part::Reserved => RESERVED,
            };
            slot.word.store(named.placed.addr.bits() | flags, Ordering::Relaxed);
            slot.crc.store(named.placed.crc, Ordering::Relaxed);
            if named.part == Part::Reserved {
                leaf.reserves.store(true, Ordering::Relaxed);
            }
        }
        for (slot, patches) in patches {
            let slot = leaf.slots.get(*slot)?;
            slot.patches.store(Some(patches.clone()));
            let word = slot.word.fetch_or(PATCHED | PATCH_STORED, Ordering::Relaxed);
            if word & RESERVED != 0 {
                return None;
            }
            if addr_in(word).is_none() {
                slot.crc.store(patches.crc_over_zeros(), Ordering::Relaxed);
            }
        }
        Some(leaf)
    }
}

fn addr_in(word: u64) -> BlockAddr {
    BlockAddr::from_bits(word & ADDR_BITS).unwrap_or(BlockAddr::NONE)
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
