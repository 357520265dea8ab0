//! Words in a file: one process stores them, others can only load them.
//!
//! Whoever gives a process such words to load opens the file for reading only, and the file's mode
//! lets nobody open it anew for writing but who could write everything else of that user's.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::mm::ProtFlags;

use crate::mapped::Mapped;
use crate::mapping::io;
use crate::{Error, Result};

/// Words of 8 bytes at the beginning of a file, mapped.
#[derive(Debug)]
pub struct Words {
    memory: Mapped,
    is_writable: bool,
}

impl Words {
    /// Maps the words to load them. Whoever made the file must not make it shorter.
    pub fn to_load(file: BorrowedFd<'_>, count: usize) -> Result<Words> {
        Words::map(file, count, false)
    }

    /// Maps the words to store them, too.
    pub fn to_store(file: BorrowedFd<'_>, count: usize) -> Result<Words> {
        Words::map(file, count, true)
    }

    fn map(file: BorrowedFd<'_>, count: usize, is_writable: bool) -> Result<Words> {
        let bytes = count * size_of::<u64>();
        let len = rustix::fs::fstat(file).map_err(io("fstat"))?.st_size;
        if bytes == 0 || u64::try_from(len).is_ok_and(|len| len < bytes as u64) {
            return Err(Error::Foreign);
        }
        let store = if is_writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        let memory = Mapped::new(file, bytes, ProtFlags::READ | store)?;
        Ok(Words { memory, is_writable })
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.memory.bytes() / size_of::<u64>(), "inside of the words");
        // SAFETY: the word is inside the mapping, which lives as long as `self`, and aligned, as
        // the mapping begins with a page. Where it cannot be stored to, nobody does: see `store`.
        unsafe { AtomicU64::from_ptr(self.memory.start().as_ptr().cast::<u64>().add(index)) }
    }

    /// Loads a word; what its storer stored before it is seen.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Stores a word, before whatever this thread loads or stores next.
    ///
    /// # Panics
    /// If there is no such word, or it is mapped to be loaded only.
    pub fn store(&self, index: usize, value: u64) {
        assert!(self.is_writable, "words that are to be stored");
        // ordering: Release: what was stored before is seen by who loads it
        self.word(index).store(value, Ordering::Release);
        // ordering: and no load that follows is made before it
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_one_stores_the_other_loads() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let ours = Words::to_store(file.as_file().as_fd(), 512).unwrap();
        let theirs = std::fs::File::open(file.path()).unwrap();
        let theirs = Words::to_load(theirs.as_fd(), 512).unwrap();
        ours.store(511, 7);
        assert_eq!((theirs.load(511), theirs.load(0)), (7, 0));
    }

    #[test]
    fn what_is_to_be_loaded_cannot_be_stored_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let theirs = std::fs::File::open(file.path()).unwrap();
        assert!(Words::to_store(theirs.as_fd(), 1).is_err());
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8).unwrap();
        assert!(matches!(Words::to_load(file.as_fd(), 2), Err(Error::Foreign)));
    }
}
