//! A block of the tier in DRAM.

use pool::BLOCK_BYTES;
use std::sync::atomic::{AtomicBool, Ordering};

/// A block, as it was read.
#[derive(Debug)]
pub struct Page {
    bytes: Box<[u8]>,
    crc: u32,
    /// Its place was given to another block.
    is_dead: AtomicBool,
}

impl Page {
    /// What was read.
    pub fn new(bytes: &[u8]) -> Page {
        assert!(bytes.len() as u64 == BLOCK_BYTES, "a page is a block");
        Page { bytes: bytes.into(), crc: pmem::crc32c(0, bytes), is_dead: AtomicBool::new(false) }
    }

    /// The bytes of the block.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Their checksum.
    #[inline]
    pub fn crc(&self) -> u32 {
        self.crc
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
