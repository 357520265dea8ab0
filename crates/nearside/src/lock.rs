//! Locks on ranges of an open file.

use std::ops::{Bound, RangeBounds};
use std::sync::mpsc::channel;

use fs::{Error as FsError, LockChange, LockClass, LockKind};

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
        let change = self.lock_change(kind, range)?;
        let (tell, told) = channel();
        // nobody listens any more only where this thread is gone
        let done = move |result| tell.send(result).unwrap_or(());
        self.fs.lock_wait(self.handle.ino(), &change, Box::new(done));
        let granted = told.recv().unwrap_or(Err(FsError::Interrupted));
        Ok(granted?)
    }

    /// The same without waiting: false if another owner's lock is in the way.
    pub fn try_lock(&self, kind: LockKind, range: impl RangeBounds<u64>) -> Result<bool> {
        let change = self.lock_change(kind, range)?;
        match self.fs.lock(self.handle.ino(), &change) {
            Ok(()) => Ok(true),
            Err(FsError::Locked) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets go of bytes, locked or not.
    pub fn unlock(&self, range: impl RangeBounds<u64>) -> Result<()> {
        let change = self.lock_change(LockKind::Unlock, range)?;
        Ok(self.fs.lock(self.handle.ino(), &change)?)
    }

    fn lock_change(&self, kind: LockKind, range: impl RangeBounds<u64>) -> Result<LockChange> {
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
        let (Some(start), Some(end)) = (start, end) else {
            return Err(FsError::Invalid("the range is empty").into());
        };
        let owner = self.fs.lock_owner(&self.handle);
        let pid = std::process::id();
        Ok(LockChange { class: LockClass::Posix, owner, kind, start, end, pid })
    }
}
