//! Whether a store went to memory that fails, and is lost.

use crate::mapping::Mapping;
use crate::media::{ANY_LOST, watched};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Mapping {
    /// Whether a store to this mapping, or to one that it breaks with, went to memory that fails
    /// and cannot be made whole: it is lost.
    #[inline]
    pub fn broken(&self) -> bool {
        // ordering: whoever made the store asks on the same thread
        ANY_LOST.load(Ordering::Relaxed) && self.broken.load(Ordering::Acquire)
    }

    /// From now on it is broken when any of those is that were given the same. Said before it is
    /// split.
    pub fn break_with(&mut self, broken: &Arc<AtomicBool>) {
        assert!(self.file.is_none() || !self.addresses.is_shared(), "its parts break with it");
        self.broken = broken.clone();
        self.tell_watch();
    }

    /// Tells the handler where to say that a store is lost.
    pub(crate) fn tell_watch(&self) {
        if let Some(watched) = watched(self.addresses.base().addr()) {
            watched.broken.store(Arc::as_ptr(&self.broken).cast_mut(), Ordering::Release);
        }
    }
}
