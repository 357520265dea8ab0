//! Parts of a mapping that do not overlap.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::Advice;

use crate::mapping::Mapping;
use crate::{Error, Result};

/// Areas begin at multiples of this.
const ALIGN_BYTES: usize = 4096;

/// What of a mapping has not been given out.
#[derive(Debug)]
pub struct Cutter {
    mapping: Arc<Mapping>,
    /// Where the rest begins.
    at: usize,
}

impl Cutter {
    pub(crate) fn new(mapping: Arc<Mapping>) -> Cutter {
        Cutter { mapping, at: 0 }
    }

    /// The next `bytes` bytes, rounded up to whole pages; `None` when fewer are left.
    pub fn cut(&mut self, bytes: usize) -> Option<Area> {
        let bytes = bytes.checked_next_multiple_of(ALIGN_BYTES)?;
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.mapping.bytes())?;
        let area = Area { mapping: self.mapping.clone(), at: self.at, bytes };
        self.at = end;
        Some(area)
    }
}

/// A part of a mapping, at the start of a page, that nobody else reaches.
#[derive(Debug)]
pub struct Area {
    mapping: Arc<Mapping>,
    at: usize,
    bytes: usize,
}

impl Area {
    /// Has the memory there now, and known to this process, so that the kernel can fill it at any
    /// time without a fault.
    pub fn populate(&mut self) -> Result<()> {
        let start = self.as_mut_ptr().cast();
        // SAFETY: the range is this area's, and the advice changes no byte of it.
        let done = unsafe { rustix::mm::madvise(start, self.bytes, Advice::LinuxPopulateWrite) };
        done.map_err(|errno| Error::io("MADV_POPULATE_WRITE", errno))
    }

    /// Stores one word, whole: a process that takes the memory over after this one was killed finds
    /// the old word or the new one, and what was stored before the new one.
    ///
    /// # Panics
    /// If `at` is not a multiple of 4, or the word is not inside.
    pub fn store(&mut self, at: usize, word: u32) {
        assert!(at.is_multiple_of(size_of::<u32>()) && at + size_of::<u32>() <= self.bytes);
        let word_at = self[at..].as_mut_ptr().cast::<u32>();
        // SAFETY: the word is inside the area (asserted), aligned (the area is, and `at` is), and
        // this process's alone while `self` is borrowed.
        let place = unsafe { AtomicU32::from_ptr(word_at) };
        // Release: what this thread stored before is there when the word is.
        place.store(word, Ordering::Release);
    }
}

impl Deref for Area {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `at` and `bytes` lie in the mapping (`Cutter::cut`), which lives as long as the
        // reference that is held here, and whose pages exist (it is sealed). No other area has
        // these bytes, and no other process maps them (`map`).
        unsafe {
            std::slice::from_raw_parts(self.mapping.start().add(self.at).as_ptr(), self.bytes)
        }
    }
}

impl DerefMut for Area {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `self` is borrowed for as long as the bytes are.
        unsafe {
            std::slice::from_raw_parts_mut(self.mapping.start().add(self.at).as_ptr(), self.bytes)
        }
    }
}
