//! What each request means to the engine, whatever brought it here.
//!
//! The kernel has checked permissions (`default_permissions`) and applied the umask before it
//! asks. Numbers of inodes are the engine's own: they are never used twice, so nothing need be
//! remembered between a lookup and its forget. An inode whose last name is gone lives on while a
//! handle is open; without one, requests for it answer ESTALE.

mod attributes;
mod data;
mod directories;
mod names;

use std::sync::Arc;

use nearside::FileSystem;
use nearside::files::{Creation, Error as FsError, Handle};

use crate::handles::Handles;

pub(crate) use attributes::Change;
pub(crate) use data::REQUEST_BYTES_MAX;

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
}

impl Service {
    pub(crate) fn new(fs: Arc<FileSystem>) -> Service {
        Service { fs, handles: Handles::default() }
    }

    fn handle(&self, number: u64) -> Served<Arc<Handle>> {
        self.handles.get(number).ok_or(Errno(libc::EBADF))
    }

    /// Closes an open file or directory.
    pub(crate) fn release(&self, number: u64) -> Served<()> {
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
