//! The memory of a region: one object of the kernel's, mapped twice. Loads go to a mapping that
//! nobody can store to; what changes is stored through the other one, or by writing to the object.
//!
//! Memory that is guarded has nothing that can be loaded from but what was [shown](Memory::show):
//! where the kernel does not say that a page is missing, but gives zeros.

use crate::PAGE_BYTES;
use crate::error::{Error, Result};
use pmem::Process;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Above so many bytes a region has no second mapping: the address space is needed for the first.
const TWICE_BYTES_MAX: usize = 1 << 44;

/// The memory of a region.
#[derive(Debug)]
pub struct Memory {
    /// None: it is another process's.
    object: Option<OwnedFd>,
    /// What users load from.
    view: NonNull<u8>,
    /// Where changes are stored.
    own: Option<NonNull<u8>>,
    bytes: usize,
    is_guarded: bool,
    /// Nothing is to be loaded from it any more.
    is_closed: AtomicBool,
    /// Whose mappings they are: a forked child has none of them.
    process: Process,
}

// SAFETY: the mappings are memory like any other; no part of them belongs to a thread.
unsafe impl Send for Memory {}
// SAFETY: as above; who stores to a page has it to himself (`page_states`).
unsafe impl Sync for Memory {}

/// Maps so many bytes of an object, from `at` on.
pub fn map(
    object: &OwnedFd,
    (at, bytes): (usize, usize),
    access: libc::c_int,
    sharing: libc::c_int,
) -> Result<NonNull<u8>> {
    let flags = sharing | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses the place, so that no mapping of this process is replaced.
    let start = unsafe {
        let (object, at) = (object.as_raw_fd(), at as libc::off_t);
        libc::mmap(std::ptr::null_mut(), bytes, access, flags, object, at)
    };
    if start == libc::MAP_FAILED {
        return Err(Error::kernel("mmap"));
    }
    // SAFETY: these pages were mapped just now. A forked child does not get them: it could not
    // have its faults served.
    let forbidden = unsafe { libc::madvise(start, bytes, libc::MADV_DONTFORK) };
    NonNull::new(start.cast()).filter(|_| forbidden == 0).ok_or_else(|| Error::kernel("madvise"))
}

/// A new object of so many bytes, whole pages, of which none is there yet.
pub fn new_object(bytes: usize) -> Result<OwnedFd> {
    assert!(bytes.is_multiple_of(PAGE_BYTES) && bytes > 0, "whole pages");
    // SAFETY: the name is a string that ends, and the flags are known ones.
    let object = unsafe { libc::memfd_create(c"nearside-region".as_ptr(), libc::MFD_CLOEXEC) };
    if object < 0 {
        return Err(Error::kernel("memfd_create"));
    }
    // SAFETY: the descriptor is new, and nobody else's.
    let object = unsafe { OwnedFd::from_raw_fd(object) };
    // SAFETY: the descriptor is open.
    match unsafe { libc::ftruncate(object.as_raw_fd(), bytes as libc::off_t) } {
        0 => Ok(object),
        _ => Err(Error::kernel("ftruncate")),
    }
}

impl Memory {
    /// Memory of `bytes` bytes, whole pages, of which none is there yet.
    pub fn new(bytes: usize, is_guarded: bool) -> Result<Memory> {
        let object = new_object(bytes)?;
        let access = if is_guarded { libc::PROT_NONE } else { libc::PROT_READ };
        let view = map(&object, (0, bytes), access, libc::MAP_SHARED)?;
        let mut memory = Memory::over(view, bytes, is_guarded);
        if bytes <= TWICE_BYTES_MAX {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            memory.own = Some(map(&object, (0, bytes), access, libc::MAP_SHARED)?);
        }
        memory.object = Some(object);
        Ok(memory)
    }

    /// Another process's object, to load from. A private mapping has its pages, as long as nobody
    /// stores there; the kernel tells of missing pages only where somebody might.
    pub fn of_copy(object: &OwnedFd, bytes: usize) -> Result<Memory> {
        let view = map(object, (0, bytes), libc::PROT_READ, libc::MAP_PRIVATE)?;
        Ok(Memory::over(view, bytes, false))
    }

    fn over(view: NonNull<u8>, bytes: usize, is_guarded: bool) -> Memory {
        let (process, is_closed) = (Process::here(), AtomicBool::new(false));
        Memory { object: None, view, own: None, bytes, is_guarded, is_closed, process }
    }

    /// From now on loads go to what `other` has, which is moved here in one step. Who waits for a
    /// page waits until he is woken.
    pub fn become_of(&self, other: Memory) -> Result<()> {
        assert!(self.bytes == other.bytes && self.own.is_none(), "of the same length");
        // SAFETY: both are whole mappings of this process's, of the same length, that live as long
        // as `self` and `other`; loads from there are volatile, and find either. After the
        // move nothing is left that `other` could unmap.
        unsafe { move_to(other.view, self.view.as_ptr().cast(), self.bytes) }?;
        std::mem::forget(other);
        // ordering: before or after `close`: one of the two hides it
        if self.is_closed.load(Ordering::SeqCst) { self.hide_all() } else { Ok(()) }
    }

    /// Where users load from.
    pub fn start(&self) -> NonNull<u8> {
        self.view
    }

    /// The addresses that users load from.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.view.as_ptr() as usize;
        start..start + self.bytes
    }

    /// Its length.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Stores bytes into pages that are there, and that nobody else stores to or takes away
    /// meanwhile. Aligned words of eight bytes change at once for whoever loads them.
    pub fn store(&self, at: usize, data: &[u8]) {
        assert!(at.checked_add(data.len()).is_some_and(|end| end <= self.bytes), "inside");
        let Some(own) = self.own else { return self.write(at, data) };
        // SAFETY: inside the mapping, which lives as long as `self`.
        let to = unsafe { own.as_ptr().add(at) };
        // SAFETY: `to` has room for `data`, see above; `data` is borrowed.
        unsafe { copy_by_words(to, data) };
    }

    /// These bytes are to be stored to soon.
    #[inline]
    pub fn expect_store(&self, at: usize, len: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(own) = self.own.filter(|_| len <= PAGE_BYTES) {
            for line in (at..at + len).step_by(64) {
                use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
                // SAFETY: a prefetch has no effect that a program can see, at any address.
                unsafe { _mm_prefetch::<_MM_HINT_ET0>(own.as_ptr().wrapping_add(line).cast()) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (at, len);
    }

    /// The same where there is no second mapping.
    #[cold]
    fn write(&self, at: usize, data: &[u8]) {
        let object = self.raw_object();
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            let place = (at + done) as libc::off_t;
            // SAFETY: `rest` is borrowed bytes, and the descriptor is open.
            let written = unsafe { libc::pwrite(object, rest.as_ptr().cast(), rest.len(), place) };
            assert!(written > 0, "a page that is there takes bytes");
            done += written as usize;
        }
    }

    /// The object's descriptor; none where it is another process's, who alone changes it.
    fn raw_object(&self) -> libc::c_int {
        self.object.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Loads bytes as a user does: a page that is not there is waited for.
    #[inline]
    pub fn load(&self, at: usize, buffer: &mut [u8]) {
        assert!(at.checked_add(buffer.len()).is_some_and(|end| end <= self.bytes), "inside");
        match <&mut [u8; 8]>::try_from(&mut *buffer) {
            Ok(word) if at.is_multiple_of(8) => {
                // SAFETY: inside the mapping, which begins where a page does, and lives as long as
                // `self`. Volatile, as other threads store there meanwhile.
                let loaded = unsafe { self.view.as_ptr().add(at).cast::<u64>().read_volatile() };
                *word = loaded.to_ne_bytes();
            }
            _ => self.load_bytes(at, buffer),
        }
    }

    /// The same of any bytes that are inside.
    fn load_bytes(&self, at: usize, buffer: &mut [u8]) {
        // SAFETY: inside the mapping, which lives as long as `self`. The loads are volatile, as
        // other threads store there meanwhile, and of whole words where that can be.
        unsafe {
            let from = self.view.as_ptr().add(at);
            let head = from.align_offset(8).min(buffer.len());
            let (first, rest) = buffer.split_at_mut(head);
            for (index, byte) in first.iter_mut().enumerate() {
                *byte = from.add(index).read_volatile();
            }
            let mut place = from.add(head);
            let mut words = rest.chunks_exact_mut(8);
            for word in &mut words {
                word.copy_from_slice(&place.cast::<u64>().read_volatile().to_ne_bytes());
                place = place.add(8);
            }
            for (index, byte) in words.into_remainder().iter_mut().enumerate() {
                *byte = place.add(index).read_volatile();
            }
        }
    }

    /// Whether nothing can be loaded from but what was shown.
    pub fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Sets what may be done with pages of the mapping that users load from.
    fn protect(&self, at: usize, bytes: usize, access: libc::c_int) -> Result<()> {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "inside");
        // SAFETY: pages of the mapping; only their protection changes.
        match unsafe { libc::mprotect(self.view.as_ptr().add(at).cast(), bytes, access) } {
            0 => Ok(()),
            _ => Err(Error::kernel("mprotect")),
        }
    }

    /// Nobody can load from a page any more: who tries is ended by a signal.
    pub fn forbid(&self, at: usize) {
        // a process that has no more mappings is ended by an endless wait instead
        let _ = self.protect(at, PAGE_BYTES, libc::PROT_NONE);
    }

    /// From now on pages of guarded memory can be loaded from; they are there. Each run of them is
    /// a mapping of its own to the kernel, of which a process has a limited number: where there is
    /// none left, those of this memory are hidden all, to be shown anew.
    pub fn show(&self, at: usize, bytes: usize) -> Result<()> {
        self.protect(at, bytes, libc::PROT_READ).or_else(|_| {
            self.hide_all()?;
            self.protect(at, bytes, libc::PROT_READ)
        })?;
        // ordering: before or after `close`: one of the two hides it
        if self.is_closed.load(Ordering::SeqCst) { self.hide_all() } else { Ok(()) }
    }

    /// None of its pages can be loaded from before it is shown again.
    pub fn hide_all(&self) -> Result<()> {
        self.protect(0, self.bytes, libc::PROT_NONE)
    }

    /// The region goes: who loads from it from now on is ended by a signal.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // where the kernel cannot say so of all of it, it goes with the mapping
        let _ = self.hide_all();
    }

    /// Takes pages away: whoever loads from them next waits until they are brought again.
    pub fn drop_pages(&self, at: usize, bytes: usize) -> Result<()> {
        if self.is_guarded {
            self.protect(at, bytes, libc::PROT_NONE).or_else(|_| self.hide_all())?;
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (place, bytes) = (at as libc::off_t, bytes as libc::off_t);
        // SAFETY: the descriptor is open; pages of a shared mapping may go at any time.
        match unsafe { libc::fallocate(self.raw_object(), mode, place, bytes) } {
            0 => Ok(()),
            _ => Err(Error::kernel("fallocate")),
        }
    }

    /// Forgets who loaded from these pages; they stay.
    pub fn forget_loads(&self, at: usize, bytes: usize) -> Result<()> {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "inside");
        // SAFETY: inside the mapping. Of a shared mapping no byte is lost: the object has it.
        let done =
            unsafe { libc::madvise(self.view.as_ptr().add(at).cast(), bytes, libc::MADV_DONTNEED) };
        if done == 0 { Ok(()) } else { Err(Error::kernel("madvise")) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.process.is_here() {
            return;
        }
        for start in [Some(self.view), self.own].into_iter().flatten() {
            // SAFETY: what one mmap call gave, and nobody has a reference into it any more.
            unsafe { libc::munmap(start.as_ptr().cast(), self.bytes) };
        }
    }
}

/// Moves a mapping over another one, in one step.
///
/// # Safety
/// Both are mappings of `bytes` bytes to which there are no references; the first is gone then.
pub unsafe fn move_to(from: NonNull<u8>, to: *mut u8, bytes: usize) -> Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller has promised it.
    let moved = unsafe { libc::mremap(from.as_ptr().cast(), bytes, bytes, flags, to) };
    if moved == libc::MAP_FAILED { Err(Error::kernel("mremap")) } else { Ok(()) }
}

/// Copies bytes so that each aligned word of eight is stored at once, where `data` has all of it.
///
/// # Safety
/// There is room for `data` at `to`.
pub unsafe fn copy_by_words(to: *mut u8, data: &[u8]) {
    let head = to.align_offset(8).min(data.len());
    let (first, rest) = data.split_at(head);
    let words = rest.chunks_exact(8);
    let last = words.remainder();
    // SAFETY: the caller has promised room for all of `data`; `to + head` is aligned to 8 where any
    // word follows. The stores are volatile, as other threads load there meanwhile.
    unsafe {
        for (index, byte) in first.iter().enumerate() {
            to.add(index).write_volatile(*byte);
        }
        let mut at = to.add(head);
        for word in words {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            at.cast::<u64>().write_volatile(u64::from_ne_bytes(bytes));
            at = at.add(8);
        }
        for (index, byte) in last.iter().enumerate() {
            at.add(index).write_volatile(*byte);
        }
    }
}
