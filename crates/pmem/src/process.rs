//! Which process this is, without a system call. A forked child has its parent's memory, but none
//! of its threads, and must leave alone what belongs to its parent.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process: its id, and when it was first asked for, as ids are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(NonZeroU64);

/// A word that a forked child finds to be zero, by the kernel or, where that only says so
/// (qemu-user), by the C library; none, where there is no such.
static WORD: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();

impl Process {
    /// This one.
    #[inline]
    pub fn here() -> Process {
        let word = WORD.get_or_init(wiped_word);
        // ordering: the word says all that there is to know
        let known = word.map_or(0, |word| word.load(Ordering::Relaxed));
        NonZeroU64::new(known).map_or_else(|| first_asked(*word), Process)
    }

    /// Whether it is this one.
    #[inline]
    pub fn is_here(self) -> bool {
        self == Process::here()
    }

    /// Its id.
    pub fn id(self) -> u32 {
        self.0.get() as u32
    }

    /// A number for it, never 0.
    pub fn number(self) -> u64 {
        self.0.get()
    }
}

/// A word in a page of its own that the kernel gives to no forked child.
fn wiped_word() -> Option<&'static AtomicU64> {
    // SAFETY: the kernel says how long its pages are.
    let bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the place, so that no mapping of this process is replaced.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page was mapped just now.
    if unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above, and nobody knows of it.
        unsafe { libc::munmap(page, bytes) };
        return None;
    }
    // SAFETY: the function only stores to a word; forks without the C library do not call it.
    unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    // SAFETY: zeros, aligned to a page, and there for ever.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

/// In a forked child: it has not been asked for.
extern "C" fn forget() {
    if let Some(Some(word)) = WORD.get() {
        word.store(0, Ordering::Relaxed);
    }
}

/// Asks the kernel. Calls nothing that a handler of signals may not.
#[cold]
fn first_asked(word: Option<&AtomicU64>) -> Process {
    let id = NonZeroU64::from(std::num::NonZeroU32::new(std::process::id()).unwrap_or(ONE));
    let Some(word) = word else { return Process(id) };
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let asked = (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64);
    let new = id | asked << 32;
    // of two threads that ask at once, one says when
    match word.compare_exchange(0, new.get(), Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Process(new),
        Err(known) => Process(NonZeroU64::new(known).unwrap_or(new)),
    }
}

const ONE: std::num::NonZeroU32 = std::num::NonZeroU32::MIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_a_forked_child_is_another_one() {
        let here = Process::here();
        assert_eq!((here, here.id()), (Process::here(), std::process::id()));
        assert!(here.is_here());
        // SAFETY: the child asks the kernel, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = Process::here();
            let is_another = !here.is_here() && own.is_here() && own.id() == std::process::id();
            // SAFETY: it ends without any of what this process has to do at its end.
            unsafe { libc::_exit(i32::from(!is_another)) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and room for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(here.is_here());
    }
}
