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
use crate::leaf_value;
use crate::patches::Patches;
use crate::sequence::{Sequence, SequenceLock};
use crate::slot::{Freed, Published, SlotChange, SlotView};
use crate::types::FILE_BYTES_MAX;
use arc_swap::ArcSwapOption;
use pool::BlockAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

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
    /// Changed since the last cut.
    pub dirty: AtomicBool,
    slots: Box<[Slot]>,
}

/// A leaf, locked for publication. Readers wait for its end: only stores in between.
#[derive(Debug)]
pub struct LeafLock<'l> {
    leaf: &'l Leaf,
    lock: SequenceLock<'l>,
}

impl Leaf {
    /// An empty leaf with room for slot `slot`.
    pub fn new(slot: usize) -> Leaf {
        let room = (slot + 1).next_power_of_two().max(SLOTS_FIRST);
        Leaf {
            sequence: Sequence::new(),
            in_place: AtomicU64::new(0),
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
        SlotView {
            addr: addr_in(word),
            crc: slot.crc.load(Ordering::Relaxed),
            verified: word & VERIFIED != 0,
            shared: word & SHARED != 0,
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
            (word & (ADDR_BITS | PATCHED) != 0) == data
        })
    }

    /// As a value of the tree; `None`: it names no block.
    pub fn encode(&self) -> Option<Vec<u8>> {
        leaf_value::encode(self.slots.iter().map(|slot| {
            let word = slot.word.load(Ordering::Relaxed);
            let crc = slot.crc.load(Ordering::Relaxed);
            (Placed { addr: addr_in(word), crc }, word & SHARED != 0)
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
            let shared = if named.shared { SHARED } else { 0 };
            slot.word.store(named.placed.addr.bits() | shared, Ordering::Relaxed);
            slot.crc.store(named.placed.crc, Ordering::Relaxed);
        }
        for (slot, patches) in patches {
            let slot = leaf.slots.get(*slot)?;
            slot.patches.store(Some(patches.clone()));
            let word = slot.word.fetch_or(PATCHED | PATCH_STORED, Ordering::Relaxed);
            if addr_in(word).is_none() {
                slot.crc.store(patches.crc_over_zeros(), Ordering::Relaxed);
            }
        }
        Some(leaf)
    }
}

impl LeafLock<'_> {
    /// Changes one slot. For a change in place, the bytes are to be stored before the lock ends.
    #[inline(always)] // most callers know which change it is: little of this is left there
    pub fn publish(&self, slot: usize, change: &SlotChange<'_>) -> Published {
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
            SlotChange::Unwritten(placed, patches) => {
                slot.patches.store(Some(patches.clone()));
                slot.crc.store(placed.crc, Ordering::Relaxed);
                let flags = VERIFIED | PATCHED | UNWRITTEN | keep;
                slot.word.store(placed.addr.bits() | flags, Ordering::Relaxed);
                return replaced(word);
            }
            SlotChange::Patch(patches, crc) => {
                slot.patches.store(Some(patches.clone()));
                slot.crc.store(*crc, Ordering::Relaxed);
                // the block may have been written since the patches were looked at (`inline.rs`):
                // it is to be written again with all of them
                let all = patches.cover_all() && !addr_in(word).is_none();
                let unwritten = if all { UNWRITTEN } else { 0 };
                slot.word.store(word | PATCHED | PATCH_DIRTY | unwritten, Ordering::Relaxed);
                return Published { first_patch: word & PATCH_DIRTY == 0, ..Published::default() };
            }
            SlotChange::InPlace(change) => {
                slot.crc.store(change.crc, Ordering::Relaxed);
                self.count();
                return Published::default();
            }
            SlotChange::Share(view) => {
                let all = view.patches.as_ref().is_some_and(|patches| patches.cover_all());
                let verified = if view.verified { VERIFIED } else { 0 };
                let patched = if view.patches.is_some() { PATCHED } else { 0 };
                let flags = SHARED | verified | patched | if all { UNWRITTEN } else { 0 };
                slot.patches.store(view.patches.clone());
                slot.crc.store(view.crc, Ordering::Relaxed);
                slot.word.store(view.addr.bits() | flags | keep, Ordering::Relaxed);
                return replaced(word);
            }
            SlotChange::Mark => {
                if !addr_in(word).is_none() {
                    slot.word.store(word | SHARED, Ordering::Relaxed);
                }
                return Published::default();
            }
            SlotChange::Clear => {
                slot.word.store(keep, Ordering::Relaxed);
                slot.crc.store(0, Ordering::Relaxed);
            }
        }
        if word & PATCHED != 0 {
            slot.patches.store(None);
        }
        replaced(word)
    }

    /// Takes the patches off a slot whose block is to hold their bytes.
    pub fn take_patches(&self, slot: usize) -> Option<Arc<Patches>> {
        let slot = self.leaf.slots.get(slot)?;
        let word = slot.word.load(Ordering::Relaxed);
        if word & PATCHED == 0 || addr_in(word).is_none() {
            return None;
        }
        slot.word.store(word & !(PATCHED | PATCH_DIRTY | UNWRITTEN), Ordering::Relaxed);
        self.count();
        slot.patches.swap(None)
    }

    /// The slot's block was written with what `unwritten` said: it needs no patches any more. Not
    /// if the slot changed since.
    pub fn written(&self, slot: usize, addr: BlockAddr, patches: &Arc<Patches>) {
        let now = self.leaf.unwritten(slot);
        let same = |(now_addr, now): &(BlockAddr, Arc<Patches>)| {
            *now_addr == addr && Arc::ptr_eq(now, patches)
        };
        if now.as_ref().is_some_and(same) {
            self.take_patches(slot);
        }
    }

    /// Bytes of a block are about to change in place.
    #[inline]
    fn count(&self) {
        self.leaf.in_place.store(self.leaf.in_place() + 1, Ordering::Relaxed);
        // ordering: the count moves before the bytes do
        fence(Ordering::Release);
    }

    /// The leaf is replaced or gone when this lock ends.
    pub fn kill(self) {
        self.count();
        self.lock.kill();
    }
}

/// What was in a slot of this word has lost its place.
#[inline]
fn replaced(word: u64) -> Published {
    Published { old: addr_in(word), shared: word & SHARED != 0, first_patch: false }
}

fn addr_in(word: u64) -> BlockAddr {
    BlockAddr::from_bits(word & ADDR_BITS).unwrap_or(BlockAddr::NONE)
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
