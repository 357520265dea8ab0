//! What each request means to the engine, whatever brought it here.
//!
//! The kernel has checked permissions (`default_permissions`) and applied the umask before it
//! asks. Numbers of inodes are the engine's own: they are never used twice, so nothing need be
//! remembered between a lookup and its forget. An inode whose last name is gone lives on while a
//! handle is open; without one its attributes can still be asked for until the kernel forgets it,
//! all other requests for it answer ESTALE.

mod attributes;
mod data;
mod directories;
mod names;
mod remains;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use nearside::FileSystem;
use nearside::files::{Attr, Call, Creation, Error as FsError, Handle, Ino};

use crate::handles::Handles;

pub(crate) use attributes::Change;
pub(crate) use data::REQUEST_BYTES_MAX;
use remains::Remains;

/// Stands for the handle of a directory that is gone; more than any table of handles holds.
const NO_HANDLE: u64 = u64::MAX;

/// The number of an error as the kernel knows it, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// Result of serving one request.
pub(crate) type Served<T> = Result<T, Errno>;

impl From<FsError> for Errno {
    fn from(error: FsError) -> Errno {
        let errno = error.errno();
        if errno == libc::EIO {
            // The caller sees two words; what went wrong, and where, is for the log.
            tracing::error!("{error}");
        }
        Errno(errno)
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Caller {
    /// Whether files keep their set-id bits when this caller changes them: what a request says
    /// nothing about is settled by the user, since capabilities are not in it.
    pub(crate) fn keeps_set_id(self) -> bool {
        self.uid == 0
    }

    fn creates(self, mode: u32) -> Creation {
        Creation { mode: (mode & 0o7777) as u16, uid: self.uid, gid: self.gid }
    }
}

/// The engine as the mount uses it.
pub(crate) struct Service {
    fs: Arc<FileSystem>,
    handles: Handles,
    /// Only where nobody else takes names away.
    remains: Option<Remains>,
}

impl Service {
    pub(crate) fn new(fs: Arc<FileSystem>, sole_door: bool) -> Service {
        let remains = sole_door.then(Remains::default);
        Service { fs, handles: Handles::default(), remains }
    }

    /// Serves a request and counts it under the name of its call.
    #[inline]
    pub(crate) fn metered<T>(
        &self,
        call: &'static str,
        serve: impl FnOnce() -> Served<T>,
    ) -> Served<T> {
        self.fs.meter().call(Call::named(call), serve)
    }

    fn handle(&self, number: u64) -> Served<Arc<Handle>> {
        self.handles.get(number).ok_or(Errno(libc::EBADF))
    }

    /// What is left of an inode that is gone.
    fn remains(&self, ino: Ino) -> Option<Attr> {
        self.remains.as_ref()?.get(ino)
    }

    /// Closes an open file or directory.
    pub(crate) fn release(&self, number: u64) -> Served<()> {
        if number == NO_HANDLE {
            return Ok(());
        }
        self.handles.remove(number).map(drop).ok_or(Errno(libc::EBADF))
    }
}

/// For requests on an inode that the kernel found earlier: it is gone, look it up again.
fn stale(error: FsError) -> Errno {
    match error {
        FsError::NotFound => Errno(libc::ESTALE),
        other => other.into(),
    }
}
