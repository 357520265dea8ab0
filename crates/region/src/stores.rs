//! Where a process stores what it has committed by itself into its copy: another mapping of the
//! memory that its region shows.
//!
//! The service may take a page away at any moment, also one that is being stored to. Nothing must
//! come there then that the service did not bring. So the kernel tells of a store to a page that is
//! not there, as it does of a load: the page of this mapping becomes one that nobody sees, the
//! store goes there, and who made it puts the mapping right behind it.

use crate::PAGE_BYTES;
use crate::error::{Error, Result};
use crate::memory::{copy_by_words, map, move_to};
use crate::source::Source;
use parking_lot::Mutex;
use pmem::Process;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The mapping.
#[derive(Debug)]
pub struct Stores {
    start: NonNull<u8>,
    bytes: usize,
    /// Held while the mapping is made another one, or is put right.
    object: Mutex<Option<OwnedFd>>,
    /// Pages that nobody sees; and whether there are any.
    aside: Mutex<Vec<usize>>,
    any_aside: AtomicBool,
    process: Process,
}

// SAFETY: the mapping is memory like any other; no part of it belongs to a thread.
unsafe impl Send for Stores {}
// SAFETY: as above; one stores at a time.
unsafe impl Sync for Stores {}

impl Stores {
    /// Of memory that can be stored to. Its faults come to `faults` from now on.
    pub fn new(object: OwnedFd, bytes: usize, faults: &Source) -> Result<Stores> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let start = map(&object, (0, bytes), access, libc::MAP_SHARED)?;
        let (object, aside) = (Mutex::new(Some(object)), Mutex::default());
        let (process, any_aside) = (Process::here(), AtomicBool::new(false));
        let stores = Stores { start, bytes, object, aside, any_aside, process };
        faults.register(stores.addresses())?;
        Ok(stores)
    }

    /// The addresses that it takes.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start..start + self.bytes
    }

    /// These bytes are to be stored to soon.
    #[inline]
    pub fn expect(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            // SAFETY: a prefetch has no effect that a program can see, at any address.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(self.start.as_ptr().wrapping_add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Stores bytes of one page, if it is there. Nobody else stores meanwhile, or has pages
    /// brought. False: it is not there.
    pub fn store(&self, at: usize, data: &[u8], faults: &Source) -> Result<bool> {
        assert!(at.checked_add(data.len()).is_some_and(|end| end <= self.bytes), "inside");
        // SAFETY: inside the mapping, which lives as long as `self`.
        let to = unsafe { self.start.as_ptr().add(at) };
        // SAFETY: `to` has room for `data`, see above; `data` is borrowed.
        unsafe { copy_by_words(to, data) };
        // ordering: who lays a page aside does it before the store goes on
        if !self.any_aside.load(Ordering::Acquire) {
            return Ok(true);
        }
        self.any_aside.store(false, Ordering::Relaxed);
        let aside = std::mem::take(&mut *self.aside.lock());
        aside.iter().try_for_each(|page| self.put_right(*page, faults))?;
        Ok(!aside.contains(&(at / PAGE_BYTES)))
    }

    /// A store waits for a page that is not there: it goes where nobody sees it.
    pub fn lay_aside(&self, page: usize) -> Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        assert!((page + 1) * PAGE_BYTES <= self.bytes, "inside");
        // SAFETY: a page of the mapping, to which nobody has a reference.
        let made = unsafe {
            let place = self.start.as_ptr().add(page * PAGE_BYTES).cast();
            libc::mmap(place, PAGE_BYTES, access, flags, -1, 0)
        };
        if made == libc::MAP_FAILED {
            return Err(Error::kernel("mmap"));
        }
        self.aside.lock().push(page);
        self.any_aside.store(true, Ordering::Release);
        Ok(())
    }

    /// A page is the memory's again, and its faults are told of from the first moment.
    fn put_right(&self, page: usize, faults: &Source) -> Result<()> {
        let object = self.object.lock();
        let object = object.as_ref().ok_or(Error::Outside)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let at = page * PAGE_BYTES;
        let new = map(object, (at, PAGE_BYTES), access, libc::MAP_SHARED)?;
        let from = new.as_ptr() as usize;
        let moved = faults.register(from..from + PAGE_BYTES).and_then(|()| {
            // SAFETY: both are pages of mappings of this process's; nobody has references to them.
            unsafe { move_to(new, self.start.as_ptr().add(at), PAGE_BYTES) }
        });
        moved.inspect_err(|_| {
            // SAFETY: what `map` gave just now.
            unsafe { libc::munmap(new.as_ptr().cast(), PAGE_BYTES) };
        })
    }

    /// From now on stores go to what `other` has.
    pub fn become_of(&self, other: Stores) -> Result<()> {
        assert!(self.bytes == other.bytes, "of the same length");
        let mut object = self.object.lock();
        // SAFETY: both are whole mappings, of the same length, to which nobody has references.
        unsafe { move_to(other.start, self.start.as_ptr(), self.bytes) }?;
        *object = other.object.lock().take();
        // nothing is at its place that it could unmap
        std::mem::forget(other);
        Ok(())
    }
}

/// Whether memory may be stored to by way of this descriptor.
pub fn can_store(object: &OwnedFd) -> bool {
    // SAFETY: the descriptor is open.
    let flags = unsafe { libc::fcntl(object.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDWR
}

impl Drop for Stores {
    fn drop(&mut self) {
        if self.process.is_here() {
            // SAFETY: what one call of `map` gave, and nobody has a reference into it any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}
