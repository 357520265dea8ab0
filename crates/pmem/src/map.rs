//! mmap(2) and munmap(2).

use crate::faults::{Fault, fails};
use crate::media;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// A range of this process's addresses, unmapped at the end.
#[derive(Debug)]
pub(crate) struct Addresses {
    base: *mut u8,
    len: usize,
    /// Who unmaps them, if it is not this value.
    owner: Option<Arc<Addresses>>,
    /// Whether memory that fails is an error of a range.
    watched: bool,
}

// SAFETY: the range is mapped until this value is dropped, whichever thread it is on.
unsafe impl Send for Addresses {}
// SAFETY: a shared value gives out no more than its address and length.
unsafe impl Sync for Addresses {}

/// How a file's bytes are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// MAP_SHARED.
    Shared,
    /// MAP_SHARED_VALIDATE | MAP_SYNC: page faults persist the file system's own metadata, so
    /// that flushed stores are durable without fsync. Only DAX can.
    Synchronous,
    /// MAP_PRIVATE: stores stay in this process.
    Private,
}

impl Addresses {
    /// Maps the first `len` bytes of a file or device. `len` is not zero.
    pub(crate) fn of_file(
        file: &File,
        len: usize,
        sharing: Sharing,
        read_only: bool,
    ) -> io::Result<Addresses> {
        let flags = match sharing {
            Sharing::Shared => libc::MAP_SHARED,
            Sharing::Synchronous => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            Sharing::Private => libc::MAP_PRIVATE | libc::MAP_NORESERVE,
        };
        let protection = if read_only { libc::PROT_READ } else { READ_WRITE };
        let mut addresses = Addresses::new(len, protection, flags, file.as_raw_fd())?;
        let (base, how) = (addresses.base.addr(), (protection, flags));
        let descriptor = if sharing == Sharing::Private { -1 } else { file.as_raw_fd() };
        addresses.watched = media::watch(base, len, descriptor, how);
        Ok(addresses)
    }

    /// Anonymous memory, zeroed. `len` is not zero.
    pub(crate) fn anonymous(len: usize) -> io::Result<Addresses> {
        Addresses::new(len, READ_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn new(len: usize, protection: i32, flags: i32, descriptor: i32) -> io::Result<Addresses> {
        if descriptor >= 0 && fails(Fault::Map) {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        // SAFETY: the kernel picks unused addresses, so that nothing of this process changes.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, descriptor, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Addresses { base: base.cast(), len, owner: None, watched: false })
    }

    /// Anonymous memory with what is mapped here.
    pub(crate) fn copied(&self) -> io::Result<Addresses> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let copy = Addresses::new(self.len, READ_WRITE, flags, -1)?;
        // SAFETY: both are mapped, of this length, and the copy is nobody else's yet.
        unsafe { copy.base.copy_from_nonoverlapping(self.base, self.len) };
        Ok(copy)
    }

    /// The same addresses once more.
    pub(crate) fn shared(owner: &Arc<Addresses>) -> Addresses {
        Addresses::part(owner, 0, owner.len)
    }

    /// Some of the same addresses once more.
    pub(crate) fn part(owner: &Arc<Addresses>, offset: usize, len: usize) -> Addresses {
        assert!(offset <= owner.len && len <= owner.len - offset, "a part of them");
        // SAFETY: the offset lies inside what is mapped.
        let base = unsafe { owner.base.add(offset) };
        Addresses { base, len, owner: Some(owner.clone()), watched: false }
    }

    /// Whether somebody else unmaps them.
    pub(crate) fn is_shared(&self) -> bool {
        self.owner.is_some()
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Drop for Addresses {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        if self.watched {
            media::forget(self.base.addr(), self.len);
        }
        // SAFETY: the range was mapped by `new`, and no address of it outlives its owner: whoever
        // shares it holds that.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
