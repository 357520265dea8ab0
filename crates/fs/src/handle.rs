//! An open inode.

use crate::core::Core;
use crate::inode::Inode;
use crate::types::Ino;
use placement::Lever;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open inode: keeps it (also unlinked) until dropped.
#[derive(Debug)]
pub struct Handle {
    pub(crate) core: Arc<Core>,
    pub(crate) inode: Arc<Inode>,
    /// The key of its locks; 0: it has none.
    pub(crate) lock_key: AtomicU64,
}

impl Handle {
    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// How many handles the inode has, this one among them.
    pub fn opens(&self) -> u32 {
        self.inode.opens.load(Ordering::Relaxed)
    }

    /// Bytes of the file; of what is written under leases, not all.
    pub fn size(&self) -> u64 {
        self.inode.size.load(Ordering::Acquire)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.core.process.is_here() {
            // it is the parent's to close; and what has threads is never dropped here
            return std::mem::forget(self.core.clone());
        }
        self.unlock();
        if let Some(known) = self.core.observer.known()
            && known.process.threads == Lever::On
            && self.inode.opens.load(Ordering::Relaxed) == 1
        {
            known.movers.closed(self.inode.ino);
        }
        if let Err(error) = self.core.release(&self.inode) {
            // the orphan stays on the medium's list, and the next open of the pool drops it
            tracing::warn!("closing inode {}: {error}", self.inode.ino.0);
        }
    }
}
