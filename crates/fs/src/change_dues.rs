//! What a change does when it has been made, before its call returns: mostly nothing.

use std::sync::atomic::{AtomicU8, Ordering};

/// One byte, so that a change asks once for all of them.
#[derive(Debug, Default)]
pub struct ChangeDues(AtomicU8);

impl ChangeDues {
    /// Much of the log is in use: changes pay for it (`log_pace.rs`).
    pub const LOG: u8 = 1;
    /// Changes have waited for keepers of copies, and may again (`mapped.rs`).
    pub const WAITS: u8 = 2;

    /// Whether there is any.
    // ordering: set by this thread, or for the changes of another one, which may see it later
    #[inline(always)]
    pub fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether this one is there.
    pub fn has(&self, due: u8) -> bool {
        self.0.load(Ordering::Relaxed) & due != 0
    }

    /// From now on there is this one.
    pub fn add(&self, due: u8) {
        if !self.has(due) {
            self.0.fetch_or(due, Ordering::Relaxed);
        }
    }

    /// This one is over.
    pub fn remove(&self, due: u8) {
        self.0.fetch_and(!due, Ordering::Relaxed);
    }
}
