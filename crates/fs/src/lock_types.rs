//! The words of locks on files: who asks for what.

use crate::error::Result;
use crate::types::Ino;
use std::sync::Arc;

/// The door of locks that belong to a [`Handle`](crate::Handle) of the library. Every other door
/// has a number of its own.
pub const LIBRARY_DOOR: u64 = 0;

/// Which locks: those of one class know nothing of the other's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockClass {
    /// Ranges of bytes (fcntl(2)).
    Posix,
    /// The whole file (flock(2)).
    Flock,
}

/// Who holds a lock. What one owner holds is never in its own way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LockOwner {
    /// The door that it came through.
    pub door: u64,
    /// Which one there: a process, an open file.
    pub key: u64,
}

/// What becomes of a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum LockKind {
    /// Shared with other readers.
    Read,
    /// Its owner's alone.
    Write,
    /// Let go.
    Unlock,
}

/// One change of the locks of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockChange {
    /// Which locks.
    pub class: LockClass,
    /// Whose.
    pub owner: LockOwner,
    /// What they become.
    pub kind: LockKind,
    /// First byte; flock(2) knows no ranges, and always means all.
    pub start: u64,
    /// Last byte, inclusive.
    pub end: u64,
    /// The process to name to who asks for the holder.
    pub pid: u32,
}

impl LockChange {
    /// Whether not both can be held.
    pub(crate) fn conflicts(&self, other: &LockChange) -> bool {
        let exclusive = self.kind == LockKind::Write || other.kind == LockKind::Write;
        let locks = self.kind != LockKind::Unlock && other.kind != LockKind::Unlock;
        self.class == other.class
            && self.owner != other.owner
            && locks
            && exclusive
            && self.start <= other.end
            && other.start <= self.end
    }

    /// Lets go of all that an owner holds.
    pub(crate) fn unlock_all(class: LockClass, owner: LockOwner) -> LockChange {
        let (start, end) = (0, u64::MAX);
        LockChange { class, owner, kind: LockKind::Unlock, start, end, pid: 0 }
    }
}

/// A request that may be waiting, to cancel it by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockTicket {
    pub(crate) ino: Ino,
    /// 0: it never waited.
    pub(crate) number: u64,
}

/// Told about the end of a wait, once.
pub type LockDone = Box<dyn FnOnce(Result<()>) + Send>;

/// Told about every change of the locks.
pub type LockObserver = Arc<dyn Fn(Ino, &LockChange) + Send + Sync>;
