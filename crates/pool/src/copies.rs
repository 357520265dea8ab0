//! Second copies: of tree pages, and of all blocks of a mirrored pool. They are read where the
//! first is damaged, which is then written again.

use crate::addr::BlockAddr;
use crate::error;
use crate::pool::Pool;
use crate::superblock::BLOCK_BYTES;
use crate::tree::{PAGE_BYTES, PagePtr, TreeError};
use pmem::{InFlight, Mapping};

/// A copy of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The one that is read.
    First,
    /// The one in the mirror.
    Mirror,
}

impl Which {
    /// Both.
    pub const ALL: [Which; 2] = [Which::First, Which::Mirror];
}

impl Pool {
    /// The memory that holds a copy of a block, if there is one that is current.
    fn copy(&self, addr: BlockAddr, which: Which) -> Option<&Mapping> {
        let mapping = &self.slices.get(usize::from(addr.slice()))?.mapping;
        match which {
            Which::First => Some(mapping),
            Which::Mirror => mapping.mirror(),
        }
    }

    /// Whether a block has a second copy.
    pub fn is_mirrored(&self, addr: BlockAddr) -> bool {
        self.copy(addr, Which::Mirror).is_some()
    }

    /// Reads one copy of a block, and gives its checksum.
    pub fn read_copy(&self, addr: BlockAddr, which: Which, block: &mut [u8]) -> error::Result<u32> {
        let offset = addr.block() * BLOCK_BYTES;
        let none = pmem::Error::OutOfRange { offset, len: block.len(), size: 0 };
        let mapping = self.copy(addr, which).filter(|_| self.contains(addr)).ok_or(none)?;
        Ok(mapping.read_crc_own(offset, block)?)
    }

    /// Writes one copy of a block again; whether it can be read then. For who promises that it is
    /// durable there is [`mended`](Pool::mended).
    pub fn write_copy(&self, addr: BlockAddr, which: Which, block: &[u8]) -> bool {
        let Some(mapping) = self.copy(addr, which).filter(|_| self.contains(addr)) else {
            return false;
        };
        let _ = mapping.write_own(addr.block() * BLOCK_BYTES, block);
        let mut found = vec![0; block.len()];
        self.read_copy(addr, which, &mut found).is_ok() && found == block
    }

    /// What this thread wrote again is durable when this returns.
    pub fn mended(&self) -> error::Result<()> {
        let _ = pmem::fence(InFlight::none());
        self.sync()
    }

    /// Reads a page, from another copy if need be.
    pub(crate) fn read_either(
        &self,
        ptr: &PagePtr,
        page: &mut [u8; PAGE_BYTES],
    ) -> Result<(), TreeError> {
        let Err(first) = self.read_page_copy(ptr.addr, Which::First, ptr.crc, page) else {
            return Ok(());
        };
        let others =
            [(ptr.addr, Which::Mirror), (ptr.copy, Which::First), (ptr.copy, Which::Mirror)];
        for (addr, which) in others {
            if !addr.is_none() && self.read_page_copy(addr, which, ptr.crc, page).is_ok() {
                self.repair_page(ptr, page, &first);
                return Ok(());
            }
        }
        if self.options().salvage.is_some()
            && let Some(corrected) = self.corrected_page(ptr)
        {
            *page = corrected;
            self.write_copy(ptr.addr, Which::First, page);
            self.note_second_copy(format!("{first}; flipped bits of it were turned back"));
            return Ok(());
        }
        Err(first)
    }

    /// Why a page's second copy could not take its place; None where it has none.
    pub fn second_copy(&self, ptr: &PagePtr) -> Option<Result<(), TreeError>> {
        let mut page = [0; PAGE_BYTES];
        (!ptr.copy.is_none()).then(|| self.read_whole(ptr.copy, ptr.crc, &mut page))
    }

    fn read_whole(
        &self,
        addr: BlockAddr,
        crc: u32,
        page: &mut [u8; PAGE_BYTES],
    ) -> Result<(), TreeError> {
        let first = self.read_page_copy(addr, Which::First, crc, page);
        match first {
            Err(_) if self.read_page_copy(addr, Which::Mirror, crc, page).is_ok() => Ok(()),
            first => first,
        }
    }

    pub(crate) fn read_page_copy(
        &self,
        addr: BlockAddr,
        which: Which,
        crc: u32,
        page: &mut [u8; PAGE_BYTES],
    ) -> Result<(), TreeError> {
        if !self.contains(addr) {
            return Err(TreeError::Damaged { addr, what: "no block of this pool" });
        }
        match self.read_copy(addr, which, page) {
            Ok(found) if pmem::crc_fits(found, crc) => Ok(()),
            Ok(_) => Err(TreeError::Damaged { addr, what: "its checksum does not fit" }),
            Err(error) => Err(TreeError::Unreadable { addr, why: error.to_string() }),
        }
    }

    /// Writes the first copy again. Who reads it meanwhile finds that its checksum does not fit,
    /// and reads the second.
    fn repair_page(&self, ptr: &PagePtr, page: &[u8; PAGE_BYTES], why: &TreeError) {
        if self.read_only() {
            return self.note_second_copy(format!("{why}; its second copy is whole"));
        }
        // if it does not help, the second copy is read again next time
        self.write_copy(ptr.addr, Which::First, page);
        self.note_second_copy(format!("{why}; repaired from its second copy"));
    }

    /// Says that something was read from its second copy.
    pub fn note_second_copy(&self, note: String) {
        let mut told = self.second_copies.lock();
        if !told.contains(&note) {
            told.push(note.clone());
        }
        drop(told);
        self.note(note);
    }

    /// What was read from its second copy, and where the first is.
    pub fn second_copies_read(&self) -> Vec<String> {
        self.second_copies.lock().clone()
    }
}
