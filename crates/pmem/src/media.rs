//! Memory that fails: what would end the process is an error of one range instead.
//!
//! A load from memory with an uncorrectable error, and from a page of a file that another program
//! cut short, raises SIGBUS. The handler here puts a page of zeros, to be read only, in the place
//! of the page that failed, and notes it; the load goes on, and whoever made it asks afterwards
//! whether a page of its range is noted ([`Mapping::seen`]). Until such a page is written, reads of
//! it fail.
//!
//! A store to a noted page raises SIGSEGV. Then zeros are written over the page through the file,
//! which clears the error where it can be cleared (a DAX file system tells its driver), the page is
//! mapped anew, and the store goes on. Where that cannot be, the store is lost:
//! [`Mapping::broken`]. Stores cost nothing more for all this.
//!
//! The handlers are for the mappings of this crate; other signals go to whoever handled them
//! before. They allocate nothing, and wait for one another only while a note is changed.

use crate::charge::LOOKS;
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Once, OnceLock};

/// Bytes of what is replaced.
pub(crate) const PAGE: usize = 4096;
/// Mappings that are watched at once; those beyond are not.
const MAPPINGS_MAX: usize = 1024;
/// Pages that can be noted at once; the next one ends the process, as all did before.
const BAD_MAX: usize = 1 << 14;

/// A watched mapping.
pub(crate) struct Watched {
    /// Its addresses: where it begins and ends; 0: none.
    from: AtomicUsize,
    to: AtomicUsize,
    /// Its file, and how a part of it is mapped again; below 0: what is stored is for nobody else,
    /// so that any memory will do.
    file: AtomicI32,
    protection: AtomicI32,
    flags: AtomicI32,
    /// What says that a store is lost.
    pub(crate) broken: AtomicPtr<AtomicBool>,
}

/// The watched mappings.
static WATCHED: [Watched; MAPPINGS_MAX] = [const {
    Watched {
        from: AtomicUsize::new(0),
        to: AtomicUsize::new(0),
        file: AtomicI32::new(-1),
        protection: AtomicI32::new(0),
        flags: AtomicI32::new(0),
        broken: AtomicPtr::new(std::ptr::null_mut()),
    }
}; MAPPINGS_MAX];
/// Addresses of pages that failed; 0: none. The lowest bit is set while one is made whole.
static BAD: [AtomicUsize; BAD_MAX] = [const { AtomicUsize::new(0) }; BAD_MAX];
/// How many there are.
static BAD_COUNT: AtomicUsize = AtomicUsize::new(0);
/// How often a store met a page that had failed, and zeros took the place of what was there.
static HEALS: AtomicUsize = AtomicUsize::new(0);
/// Whether any store of this process is lost.
pub(crate) static ANY_LOST: AtomicBool = AtomicBool::new(false);
/// Who handled SIGBUS and SIGSEGV before.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];

/// Whether any page of this process failed.
fn any_bad() -> bool {
    BAD_COUNT.load(Ordering::Relaxed) != 0
}

/// Watches a mapping of `file`; false where too many are watched.
pub(crate) fn watch(base: usize, len: usize, file: i32, (protection, flags): (i32, i32)) -> bool {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(install);
    WATCHED.iter().any(|watched| {
        let taken = watched.from.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            watched.file.store(file, Ordering::Relaxed);
            watched.protection.store(protection, Ordering::Relaxed);
            watched.flags.store(flags, Ordering::Relaxed);
            watched.to.store(base + len, Ordering::Release);
        }
        taken.is_ok()
    })
}

/// It is no longer mapped: forgets its pages.
pub(crate) fn forget(base: usize, len: usize) {
    for watched in &WATCHED {
        if watched.from.load(Ordering::Acquire) == base {
            watched.to.store(0, Ordering::Release);
            watched.broken.store(std::ptr::null_mut(), Ordering::Release);
            watched.from.store(0, Ordering::Release);
        }
    }
    if any_bad() {
        let own = |page: &usize| (base..base + len).contains(page);
        bad().filter(own).for_each(clear);
    }
}

pub(crate) fn watched(address: usize) -> Option<&'static Watched> {
    WATCHED.iter().find(|watched| {
        let from = watched.from.load(Ordering::Acquire);
        from != 0 && from <= address && address < watched.to.load(Ordering::Acquire)
    })
}

/// The pages that failed, by address.
fn bad() -> impl Iterator<Item = usize> {
    BAD.iter().map(|page| page.load(Ordering::Acquire) & !1).filter(|page| *page != 0)
}

/// One thread at a time changes what is noted. Nothing here can fail or raise a signal, so that a
/// handler may wait for it.
fn alone<T>(act: impl FnOnce() -> T) -> T {
    static BUSY: AtomicBool = AtomicBool::new(false);
    while BUSY.swap(true, Ordering::Acquire) {
        std::hint::spin_loop();
    }
    let result = act();
    BUSY.store(false, Ordering::Release);
    result
}

/// Notes a page: true if it is new, None if there is no room.
fn note(page: usize) -> Option<bool> {
    alone(|| {
        if bad().any(|known| known == page) {
            return Some(false);
        }
        let free = BAD.iter().find(|entry| entry.load(Ordering::Relaxed) == 0)?;
        free.store(page, Ordering::Release);
        // before the zeros can be seen: who reads those finds the page noted
        BAD_COUNT.fetch_add(1, Ordering::SeqCst);
        LOOKS.fetch_add(1, Ordering::SeqCst);
        Some(true)
    })
}

/// Takes a noted page, to make it whole; false if it is not noted, or taken.
fn take(page: usize) -> bool {
    alone(|| {
        let noted = BAD.iter().find(|entry| entry.load(Ordering::Relaxed) == page);
        noted.map(|entry| entry.store(page | 1, Ordering::Release)).is_some()
    })
}

/// A page that was taken is as bad as before.
fn give_back(page: usize) {
    alone(|| {
        let taken = |entry: &&AtomicUsize| entry.load(Ordering::Relaxed) == page | 1;
        if let Some(entry) = BAD.iter().find(taken) {
            entry.store(page, Ordering::Release);
        }
    });
}

/// Notes it no more.
fn clear(page: usize) {
    alone(|| {
        for entry in BAD.iter().filter(|entry| entry.load(Ordering::Relaxed) & !1 == page) {
            entry.store(0, Ordering::Release);
            BAD_COUNT.fetch_sub(1, Ordering::SeqCst);
            LOOKS.fetch_sub(1, Ordering::SeqCst);
        }
    });
}

fn install() {
    type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
    let handlers: [(i32, Handler); 2] = [(libc::SIGBUS, on_sigbus), (libc::SIGSEGV, on_sigsegv)];
    for ((signal, handler), before) in handlers.into_iter().zip(&BEFORE) {
        // SAFETY: an all-zero sigaction is a valid value, which the kernel fills in or reads; the
        // handler has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut known: libc::sigaction = std::mem::zeroed();
            let mut now: libc::sigaction = std::mem::zeroed();
            now.sa_sigaction = handler as usize;
            now.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            if libc::sigaction(signal, std::ptr::null(), &raw mut known) == 0 {
                let _ = before.set(known);
                libc::sigaction(signal, &raw const now, std::ptr::null_mut());
            }
        }
    }
}

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's pointers are valid during the handler; errno is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        let page = (*info).si_addr() as usize & !(PAGE - 1);
        let done = watched(page).is_some() && note_and_replace(page);
        *libc::__errno_location() = errno;
        if !done {
            pass_on(signal, BEFORE[0].get(), info, context);
        }
    }
}

extern "C" fn on_sigsegv(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as above.
    unsafe {
        let errno = *libc::__errno_location();
        let page = (*info).si_addr() as usize & !(PAGE - 1);
        let done = watched(page).is_some_and(|watched| watched.heal(page));
        *libc::__errno_location() = errno;
        if !done {
            pass_on(signal, BEFORE[1].get(), info, context);
        }
    }
}

impl Watched {
    /// A store to a page that may be noted: makes it whole, or says that the store is lost.
    fn heal(&self, page: usize) -> bool {
        if self.protection.load(Ordering::Relaxed) & libc::PROT_WRITE == 0 {
            return false;
        }
        // of two threads one does it; the other stores again until that is done
        if take(page) {
            let read_write = libc::PROT_READ | libc::PROT_WRITE;
            let private = self.file.load(Ordering::Relaxed) < 0;
            let done = match private {
                true => replace(page, read_write),
                false => self.map_again(page, true) || self.lose(page),
            };
            HEALS.fetch_add(1, Ordering::SeqCst);
            clear(page);
            return done;
        }
        true
    }

    /// Maps a page of the file anew, after writing zeros over it if it is to be `zero`.
    fn map_again(&self, page: usize, zero: bool) -> bool {
        static ZEROS: [u8; PAGE] = [0; PAGE];
        let (file, flags) = (self.file.load(Ordering::Relaxed), self.flags.load(Ordering::Relaxed));
        let protection = self.protection.load(Ordering::Relaxed);
        let offset = (page - self.from.load(Ordering::Relaxed)) as i64;
        // SAFETY: the descriptor is the mapping's, which is there: somebody stores to it. The page
        // lies inside it, and no reference of it is handed out.
        unsafe {
            let zeros = ZEROS.as_ptr().cast();
            let written = !zero || libc::pwrite(file, zeros, PAGE, offset) == PAGE as isize;
            let (at, flags) = (page as *mut c_void, flags | libc::MAP_FIXED);
            written && libc::mmap(at, PAGE, protection, flags, file, offset) != libc::MAP_FAILED
        }
    }

    /// The store goes nowhere.
    fn lose(&self, page: usize) -> bool {
        let broken = self.broken.load(Ordering::Acquire);
        if broken.is_null() || !replace(page, libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        // SAFETY: it lives as long as the mapping, to which a store is being made.
        unsafe { (*broken).store(true, Ordering::Release) };
        ANY_LOST.store(true, Ordering::Release);
        true
    }
}

/// How often, in this process, a store met a page that had failed, so that zeros took the place of
/// all that it did not store.
#[inline(always)]
pub(crate) fn heals() -> usize {
    // ordering: whoever stored asks on the same thread
    HEALS.load(Ordering::Relaxed)
}

fn note_and_replace(page: usize) -> bool {
    match note(page) {
        Some(true) => replace(page, libc::PROT_READ),
        // another thread is at it
        Some(false) => true,
        None => false,
    }
}

/// Puts zeros where the page is.
fn replace(page: usize, protection: i32) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = page as *mut c_void;
    // SAFETY: the page lies inside a mapping of this crate, of which no reference is handed out.
    unsafe { libc::mmap(at, PAGE, protection, flags, -1, 0) != libc::MAP_FAILED }
}

/// To whoever handled the signal before; if nobody did, the process ends as it would have.
///
/// # Safety
/// The pointers are those that the kernel gave the handler.
pub unsafe fn pass_on(
    signal: i32,
    before: Option<&libc::sigaction>,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let before = before.filter(|before| {
        before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN
    });
    // SAFETY: what was installed as a handler is one, with the signature that its flags say;
    // resetting a signal touches no memory.
    unsafe {
        match before {
            Some(before) if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
                let handler = std::mem::transmute::<usize, Handler>(before.sa_sigaction);
                handler(signal, info, context);
            }
            Some(before) => {
                type Handler = extern "C" fn(i32);
                let handler = std::mem::transmute::<usize, Handler>(before.sa_sigaction);
                handler(signal);
            }
            // it comes again when the handler has returned, and this time nobody catches it
            None => {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
    }
}

impl Mapping {
    /// After a read: an error if a page of the range failed, then or earlier.
    #[inline(always)]
    pub(crate) fn seen(&self, offset: u64, len: usize) -> Result<()> {
        if crate::charge::any() { self.look(offset, len) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, offset: u64, len: usize) -> Result<()> {
        if let Some(charge) = &self.charge {
            charge.by.read(offset, len);
        }
        // pairs with `note`: whoever saw zeros sees the page noted
        fence(Ordering::SeqCst);
        if !any_bad() {
            return Ok(());
        }
        match self.bad_in(offset, len).next() {
            None => Ok(()),
            Some(page) => Err(Error::Media { offset: page, len: PAGE }),
        }
    }

    /// Offsets of the pages in a range that failed.
    fn bad_in(&self, offset: u64, len: usize) -> impl Iterator<Item = u64> {
        let base = self.addresses.base().addr();
        let first = (base + offset as usize) & !(PAGE - 1);
        let end = base + offset as usize + len.max(1);
        bad().filter(move |page| (first..end).contains(page)).map(move |page| (page - base) as u64)
    }

    /// Ranges that cannot be read: offset and bytes of each, in order.
    pub fn bad_ranges(&self) -> Vec<(u64, u64)> {
        if !any_bad() {
            return Vec::new();
        }
        let mut pages: Vec<u64> = self.bad_in(0, self.addresses.len()).collect();
        pages.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for page in pages {
            match ranges.last_mut() {
                Some((from, len)) if *from + *len == page => *len += PAGE as u64,
                _ => ranges.push((page, PAGE as u64)),
            }
        }
        ranges
    }

    /// After a store through the file: shows again what lies there.
    #[inline]
    pub(crate) fn written(&self, offset: u64, len: usize) {
        if any_bad() {
            self.show_again(offset, len);
        }
    }

    #[cold]
    fn show_again(&self, offset: u64, len: usize) {
        let base = self.addresses.base().addr();
        let Some(watched) = watched(base) else { return };
        for page in self.bad_in(offset, len).map(|page| base + page as usize) {
            if take(page) {
                if watched.map_again(page, false) { clear(page) } else { give_back(page) }
            }
        }
    }
}
