//! Second copies of tree pages: read where the first is damaged, which is then written again.

use crate::addr::BlockAddr;
use crate::pool::Pool;
use crate::tree::{PAGE_BYTES, PagePtr, TreeError};

impl Pool {
    /// Reads a page, from its second copy if need be.
    pub(crate) fn read_either(
        &self,
        ptr: &PagePtr,
        page: &mut [u8; PAGE_BYTES],
    ) -> Result<(), TreeError> {
        let Err(first) = self.read_whole(ptr.addr, ptr.crc, page) else { return Ok(()) };
        if ptr.copy.is_none() || self.read_whole(ptr.copy, ptr.crc, page).is_err() {
            return Err(first);
        }
        self.repair_page(ptr, page, &first);
        Ok(())
    }

    /// Why a page's second copy could not take its place; None where it has none.
    pub fn second_copy(&self, ptr: &PagePtr) -> Option<Result<(), TreeError>> {
        let mut page = [0; PAGE_BYTES];
        (!ptr.copy.is_none()).then(|| self.read_whole(ptr.copy, ptr.crc, &mut page))
    }

    pub(crate) fn read_whole(
        &self,
        addr: BlockAddr,
        crc: u32,
        page: &mut [u8; PAGE_BYTES],
    ) -> Result<(), TreeError> {
        if !self.contains(addr) {
            return Err(TreeError::Damaged { addr, what: "no block of this pool" });
        }
        match self.read_crc(addr, page) {
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
        let _ = self.write_again(ptr.addr, ptr.crc, page);
        self.note_second_copy(format!("{why}; repaired from its second copy"));
    }

    /// Writes a copy of a page again, and reads it.
    pub(crate) fn write_again(
        &self,
        addr: BlockAddr,
        crc: u32,
        page: &[u8; PAGE_BYTES],
    ) -> Result<(), TreeError> {
        if !self.contains(addr) {
            return Err(TreeError::Damaged { addr, what: "no block of this pool" });
        }
        let (written, _) = self.write_block(addr, page);
        let _ = pmem::fence(written);
        self.read_whole(addr, crc, &mut [0; PAGE_BYTES])
    }

    /// Says that something was read from its second copy.
    fn note_second_copy(&self, note: String) {
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
