//! Memory that stands for a medium (tests and the crash explorer).

use crate::cpu;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::map::Addresses;
use crate::mapping::Mapping;
use std::sync::Arc;

/// Memory that any number of mappings show, one after the other or at once, as programs map one
/// file: a pool is opened in it, dropped, and the bytes are there for the next.
///
/// What is read and written here goes past the mappings, and no recorder sees it.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Addresses>);

/// Anonymous memory, zeroed.
pub(crate) fn anonymous(len: usize) -> Result<Addresses> {
    Addresses::anonymous(len)
        .map_err(|source| Error::Io { what: format!("map {len} bytes of memory"), source })
}

impl Memory {
    /// Zeroed memory of `len` bytes.
    pub fn new(len: usize) -> Result<Memory> {
        Ok(Memory(Arc::new(anonymous(len)?)))
    }

    /// Its bytes.
    #[allow(clippy::len_without_is_empty)] // memory of no bytes does not exist
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// A mapping of it, which runs the code of `domain`.
    pub fn mapping(&self, domain: Domain) -> Result<Mapping> {
        Ok(Mapping::of_addresses(Addresses::shared(&self.0), domain, cpu::chosen()?))
    }

    /// Puts `data` at `offset`. Nobody else writes there meanwhile.
    ///
    /// # Panics
    /// Beyond the end.
    pub fn put(&self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        // SAFETY: in range, as was just checked; `data` is a reference, and none leads into mapped
        // memory. Other threads see a mixture, as with every mapping.
        unsafe { self.0.base().add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
    }

    fn check(&self, offset: usize, len: usize) {
        let room = self.0.len().checked_sub(offset);
        assert!(room.is_some_and(|room| len <= room), "{len} bytes at {offset}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mapping_stores_is_there_for_the_next() {
        let memory = Memory::new(8192).unwrap();
        memory.put(100, b"put");
        let first = memory.mapping(Domain::Process).unwrap();
        let _ = crate::fence(first.write(200, b"stored"));
        drop(first);
        let next = memory.mapping(Domain::CpuFlush).unwrap();
        drop(memory);
        let image = next.copy_image();
        assert_eq!((&image[100..103], &image[200..206]), (&b"put"[..], &b"stored"[..]));
        assert_eq!(image.iter().filter(|byte| **byte != 0).count(), 9);
    }

    #[test]
    #[should_panic(expected = "4 bytes at 8189")]
    fn nothing_is_put_beyond_the_end() {
        Memory::new(8192).unwrap().put(8189, b"long");
    }
}
