//! Whose a pool is: the process's that opened it. A forked child has a copy of its parent's memory,
//! but not the threads, and locks stay as they were at the fork: whatever it calls is refused, and
//! what it drops stays as it is for its parent.

use fs::FileSystem;

use crate::{Error, Result};

/// Refuses a forked child. Asked by every call that can say so; it costs a load.
#[inline]
pub(crate) fn check(fs: &FileSystem) -> Result<()> {
    if fs.is_own() { Ok(()) } else { Err(Error::Forked { owner: fs.process().id() }) }
}
