//! A file that is mapped for loads and stores, where a fault is an error and no signal.
//!
//! A page that the kernel cannot bring ends a process by SIGBUS. The handler here puts an empty
//! page in its place, so that the load or store goes on, and marks the mapping: what was loaded
//! since the last look is then not believed, and the file is mapped anew.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Mappings that a process has at one time.
const MAPPINGS_MAX: usize = 64;
const PROTECTION: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// What the handler has to know of a mapping.
struct MappedRange {
    is_used: AtomicBool,
    start: AtomicUsize,
    bytes: AtomicUsize,
    has_faulted: AtomicBool,
}

static MAPPED_RANGES: [MappedRange; MAPPINGS_MAX] = [const {
    MappedRange {
        is_used: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        has_faulted: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];

/// A shared mapping of the first bytes of a file, for one thread.
#[derive(Debug)]
pub struct Mapping {
    file: OwnedFd,
    start: *mut libc::c_void,
    bytes: usize,
    range: usize,
}

extern "C" fn on_sigbus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes the fault's description, which holds an address for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    for range in &MAPPED_RANGES {
        let start = range.start.load(Ordering::Acquire);
        let end = start + range.bytes.load(Ordering::Acquire);
        if !(start..end).contains(&address) {
            continue;
        }
        range.has_faulted.store(true, Ordering::Release);
        let page = (address & !(PAGE_BYTES - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page belongs to a mapping of this module, which is only used by atomics.
        if unsafe { libc::mmap(page, PAGE_BYTES, PROTECTION, flags, -1, 0) } != libc::MAP_FAILED {
            return;
        }
    }
    // not a page of ours: the same access faults again, and ends the process
    // SAFETY: signal(2) may be called in a handler.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

fn handle_sigbus() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an all-zero sigaction is a valid one, and the handler only calls what may be
        // called in a handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
        }
    });
}

impl Mapping {
    /// Maps the first `bytes` of a file, which may be shorter.
    pub fn new(file: &File, bytes: usize) -> io::Result<Mapping> {
        handle_sigbus();
        let free = |range: &MappedRange| !range.is_used.swap(true, Ordering::AcqRel);
        let range = MAPPED_RANGES.iter().position(free).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = OwnedFd::from(file.try_clone()?);
        let mut mapping = Mapping { file, start: ptr::null_mut(), bytes, range };
        mapping.start = mapping.map_at(ptr::null_mut(), 0)?;
        MAPPED_RANGES[range].bytes.store(bytes, Ordering::Release);
        MAPPED_RANGES[range].start.store(mapping.start as usize, Ordering::Release);
        Ok(mapping)
    }

    fn map_at(
        &self,
        address: *mut libc::c_void,
        flags: libc::c_int,
    ) -> io::Result<*mut libc::c_void> {
        let flags = flags | libc::MAP_SHARED;
        let fd = self.file.as_raw_fd();
        // SAFETY: the address is free to choose, or that of this mapping, whose pages are replaced
        // by others that are used in the same way.
        let start = unsafe { libc::mmap(address, self.bytes, PROTECTION, flags, fd, 0) };
        match start == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(start),
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "no word at {offset}");
        // SAFETY: the word lies in the mapping, which lives as long as `self`, and is aligned.
        unsafe { AtomicU64::from_ptr(self.start.cast::<u64>().wrapping_add(offset / 8)) }
    }

    /// The word at this offset, in one load.
    pub fn load(&self, offset: usize) -> u64 {
        u64::from_le(self.word(offset).load(Ordering::Acquire))
    }

    /// Stores a word in one store.
    pub fn store(&self, offset: usize, word: u64) {
        self.word(offset).store(word.to_le(), Ordering::Release);
    }

    /// Has the pages of these bytes written back.
    pub fn sync(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let first = offset / PAGE_BYTES * PAGE_BYTES;
        let bytes = (offset + bytes).min(self.bytes) - first;
        let start = self.start.wrapping_byte_add(first);
        // SAFETY: the pages lie in the mapping.
        match unsafe { libc::msync(start, bytes, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether an access faulted since this was asked last. If so, the file is mapped anew.
    pub fn take_fault(&self) -> io::Result<bool> {
        let faulted = MAPPED_RANGES[self.range].has_faulted.swap(false, Ordering::AcqRel);
        if faulted {
            self.map_at(self.start, libc::MAP_FIXED)?;
        }
        Ok(faulted)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let range = &MAPPED_RANGES[self.range];
        range.bytes.store(0, Ordering::Release);
        range.start.store(0, Ordering::Release);
        range.has_faulted.store(false, Ordering::Release);
        if !self.start.is_null() {
            // SAFETY: no reference into the mapping outlives it.
            unsafe { libc::munmap(self.start, self.bytes) };
        }
        range.is_used.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_load_behind_the_end_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE_BYTES as u64).unwrap();
        let mapping = Mapping::new(&file, 2 * PAGE_BYTES).unwrap();
        mapping.store(8, 77);
        assert_eq!((mapping.load(8), mapping.take_fault().unwrap()), (77, false));
        assert_eq!((mapping.load(PAGE_BYTES), mapping.take_fault().unwrap()), (0, true));
        // it is mapped anew: what is stored to it now is in the file
        file.set_len(2 * PAGE_BYTES as u64).unwrap();
        mapping.store(PAGE_BYTES, 78);
        mapping.sync(PAGE_BYTES, 8).unwrap();
        assert!(!mapping.take_fault().unwrap());
        let mut word = [0; 8];
        file.read_exact_at(&mut word, PAGE_BYTES as u64).unwrap();
        assert_eq!((u64::from_le_bytes(word), mapping.load(8)), (78, 77));
    }
}
