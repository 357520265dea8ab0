//! Publication: what changes in a leaf, while its readers wait.

use super::*;
use crate::sequence::SequenceLock;
use crate::slot::{Published, SlotChange};

/// A leaf, locked for publication. Readers wait for its end: only stores in between.
#[derive(Debug)]
pub struct LeafLock<'l> {
    leaf: &'l Leaf,
    lock: SequenceLock<'l>,
}

impl<'l> LeafLock<'l> {
    pub(super) fn new(leaf: &'l Leaf, lock: SequenceLock<'l>) -> LeafLock<'l> {
        LeafLock { leaf, lock }
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
            SlotChange::Place(placed) => return place(slot, placed, VERIFIED | USED),
            SlotChange::Recover(placed) => return place(slot, placed, 0),
            SlotChange::Unwritten(placed, patches) => {
                slot.patches.store(Some(patches.clone()));
                slot.crc.store(placed.crc, Ordering::Relaxed);
                let flags = VERIFIED | PATCHED | UNWRITTEN | USED | keep;
                slot.word.store(placed.addr.bits() | flags, Ordering::Relaxed);
                return replaced_by(word, placed.addr);
            }
            SlotChange::Reserve(addr) => {
                self.leaf.reserves.store(true, Ordering::Relaxed);
                slot.crc.store(0, Ordering::Relaxed);
                slot.word.store(addr.bits() | RESERVED | keep, Ordering::Relaxed);
                return replaced(word);
            }
            SlotChange::Move(addr) => {
                slot.word.store(addr.bits() | word & SHARED | keep, Ordering::Relaxed);
                if word & PATCHED != 0 {
                    slot.patches.store(None);
                }
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
                if !addr_in(word).is_none() && word & RESERVED == 0 {
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

/// A written block takes the slot.
#[inline(always)]
fn place(slot: &Slot, placed: &Placed, flags: u64) -> Published {
    let word = slot.word.load(Ordering::Relaxed);
    let flags = flags | word & PATCH_STORED;
    slot.word.store(placed.addr.bits() | flags, Ordering::Relaxed);
    slot.crc.store(placed.crc, Ordering::Relaxed);
    if word & PATCHED != 0 {
        slot.patches.store(None);
    }
    replaced_by(word, placed.addr)
}

/// What was in a slot of this word has lost its place.
#[inline]
fn replaced(word: u64) -> Published {
    Published { old: addr_in(word), shared: word & SHARED != 0, ..Published::default() }
}

/// The same where the slot has `addr` now, which may have been reserved for it.
#[inline]
fn replaced_by(word: u64, addr: BlockAddr) -> Published {
    if addr_in(word) == addr {
        return Published { kept: true, ..Published::default() };
    }
    replaced(word)
}
