//! The file system's interface for locks on files; what they mean is in `locks.rs`.

use crate::error::Result;
use crate::handle::Handle;
use crate::lock_types::{
    LIBRARY_DOOR, LockChange, LockClass, LockDone, LockKind, LockObserver, LockOwner, LockTicket,
};
use crate::system::FileSystem;
use crate::types::Ino;
use std::sync::atomic::Ordering;

/// Locks on files: advisory, in memory only, the same for every door. A door lets go of what it
/// took, at the latest with [`unlock_door`](FileSystem::unlock_door).
impl FileSystem {
    /// Takes or lets go of a lock; [`Locked`](crate::Error::Locked) (EAGAIN) when another owner's
    /// is in the way. As in Linux, a flock(2) that cannot be changed into another kind is lost.
    pub fn lock(&self, ino: Ino, change: &LockChange) -> Result<()> {
        if change.kind != LockKind::Unlock {
            self.core.inode(ino)?;
        }
        self.core.locks.lock(ino, change)
    }

    /// The same, but waits for what is in the way, and blocks no thread for it: `done` is called
    /// once, maybe before this returns, by any thread. [`Deadlock`](crate::Error::Deadlock) when
    /// the wait could not end (ranges only), [`Interrupted`](crate::Error::Interrupted) when it
    /// was cancelled.
    pub fn lock_wait(&self, ino: Ino, change: &LockChange, done: LockDone) -> LockTicket {
        let exists = match change.kind {
            LockKind::Unlock => Ok(()),
            _ => self.core.inode(ino).map(drop),
        };
        match exists {
            Ok(()) => self.core.locks.lock_wait(ino, change, done),
            Err(error) => {
                done(Err(error));
                LockTicket { ino, number: 0 }
            }
        }
    }

    /// Ends a wait, if it has not ended.
    pub fn cancel_lock(&self, ticket: LockTicket) {
        self.core.locks.cancel(ticket);
    }

    /// A lock that is in the way of `change`, the first in the file.
    pub fn lock_holder(&self, ino: Ino, change: &LockChange) -> Option<LockChange> {
        self.core.locks.holder(ino, change)
    }

    /// Lets go of all that `owner` holds on one file.
    pub fn unlock_all(&self, ino: Ino, owner: LockOwner, class: LockClass) {
        self.core.locks.unlock_all(ino, owner, class);
    }

    /// Lets go of all that came through a door that went away, and ends its waits.
    pub fn unlock_door(&self, door: u64) {
        self.core.locks.unlock_door(door);
    }

    /// Tells `observer` about each change that is granted from now on, in their order (of each
    /// file). It is called under the table's locks: it must be short, and must not call back.
    pub fn observe_locks(&self, observer: LockObserver) {
        self.core.locks.observe(observer);
    }

    /// Tells `observer` no more.
    pub fn forget_lock_observer(&self, observer: &LockObserver) {
        self.core.locks.forget_observer(observer);
    }

    /// Shows all that is held through `door` while the table stands still: `look` comes between
    /// two changes that observers are told of, and is bound by what they are bound by.
    pub fn with_locks<T>(
        &self,
        door: u64,
        look: impl FnOnce(&mut dyn Iterator<Item = (Ino, LockChange)>) -> T,
    ) -> T {
        self.core.locks.with_all(door, look)
    }

    /// A number for a door that nobody else has.
    pub fn new_lock_door(&self) -> u64 {
        self.core.locks.number()
    }

    /// Takes over a lock that was held before a restart, whatever is in its way; observers, who
    /// told of it, are not told. EINVAL for a range that ends before it begins.
    pub fn restore_lock(&self, ino: Ino, change: &LockChange) -> Result<()> {
        self.core.locks.restore(ino, change)
    }

    /// The owner of locks that belong to an open handle, and end with it: of the library's files.
    pub fn lock_owner(&self, handle: &Handle) -> LockOwner {
        let made = handle.lock_key.load(Ordering::Relaxed);
        if made != 0 {
            return LockOwner { door: LIBRARY_DOOR, key: made };
        }
        let new = self.core.locks.number();
        // ordering: a number carries nothing with it; who comes second takes the first's
        let before = handle.lock_key.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        LockOwner { door: LIBRARY_DOOR, key: before.map_or_else(|made| made, |_| new) }
    }
}

impl Handle {
    /// Lets go of the locks that belong to the handle.
    pub(crate) fn unlock(&self) {
        let key = self.lock_key.load(Ordering::Relaxed);
        if key != 0 {
            let owner = LockOwner { door: LIBRARY_DOOR, key };
            for class in [LockClass::Posix, LockClass::Flock] {
                self.core.locks.unlock_all(self.inode.ino, owner, class);
            }
        }
    }
}
