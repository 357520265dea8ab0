//! A page's bytes, read: nothing here trusts them.
//!
//! [`Page::open`] looks at the header only, so that a lookup costs a binary search and no more;
//! what it then reads is checked where it is read. [`Page::check`] looks at everything, and is what
//! a change or a walk does before it builds on a page.

use super::{
    Child, Key, PAGE_BYTES, PagePtr, TreeError, VALUE_BYTES_MAX, error::damaged, key::KEY_BYTES,
    pointer::PAGE_PTR_BYTES,
};
use crate::addr::BlockAddr;

/// "NSTP" (Nearside tree page) in the order of the bytes.
pub(super) const MAGIC: [u8; 4] = *b"NSTP";
/// Version of the layout in `mod.rs`.
pub(super) const VERSION: u8 = 1;

pub(super) const OFF_MAGIC: usize = 0;
pub(super) const OFF_VERSION: usize = OFF_MAGIC + 4;
pub(super) const OFF_LEVEL: usize = OFF_VERSION + 1;
pub(super) const OFF_COUNT: usize = OFF_LEVEL + 1;
pub(super) const OFF_USED: usize = OFF_COUNT + 2;
pub(super) const OFF_ZERO: usize = OFF_USED + 2;
pub(super) const OFF_SLOTS: usize = OFF_ZERO + 22;
const _: () = assert!(OFF_SLOTS == 32);

/// A slot is the entry's key and where its value ends in the page.
pub(super) const SLOT_BYTES: usize = KEY_BYTES + 2;
const _: () = assert!(SLOT_BYTES == 19);

/// Bytes of a page that entries (slot and value) may take.
pub(super) const ENTRY_SPACE: usize = PAGE_BYTES - OFF_SLOTS;
/// Entries that a page has at most, when all values are empty.
pub(super) const COUNT_MAX: usize = ENTRY_SPACE / SLOT_BYTES;

// A page takes two entries of any size, and a page that has no room for one more entry is
// filled to 60 %.
const _: () = assert!(2 * (SLOT_BYTES + VALUE_BYTES_MAX) <= ENTRY_SPACE);
const _: () = assert!(ENTRY_SPACE - (SLOT_BYTES + VALUE_BYTES_MAX) >= ENTRY_SPACE * 60 / 100);
// Offsets, up to the page's end inclusive, and counts fit in 16 bits.
const _: () = assert!(PAGE_BYTES <= u16::MAX as usize && COUNT_MAX < PAGE_BYTES);

/// A page whose header makes sense.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    bytes: &'a [u8; PAGE_BYTES],
    addr: BlockAddr,
    count: usize,
}

impl<'a> Page<'a> {
    /// The page that `bytes` are, if its header and its first key are what its parent says.
    pub fn open(bytes: &'a [u8; PAGE_BYTES], child: &Child) -> Result<Page<'a>, TreeError> {
        let addr = child.ptr.addr;
        if bytes[OFF_MAGIC..OFF_VERSION] != MAGIC {
            return damaged(addr, "not a tree page");
        }
        if bytes[OFF_VERSION] != VERSION {
            return damaged(addr, "a version of the page layout that is not known");
        }
        if bytes[OFF_LEVEL] != child.level {
            return damaged(addr, "not of the level below its parent");
        }
        let count = usize::from(u16_at(bytes, OFF_COUNT));
        if count == 0 || count > COUNT_MAX {
            return damaged(addr, "an impossible count of entries");
        }
        let page = Page { bytes, addr, count };
        if child.first.is_some_and(|first| first != page.key(0)) {
            return damaged(addr, "does not begin with the key that its parent says");
        }
        Ok(page)
    }

    /// The page that a tree without any is changed from; such a page is never stored.
    pub fn empty(bytes: &'a [u8; PAGE_BYTES]) -> Page<'a> {
        Page { bytes, addr: BlockAddr::NONE, count: 0 }
    }

    /// Looks at all of the page: order, bounds, offsets, pointers, what must be zero.
    pub fn check(&self, child: &Child) -> Result<(), TreeError> {
        let mut end = self.values_start();
        for i in 0..self.count {
            if i > 0 && self.key(i) <= self.key(i - 1) {
                return damaged(self.addr, "keys are not in order");
            }
            let value = self.value(i)?;
            if value.len() > VALUE_BYTES_MAX {
                return damaged(self.addr, "a value is too long");
            }
            if child.level > 0 {
                self.child(i, child)?;
            }
            end += value.len();
        }
        if child.upper.is_some_and(|upper| self.key(self.count - 1) >= upper) {
            return damaged(self.addr, "a key belongs to the next page");
        }
        if end != usize::from(u16_at(self.bytes, OFF_USED)) {
            return damaged(self.addr, "the bytes in use are not those of the entries");
        }
        if self.bytes[OFF_ZERO..OFF_SLOTS].iter().any(|byte| *byte != 0) {
            return damaged(self.addr, "the header's reserved bytes are in use");
        }
        Ok(())
    }

    /// How many entries the page has; at least one in a page from the medium.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes that the entries take, as far as the header says.
    pub fn entry_bytes(&self) -> usize {
        usize::from(u16_at(self.bytes, OFF_USED)).saturating_sub(OFF_SLOTS)
    }

    /// Key of entry `i`, which must be below the count.
    pub fn key(&self, i: usize) -> Key {
        self.slot(i).first_chunk().map_or(Key::MAX, Key::decode)
    }

    /// Value of entry `i`, which must be below the count.
    pub fn value(&self, i: usize) -> Result<&'a [u8], TreeError> {
        let start = if i == 0 { self.values_start() } else { self.value_end(i - 1) };
        let value = self.bytes.get(start..self.value_end(i));
        match value {
            Some(value) if start >= self.values_start() => Ok(value),
            _ => damaged(self.addr, "a value lies outside the page"),
        }
    }

    /// What entry `i` of this inner page, which `own` names, says about a page below.
    pub fn child(&self, i: usize, own: &Child) -> Result<Child, TreeError> {
        let value: Option<&[u8; PAGE_PTR_BYTES]> = self.value(i)?.try_into().ok();
        let ptr = match value.and_then(PagePtr::decode) {
            Some(ptr) if !ptr.addr.is_none() => ptr,
            _ => return damaged(self.addr, "a pointer that names no block"),
        };
        let Some(level) = own.level.checked_sub(1) else {
            return damaged(self.addr, "a leaf has no children");
        };
        let upper = if i + 1 < self.count { Some(self.key(i + 1)) } else { own.upper };
        Ok(Child { ptr, level, first: Some(self.key(i)), upper })
    }

    /// Where `key` is, or else the first entry above it; anything up to the count if the page is
    /// not in order.
    pub fn find(&self, key: &Key) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The entry of this inner page below which `key` is, if it is anywhere; None if it is below
    /// the first.
    pub fn find_child(&self, key: &Key) -> Option<usize> {
        match self.find(key) {
            Ok(i) => Some(i),
            Err(i) => i.checked_sub(1),
        }
    }

    /// Where the slots end and the values begin.
    fn values_start(&self) -> usize {
        OFF_SLOTS + self.count * SLOT_BYTES
    }

    /// Where value `i` ends, if the slot is to be believed.
    fn value_end(&self, i: usize) -> usize {
        usize::from(u16_at(self.slot(i), KEY_BYTES))
    }

    fn slot(&self, i: usize) -> &'a [u8; SLOT_BYTES] {
        debug_assert!(i < self.count && self.count <= COUNT_MAX);
        let slot = self.bytes.get(OFF_SLOTS + i * SLOT_BYTES..);
        slot.and_then(|rest| rest.first_chunk()).unwrap_or(&[0xff; SLOT_BYTES])
    }
}

/// The number at `at`, 0 if it does not lie in `bytes`.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |two| u16::from_le_bytes(*two))
}
