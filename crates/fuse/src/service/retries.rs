//! Callers that were told ESTALE, and what they find when they look again.
//!
//! A lookup holds nothing: a file may lose its last name before the kernel asks to open it. Then
//! the answer is ESTALE, and the kernel walks the path once more, asking for each name anew; a
//! second ESTALE it shows to the program. Where a name is replaced over and over, as programs
//! replace a file that others read, that would happen now and then. So what such a caller looks up
//! within the next moment is held open for it, and cannot be gone when it asks for more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nearside::files::{Handle, Ino};
use parking_lot::Mutex;

/// For how long a caller is expected to look again.
const EXPECTED_FOR: Duration = Duration::from_millis(500);
/// Callers that are remembered at once, and what is held for each: the latest.
const CALLERS_MAX: usize = 64;
const HELD_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Retries {
    /// Callers in the list.
    expected: AtomicUsize,
    callers: Mutex<Vec<Expected>>,
}

struct Expected {
    thread: u32,
    until: Instant,
    held: Vec<Arc<Handle>>,
}

impl Retries {
    /// `thread` is about to be told ESTALE.
    pub(crate) fn expect(&self, thread: u32) {
        let until = Instant::now() + EXPECTED_FOR;
        let mut callers = self.callers.lock();
        let held = match callers.iter().position(|caller| caller.thread == thread) {
            Some(at) => callers.remove(at).held,
            None => Vec::new(),
        };
        let surplus = (callers.len() >= CALLERS_MAX).then(|| callers.remove(0));
        callers.push(Expected { thread, until, held });
        self.expected.store(callers.len(), Ordering::Release);
        drop(callers);
        // What was held may be deleted now, which takes other locks.
        drop(surplus);
    }

    /// Whether `thread` was told ESTALE a moment ago.
    #[inline]
    pub(crate) fn expects(&self, thread: u32) -> bool {
        // Acquire: pairs with the store before the answer that had the caller look again.
        self.expected.load(Ordering::Acquire) != 0
            && self.callers.lock().iter().any(|caller| caller.thread == thread)
    }

    /// Forgets those for whom it is too long ago, with what was held for them.
    #[inline]
    pub(crate) fn expire(&self) {
        if self.expected.load(Ordering::Relaxed) != 0 {
            self.forget_late();
        }
    }

    #[cold]
    fn forget_late(&self) {
        let now = Instant::now();
        let mut callers = self.callers.lock();
        let late: Vec<Expected> = callers.extract_if(.., |caller| caller.until < now).collect();
        self.expected.store(callers.len(), Ordering::Release);
        drop(callers);
        drop(late);
    }

    /// The kernel does not know `ino` any more from so many lookups: as many holds go. It forgets a
    /// lookup, too, that found another inode than it knew by that name, looks again, and may find
    /// the same one: what that second lookup holds stays, whichever of the two comes first.
    pub(crate) fn forget(&self, ino: Ino, lookups: u64) {
        if self.expected.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut callers = self.callers.lock();
        let mut left = lookups;
        let mut goes = |handle: &mut Arc<Handle>| {
            let goes = left > 0 && handle.ino() == ino;
            left -= u64::from(goes);
            goes
        };
        let mut held: Vec<Arc<Handle>> = Vec::new();
        for caller in callers.iter_mut() {
            held.extend(caller.held.extract_if(.., &mut goes));
        }
        drop(callers);
        drop(held);
    }

    /// Holds what `thread` has found.
    pub(crate) fn hold(&self, thread: u32, handle: Arc<Handle>) {
        let mut callers = self.callers.lock();
        let Some(caller) = callers.iter_mut().find(|caller| caller.thread == thread) else {
            return;
        };
        let surplus = (caller.held.len() >= HELD_MAX).then(|| caller.held.remove(0));
        caller.held.push(handle);
        drop(callers);
        drop(surplus);
    }
}
