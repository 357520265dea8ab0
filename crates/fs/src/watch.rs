//! Watching a file's bytes: whether any may have changed since they were read, without reading them
//! again.

use crate::handle::Handle;
use crate::inode::Inode;
use crate::system::FileSystem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Who watches an inode, and the changes that began meanwhile.
#[derive(Debug, Default)]
pub struct Watched {
    watchers: AtomicU32,
    changes: AtomicU64,
}

impl Watched {
    /// A change begins. Whoever makes it has the range of what it changes, so that he sees those
    /// who watched before they read there.
    #[inline]
    pub fn change(&self) {
        // ordering: the range's lock, see above
        if self.watchers.load(Ordering::Relaxed) > 0 {
            // ordering: Release comes with what is published later: who sees that sees this
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

/// Watches a file until it is dropped.
#[derive(Debug)]
pub struct Watch(Arc<Inode>);

impl FileSystem {
    /// Watches a file from now on.
    pub fn watch(&self, file: &Handle) -> Watch {
        file.inode.watched.watchers.fetch_add(1, Ordering::SeqCst);
        Watch(file.inode.clone())
    }
}

impl Watch {
    /// Whether it is this file.
    pub fn is_of(&self, file: &Handle) -> bool {
        Arc::ptr_eq(&self.0, &file.inode)
    }

    /// A number that grows before a change of what was read since the watch began can be seen.
    /// Whoever reads what such a change has led to sees the greater number, too.
    pub fn changes(&self) -> u64 {
        self.0.watched.changes.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.watched.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}
