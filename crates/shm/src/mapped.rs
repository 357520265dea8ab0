//! Memory of another process's, too, mapped here.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::mapping::io;
use crate::{Error, Result};

/// A mapping that a forked child does not inherit.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
    /// Who mapped it: a forked child has it not.
    pid: u32,
}

// SAFETY: the mapping is memory like any other; no part of it belongs to a thread. Whoever uses it
// makes no reference to its bytes but to atomic words.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `bytes` of the memory, to be used like that, next to whoever has it mapped.
    pub(crate) fn new(memory: BorrowedFd<'_>, bytes: usize, access: ProtFlags) -> Result<Mapped> {
        let place = std::ptr::null_mut();
        // SAFETY: the kernel chooses the place, so no mapping of this process is replaced.
        let start = unsafe { rustix::mm::mmap(place, bytes, access, MapFlags::SHARED, memory, 0) };
        let start = NonNull::new(start.map_err(io("mmap"))?.cast());
        let start = start.ok_or(Error::io("mmap", Errno::FAULT))?;
        let mapped = Mapped { start, bytes, pid: std::process::id() };
        // SAFETY: the range is that of the mapping made just now.
        let advised =
            unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork) };
        advised.map_err(io("MADV_DONTFORK"))?;
        Ok(mapped)
    }

    /// Where it begins: with a page.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // SAFETY: `start` and `bytes` are those of one mmap call of this process, and nobody
        // refers into it: words borrow what has this.
        if let Err(error) = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) } {
            debug_assert!(false, "munmap: {error}");
        }
    }
}
