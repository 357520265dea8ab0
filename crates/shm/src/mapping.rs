//! A memfd and its only mapping.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{FlockOperation, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::{Cutter, Error, Result};

/// The size is settled, and so are the seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes memory of `bytes` bytes, all zero, called `name` in /proc. Pages that nobody stored to
/// take no memory.
pub fn create(name: &str, bytes: u64) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create(name, flags).map_err(io("memfd_create"))?;
    rustix::fs::ftruncate(&memory, bytes).map_err(io("ftruncate"))?;
    rustix::fs::fcntl_add_seals(&memory, SEALS).map_err(io("F_ADD_SEALS"))?;
    Ok(memory)
}

pub(crate) fn io(call: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::io(call, errno)
}

/// All of a memory, mapped, until the last of its areas is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Holds the lock.
    lock: File,
    /// Who took it: a forked child shares it, and must leave it alone.
    pid: u32,
}

// SAFETY: the mapping is memory like any other; no part of it belongs to a thread. Its bytes are
// reached through areas only, each of which has some of them to itself.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Maps memory that [`create`] made, here or in another process, and gives out its bytes from
/// the first on. Fails with [`Error::InUse`] while somebody else has it mapped.
pub fn map(memory: BorrowedFd<'_>) -> Result<Cutter> {
    Ok(Cutter::new(Arc::new(mapping(memory)?)))
}

/// Refuses what is not sealed as [`create`] does.
pub(crate) fn is_sealed(memory: BorrowedFd<'_>) -> Result<()> {
    match rustix::fs::fcntl_get_seals(memory) {
        Ok(seals) if seals.contains(SEALS) => Ok(()),
        Ok(_) | Err(Errno::INVAL) => Err(Error::Foreign),
        Err(errno) => Err(Error::io("F_GET_SEALS", errno)),
    }
}

fn mapping(memory: BorrowedFd<'_>) -> Result<Mapping> {
    is_sealed(memory)?;
    let lock = lock(memory)?;
    let bytes = lock.metadata().map_err(|error| Error::io("fstat", error))?.len();
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or(Error::Foreign)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the place, so no mapping of this process is replaced.
    let start = unsafe {
        let place = std::ptr::null_mut();
        rustix::mm::mmap(place, bytes, access, MapFlags::SHARED, lock.as_fd(), 0)
    };
    let start = start.map_err(io("mmap"))?;
    let start = NonNull::new(start.cast()).ok_or(Error::io("mmap", Errno::FAULT))?;
    Ok(Mapping { start, bytes, lock, pid: std::process::id() })
}

impl Mapping {
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are those of one mmap call, and no area is left: each holds
        // a reference to this.
        if let Err(error) = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) } {
            debug_assert!(false, "munmap: {error}");
        }
        // Closing the file would do, but that a process which is being started has a duplicate of
        // every descriptor, between its fork and its exec.
        if self.pid == std::process::id()
            && let Err(error) = rustix::fs::flock(&self.lock, FlockOperation::Unlock)
        {
            debug_assert!(false, "flock: {error}");
        }
    }
}

/// Opens the memory again and locks that: the lock belongs to the new open file, which no other
/// process has, and not to the descriptor that goes from process to process.
fn lock(memory: BorrowedFd<'_>) -> Result<File> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let again = File::options().read(true).write(true).open(path);
    let again = again.map_err(|error| Error::io("open", error))?;
    match rustix::fs::flock(&again, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(again),
        Err(Errno::WOULDBLOCK) => Err(Error::InUse),
        Err(errno) => Err(Error::io("flock", errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that followed another at once was refused now and then: somewhere else in the
    /// process a command was being started.
    #[test]
    fn a_duplicate_of_the_descriptor_does_not_keep_the_lock() {
        let memory = create("test", 4096).unwrap();
        let first = mapping(memory.as_fd()).unwrap();
        let duplicate = first.lock.try_clone().unwrap();
        assert!(matches!(mapping(memory.as_fd()), Err(Error::InUse)));
        drop(first);
        mapping(memory.as_fd()).unwrap();
        drop(duplicate);
    }
}
