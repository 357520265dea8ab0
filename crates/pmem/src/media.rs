//! Memory that fails: what would end the process is an error of one range instead.
//!
//! A load from memory with an uncorrectable error, and from a page of a file that another program
//! cut short, raises SIGBUS. The handler here puts a page of zeros in the place of the page that
//! failed, and notes it; the load goes on, and whoever made it asks afterwards whether a page of
//! its range is noted ([`Mapping::seen`]). Until such a page is written, reads of it fail.
//!
//! A store to it has to reach the medium again: the page is written through the file, which clears
//! the error where it can be cleared (a DAX file system tells its driver), and mapped anew, and the
//! store is made again. Where that cannot be, it is lost: [`Mapping::broken`].
//!
//! The handler is for the mappings of this crate; what else raises SIGBUS goes to whoever handled
//! it before. It takes no lock and allocates nothing.

use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::through_file::write_at;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

/// Bytes of what is replaced.
pub(crate) const PAGE: usize = 4096;
/// Mappings that are watched at once; those beyond are not.
const MAPPINGS_MAX: usize = 1024;
/// Pages that can be noted at once; the next one ends the process, as all did before.
const BAD_MAX: usize = 1 << 14;

/// Addresses of the watched mappings: where each begins and ends; 0: none.
static WATCHED: [(AtomicUsize, AtomicUsize); MAPPINGS_MAX] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; MAPPINGS_MAX];
/// Addresses of pages that failed; 0: none.
static BAD: [AtomicUsize; BAD_MAX] = [const { AtomicUsize::new(0) }; BAD_MAX];
/// How many there are.
static BAD_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether any store of this process is lost.
static ANY_LOST: AtomicBool = AtomicBool::new(false);
/// Who handled SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// Held by who makes a page whole again.
static HEALING: Mutex<()> = Mutex::new(());

/// Whether any page of this process failed. Costs next to nothing.
#[inline(always)]
pub(crate) fn any() -> bool {
    // ordering: what this thread's own loads met was noted on this thread; for what others met see
    // `note`
    BAD_COUNT.load(Ordering::Relaxed) != 0
}

/// Watches a mapping; false where too many are watched.
pub(crate) fn watch(base: usize, len: usize) -> bool {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(install);
    WATCHED.iter().any(|(from, to)| {
        let free = from.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if free {
            to.store(base + len, Ordering::Release);
        }
        free
    })
}

/// It is no longer mapped: forgets its pages.
pub(crate) fn forget(base: usize, len: usize) {
    for (from, to) in &WATCHED {
        if from.load(Ordering::Acquire) == base {
            to.store(0, Ordering::Release);
            from.store(0, Ordering::Release);
        }
    }
    if any() {
        let own = |page: &usize| (base..base + len).contains(page);
        bad().filter(own).for_each(clear);
    }
}

fn is_watched(address: usize) -> bool {
    let inside = |(from, to): &(AtomicUsize, AtomicUsize)| {
        let from = from.load(Ordering::Acquire);
        from != 0 && from <= address && address < to.load(Ordering::Acquire)
    };
    WATCHED.iter().any(inside)
}

/// The pages that failed, by address.
fn bad() -> impl Iterator<Item = usize> {
    BAD.iter().map(|page| page.load(Ordering::Acquire)).filter(|page| *page != 0)
}

/// Notes a page: true if it is new, None if there is no room.
fn note(page: usize) -> Option<bool> {
    if bad().any(|known| known == page) {
        return Some(false);
    }
    for entry in &BAD {
        if entry.compare_exchange(0, page, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // before the zeros can be seen: who reads those finds the page noted
            BAD_COUNT.fetch_add(1, Ordering::SeqCst);
            return Some(true);
        }
    }
    None
}

fn clear(page: usize) {
    for entry in &BAD {
        if entry.compare_exchange(page, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            BAD_COUNT.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn install() {
    // SAFETY: an all-zero sigaction is a valid value, which the kernel fills in or reads; the
    // handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut now: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_sigbus;
        now.sa_sigaction = handler as usize;
        now.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) == 0 {
            let _ = BEFORE.set(before);
            libc::sigaction(libc::SIGBUS, &raw const now, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's pointers are valid during the handler; errno is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        let page = (*info).si_addr() as usize & !(PAGE - 1);
        let done = is_watched(page)
            && match note(page) {
                Some(true) => replace(page),
                // another thread is at it
                Some(false) => true,
                None => false,
            };
        *libc::__errno_location() = errno;
        if !done {
            pass_on(signal, info, context);
        }
    }
}

/// Puts zeros where the page is.
fn replace(page: usize) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let at = page as *mut c_void;
    // SAFETY: the page lies inside a mapping of this crate, of which no reference is handed out.
    unsafe { libc::mmap(at, PAGE, protection, flags, -1, 0) != libc::MAP_FAILED }
}

/// To whoever handled the signal before; if nobody did, the process ends as it would have.
///
/// # Safety
/// The pointers are those that the kernel gave the handler.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().filter(|before| {
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
        if any() { self.look(offset, len) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, offset: u64, len: usize) -> Result<()> {
        // pairs with `note`: whoever saw zeros sees the page noted
        fence(Ordering::SeqCst);
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
        if !any() {
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

    /// Makes the pages of a range whole; whether there were any that failed, and now do not. What
    /// they held is gone.
    pub(crate) fn heal(&self, offset: u64, len: usize) -> bool {
        let _healing = HEALING.lock().unwrap_or_else(PoisonError::into_inner);
        let pages: Vec<u64> = self.bad_in(offset, len).collect();
        for page in &pages {
            let healed = self.file.as_ref().is_some_and(|file| {
                // a store through the file has written it already
                let cleared = self.through_file || write_at(file, *page, &[0; PAGE]).is_ok();
                cleared && self.addresses.map_again(file, *page as usize, PAGE).is_ok()
            });
            if !healed {
                self.lose();
                return false;
            }
            clear(self.addresses.base().addr() + *page as usize);
        }
        !pages.is_empty()
    }

    /// A store is lost.
    pub(crate) fn lose(&self) {
        // ordering: whoever made the store asks on the same thread
        self.broken.store(true, Ordering::Release);
        ANY_LOST.store(true, Ordering::Release);
    }

    /// Whether a store to this mapping, or to one that it breaks with, went to memory that fails
    /// and cannot be made whole: it is lost.
    #[inline]
    pub fn broken(&self) -> bool {
        // ordering: whoever made the store asks on the same thread
        ANY_LOST.load(Ordering::Relaxed) && self.broken.load(Ordering::Acquire)
    }

    /// From now on it is broken when any of those is that were given the same.
    pub fn break_with(&mut self, broken: &Arc<AtomicBool>) {
        self.broken = broken.clone();
    }
}
