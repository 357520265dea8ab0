//! Memory that a process shares with another one whom it does not trust.
//!
//! Two rules:
//! - Nobody makes a reference to its bytes: the other side may store to any of them at any time.
//!   They are copied in and out, and looked at in the copy, once.
//! - A word of it says what the other side says. Whoever takes it for more than that (an index, a
//!   length, a lock) looks whether it can be so.
//!
//! Its size is settled by seals, so that no load is a SIGBUS; memory without them is refused.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::mm::{Advice, ProtFlags};
use rustix::thread::futex::{self, Flags, Timespec};

use crate::mapped::Mapped;
use crate::mapping::{io, is_sealed};
use crate::{Error, Result};

/// Memory shared with another process, mapped here, to load from and to store to.
#[derive(Debug)]
pub struct Shared {
    memory: Mapped,
    is_writable: bool,
}

impl Shared {
    /// Maps memory that [`create`](crate::create) made, here or in another process, next to whoever
    /// has it mapped. A forked child does not inherit the mapping.
    pub fn map(memory: BorrowedFd<'_>) -> Result<Shared> {
        Shared::map_for(memory, true)
    }

    /// The same, to load from only.
    pub fn map_to_load(memory: BorrowedFd<'_>) -> Result<Shared> {
        Shared::map_for(memory, false)
    }

    fn map_for(memory: BorrowedFd<'_>, is_writable: bool) -> Result<Shared> {
        is_sealed(memory)?;
        let bytes = rustix::fs::fstat(memory).map_err(io("fstat"))?.st_size;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or(Error::Foreign)?;
        let store = if is_writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        Ok(Shared { memory: Mapped::new(memory, bytes, ProtFlags::READ | store)?, is_writable })
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.memory.bytes()
    }

    /// Never: it has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    fn check(&self, at: usize, len: usize) {
        let end = at.checked_add(len).filter(|end| *end <= self.memory.bytes());
        assert!(end.is_some(), "inside of the shared memory");
    }

    /// A word of it.
    ///
    /// # Panics
    /// If `at` is not a multiple of 4, or the word is not inside.
    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU32 {
        self.check(at, size_of::<u32>());
        assert!(at.is_multiple_of(size_of::<u32>()), "a word lies at a multiple of its size");
        // SAFETY: the word is inside the mapping, which lives as long as `self`, and aligned, as
        // the mapping begins with a page. Atomic words may change at any time.
        unsafe { AtomicU32::from_ptr(self.memory.start().as_ptr().add(at).cast()) }
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If they are not all inside, or it is mapped to load from only.
    #[inline]
    pub fn store(&self, at: usize, data: &[u8]) {
        assert!(self.is_writable, "memory that is to be stored to");
        self.check(at, data.len());
        // SAFETY: the bytes are inside the mapping, and no reference to them exists; `data` is not
        // in it. What the other side makes of them meanwhile is its own matter.
        unsafe {
            let to = self.memory.start().as_ptr().add(at);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
    }

    /// Copies bytes out of it: each once, as they were at some moment.
    ///
    /// # Panics
    /// If they are not all inside.
    #[inline]
    pub fn load(&self, at: usize, buffer: &mut [u8]) {
        self.check(at, buffer.len());
        // SAFETY: as in `store`; whatever is copied is initialised bytes.
        unsafe {
            let from = self.memory.start().as_ptr().add(at);
            std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len());
        }
    }

    /// Gives the memory of whole pages back to the system: they are zeros from then on.
    pub fn discard(&self, at: usize, len: usize) -> Result<()> {
        self.check(at, len);
        // SAFETY: the range is inside the mapping, and no reference to its bytes exists.
        let done = unsafe {
            let start = self.memory.start().as_ptr().add(at).cast();
            rustix::mm::madvise(start, len, Advice::LinuxRemove)
        };
        done.map_err(io("MADV_REMOVE"))
    }
}

/// Sleeps while the shared `word` is `seen`, for `limit` at most; may wake without a reason.
pub fn sleep_at(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    let limit = limit
        .map(|limit| Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ });
    // whoever waits looks again in any case
    let _ = futex::wait(word, Flags::empty(), seen, limit.as_ref());
}

/// Wakes all who sleep at the shared `word`, in whichever process.
pub fn wake_all(word: &AtomicU32) {
    // nobody there is fine
    let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
}

/// Stores to a shared word what was to be seen before anything that follows is.
pub fn publish(word: &AtomicU32, value: u32) {
    // ordering: sequentially consistent with the other side's store that it sleeps and its look at
    // this word: one of the two sees the other
    word.store(value, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn both_sides_see_what_the_other_stores() {
        let memory = crate::create("test", 8192).unwrap();
        let one = Shared::map(memory.as_fd()).unwrap();
        let other = Shared::map(memory.as_fd()).unwrap();
        one.store(4090, b"over pages");
        let mut seen = [0; 10];
        other.load(4090, &mut seen);
        assert_eq!(&seen, b"over pages");
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while other.word(8).load(Ordering::SeqCst) == 0 {
                    sleep_at(other.word(8), 0, None);
                }
            });
            publish(one.word(8), 1);
            wake_all(one.word(8));
        });
        one.discard(4096, 4096).unwrap();
        other.load(4090, &mut seen);
        assert_eq!(&seen, b"over p\0\0\0\0");
    }

    #[test]
    fn memory_that_may_be_cut_short_is_refused() {
        let unsealed = tempfile::tempfile().unwrap();
        unsealed.set_len(4096).unwrap();
        assert!(matches!(Shared::map(unsealed.as_fd()), Err(Error::Foreign)));
    }

    #[test]
    #[should_panic = "inside of the shared memory"]
    fn nothing_outside_is_reached() {
        let memory = crate::create("test", 4096).unwrap();
        Shared::map(memory.as_fd()).unwrap().store(4090, b"too long");
    }
}
