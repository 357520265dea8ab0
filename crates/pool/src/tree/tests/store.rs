//! Pages in memory, which counts what it is given and gives out.

use crate::tree::{BlockAddr, PAGE_BYTES, PagePtr, PageRead, PageStore, TreeError};
use std::{cell::Cell, collections::BTreeSet};

/// Pages by address; an address is never used twice, so that old versions stay readable.
pub struct Store {
    pub pages: Vec<Box<[u8; PAGE_BYTES]>>,
    pub freed: BTreeSet<u64>,
    /// How many more pages may be written.
    pub room: usize,
    /// Whether checksums are compared; tests of damage switch it off.
    pub verify: bool,
    pub reads: Cell<u64>,
}

impl Store {
    pub fn new() -> Store {
        Store {
            pages: Vec::new(),
            freed: BTreeSet::new(),
            room: usize::MAX,
            verify: true,
            reads: Cell::new(0),
        }
    }

    /// Addresses written and not freed.
    pub fn live(&self) -> BTreeSet<u64> {
        let written = (1..=self.pages.len() as u64).map(|block| BlockAddr::new(0, block).bits());
        written.filter(|bits| !self.freed.contains(bits)).collect()
    }

    /// The bytes at `addr`, if there are any.
    pub fn page_mut(&mut self, addr: BlockAddr) -> Option<&mut [u8; PAGE_BYTES]> {
        let index = usize::try_from(addr.block()).ok()?.checked_sub(1)?;
        self.pages.get_mut(index).map(|page| &mut **page)
    }
}

/// Not CRC32C, which is not this module's; any sum shows whether the tree keeps it.
fn sum(page: &[u8; PAGE_BYTES]) -> u32 {
    let (words, _) = page.as_chunks::<8>();
    let sum = words.iter().fold(1u64, |sum, word| {
        (sum.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    (sum >> 32) as u32
}

impl PageRead for Store {
    fn read_page(&self, ptr: &PagePtr, page: &mut [u8; PAGE_BYTES]) -> Result<(), TreeError> {
        self.reads.set(self.reads.get() + 1);
        let index = usize::try_from(ptr.addr.block()).ok().and_then(|block| block.checked_sub(1));
        let Some(stored) = index.and_then(|index| self.pages.get(index)) else {
            return Err(TreeError::Damaged { addr: ptr.addr, what: "no such block" });
        };
        page.copy_from_slice(&**stored);
        if self.verify && sum(page) != ptr.crc {
            return Err(TreeError::Damaged { addr: ptr.addr, what: "checksum" });
        }
        Ok(())
    }
}

impl PageStore for Store {
    fn write_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<PagePtr, TreeError> {
        if self.room == 0 {
            return Err(TreeError::NoSpace);
        }
        self.room -= 1;
        self.pages.push(Box::new(*page));
        let addr = BlockAddr::new(0, self.pages.len() as u64);
        Ok(PagePtr { addr, copy: BlockAddr::NONE, crc: sum(page) })
    }

    fn free_page(&mut self, ptr: &PagePtr) {
        assert!(self.freed.insert(ptr.addr.bits()) || !self.verify, "a page is freed twice");
    }
}
