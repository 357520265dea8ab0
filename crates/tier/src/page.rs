//! A block of the tier in DRAM.

use crate::frames::Frame;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A block, as it was read.
#[derive(Debug)]
pub struct Page {
    frame: Frame,
    crc: u32,
    /// Its place was given to another block.
    is_dead: AtomicBool,
    /// The checksum was compared with what the block is to have.
    is_compared: AtomicBool,
    looks: AtomicU8,
}

/// Looks after which a page is hot, and after each so many again.
const HOT_LOOKS: u8 = 4;

impl Page {
    /// What was read.
    pub(crate) fn new(frame: Frame) -> Page {
        let (is_dead, is_compared) = (AtomicBool::new(false), AtomicBool::new(false));
        let crc = pmem::crc32c(0, frame.bytes());
        Page { frame, crc, is_dead, is_compared, looks: AtomicU8::new(0) }
    }

    /// The bytes of the block.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    /// Whether its memory is none of a cache's own.
    pub(crate) fn is_on_heap(&self) -> bool {
        matches!(self.frame, Frame::Heap(_))
    }

    /// Their checksum.
    #[inline]
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// It has the checksum that the block is to have: it may be copied, and the copy trusted.
    #[inline]
    pub fn set_compared(&self) {
        // ordering: the bytes were there before, and do not change; a look first, as all readers
        // of the block share the line
        if !self.is_compared.load(Ordering::Relaxed) {
            self.is_compared.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_compared(&self) -> bool {
        self.is_compared.load(Ordering::Relaxed)
    }

    /// Somebody looks at it. True if many did.
    pub(crate) fn look(&self) -> bool {
        // ordering: a hint
        self.looks.fetch_add(1, Ordering::Relaxed) % HOT_LOOKS == HOT_LOOKS - 1
    }

    /// Whether its place was given to another block since.
    pub(crate) fn is_dead(&self) -> bool {
        // ordering: who gave the place away did so before he wrote there, and before the record
        // that names it; whoever learned of that record sees this
        self.is_dead.load(Ordering::Acquire)
    }

    pub(crate) fn kill(&self) {
        self.is_dead.store(true, Ordering::Release);
    }
}
