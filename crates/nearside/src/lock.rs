//! Locks on ranges of an open file.

use std::ops::{Bound, RangeBounds};
use std::sync::mpsc::channel;

use fs::{Error as FsError, LockChange, LockClass, LockDone, LockKind, LockTicket};

use crate::file::{Open, OpenHere};
use crate::{File, Result};

/// Locks are advice: they keep nobody from reading or writing. They hold against every door, so
/// also against programs that use fcntl(2) on a mount of the same pool. They belong to the open
/// file, which all clones of a [`File`] share, and end with its last clone, or with the pool;
/// nothing of them is stored.
///
/// ```
/// # fn main() -> nearside::Result<()> {
/// # let scratch = tempfile::tempdir().unwrap();
/// # let options = nearside::FormatOptions {
/// #     slices: vec![nearside::SliceSpec::default()], slice_bytes: 32 << 20,
/// #     process: true, ..nearside::FormatOptions::default() };
/// # nearside::Pool::format(scratch.path(), &options)?;
/// # let pool = nearside::Pool::open(scratch.path())?;
/// use nearside::{LockKind, OpenFlags};
///
/// let mine = pool.create_file("/data")?;
/// let other = pool.open_file("/data", &OpenFlags::new().read(true))?;
/// mine.lock(LockKind::Write, 0..4096)?;
/// assert!(!other.try_lock(LockKind::Read, ..)?, "its first block is locked");
/// assert!(other.try_lock(LockKind::Read, 4096..)?);
/// mine.unlock(..)?;
/// other.lock(LockKind::Read, ..)?;
/// # Ok(())
/// # }
/// ```
impl File {
    /// Locks bytes for reading, shared, or for writing, alone; waits for those who are in the way,
    /// in the order in which they came. What this file holds there already changes its kind.
    ///
    /// A lock for reading needs a file that is open for reading, one for writing needs one that
    /// may be changed. EDEADLK when the wait could not end because the holder waits, maybe through
    /// others, for this file.
    pub fn lock(&self, kind: LockKind, range: impl RangeBounds<u64>) -> Result<()> {
        match &self.open {
            Open::Here(_) => {
                let (tell, told) = channel();
                // nobody listens any more only where this thread is gone
                let done = move |result| tell.send(result).unwrap_or(());
                self.lock_then(kind, range, Box::new(done))?;
                let granted = told.recv().unwrap_or(Err(FsError::Interrupted));
                Ok(granted?)
            }
            Open::There(file) => file.lock(kind, self.bounds(kind, range)?, true).map(drop),
        }
    }

    /// The same for who cannot wait: `done` is told how the wait ended, maybe before this returns.
    /// The wait can be cancelled by [`FileSystem::cancel_lock`](fs::FileSystem::cancel_lock).
    ///
    /// # Errors
    /// As above; and this process is attached, and has no engine.
    pub fn lock_then(
        &self,
        kind: LockKind,
        range: impl RangeBounds<u64>,
        done: LockDone,
    ) -> Result<LockTicket> {
        let file = self.open_here()?;
        let change = lock_change(file, kind, self.bounds(kind, range)?);
        Ok(file.fs.lock_wait(file.handle.ino(), &change, done))
    }

    /// The same without waiting: false if another owner's lock is in the way.
    pub fn try_lock(&self, kind: LockKind, range: impl RangeBounds<u64>) -> Result<bool> {
        let bounds = self.bounds(kind, range)?;
        match &self.open {
            Open::Here(file) => {
                match file.fs.lock(file.handle.ino(), &lock_change(file, kind, bounds)) {
                    Ok(()) => Ok(true),
                    Err(FsError::Locked) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            Open::There(file) => file.lock(kind, bounds, false),
        }
    }

    /// Lets go of bytes, locked or not.
    pub fn unlock(&self, range: impl RangeBounds<u64>) -> Result<()> {
        self.try_lock(LockKind::Unlock, range).map(drop)
    }

    /// First and last byte of a range, which may be locked so.
    fn bounds(&self, kind: LockKind, range: impl RangeBounds<u64>) -> Result<(u64, u64)> {
        self.own()?;
        match kind {
            LockKind::Read => self.need(self.flags.read, "reading")?,
            LockKind::Write => self.need(self.flags.changes(), "writing")?,
            LockKind::Unlock => {}
        }
        let start = match range.start_bound() {
            Bound::Included(first) => Some(*first),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => Some(*last),
            Bound::Excluded(behind) => behind.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        match (start, end) {
            (Some(start), Some(end)) => Ok((start, end)),
            _ => Err(FsError::Invalid("the range is empty").into()),
        }
    }
}

fn lock_change(file: &OpenHere, kind: LockKind, (start, end): (u64, u64)) -> LockChange {
    let owner = file.fs.lock_owner(&file.handle);
    LockChange { class: LockClass::Posix, owner, kind, start, end, pid: std::process::id() }
}
