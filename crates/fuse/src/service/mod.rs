//! What each request means to the engine, whatever brought it here.
//!
//! The kernel has checked permissions (`default_permissions`) and applied the umask before it
//! asks. Numbers of inodes are the engine's own: they are never used twice, so nothing need be
//! remembered between a lookup and its forget. An inode whose last name is gone lives on while a
//! handle is open; without one its attributes can still be asked for until the kernel forgets it,
//! all other requests for it answer ESTALE, upon which the kernel looks the path up again.

mod attributes;
mod complaints;
mod data;
mod directories;
mod names;
mod once;
mod remains;
mod retries;
mod rights;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside::FileSystem;
use nearside::files::{Attr, Call, Creation, Error as FsError, Handle, Ino};

use crate::Turn;
use crate::handles::{Handles, Open};
use crate::kernel_pages::KernelPages;

pub(crate) use attributes::Change;
pub(crate) use data::REQUEST_BYTES_MAX;
pub(crate) use directories::Listed;
use remains::Remains;
use retries::Retries;
pub use rights::Users;
pub(crate) use rights::{Changes, May, asked_by};

/// Stands for the handle of a directory that is gone; more than any table of handles holds.
const NO_HANDLE: u64 = u64::MAX;

/// Longest time that a thread may take to let go of a file after it has answered.
const LET_GO_MAX: Duration = Duration::from_secs(1);

/// Files that another machine may have open; a forwarder keeps as many from service to service.
const OPEN_MAX: usize = 1 << 16;

/// The number of an error as the kernel knows it, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// The kernel's number of an open file, and the inode that was opened.
pub(crate) type OpenFile = (u64, Ino);

/// Result of serving one request.
pub(crate) type Served<T> = Result<T, Errno>;

impl From<FsError> for Errno {
    fn from(error: FsError) -> Errno {
        let errno = error.errno();
        if errno == libc::EIO {
            // The caller sees two words; what went wrong, and where, is for the log.
            complaints::log(&error.to_string());
        }
        Errno(errno)
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its thread; 0 where that has no number in the server's namespace.
    pub(crate) thread: u32,
}

impl Caller {
    fn creates(self, mode: Mode) -> Creation {
        let (mode, umask) = ((mode.asked & 0o7777) as u16, (mode.umask & 0o777) as u16);
        Creation { mode, umask, uid: self.uid, gid: self.gid }
    }
}

/// The mode of what is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    /// Permission bits, and for mknod(2) the type.
    pub(crate) asked: u32,
    /// The caller's umask, which an inherited ACL replaces.
    pub(crate) umask: u32,
}

/// The engine as the mount uses it.
pub(crate) struct Service {
    fs: Arc<FileSystem>,
    /// What the kernel keeps of files.
    pages: Arc<KernelPages>,
    client: u128,
    handles: Handles,
    /// It is asked here whether whoever asks may.
    is_checked: bool,
    /// The kernel is another machine's.
    is_away: bool,
    /// Only where nobody else takes names away.
    remains: Option<Remains>,
    retries: Retries,
}

impl Service {
    /// The service of the server whose turn it is on its connection.
    pub(crate) fn new(fs: Arc<FileSystem>, sole_door: bool, turn: Turn) -> Service {
        let pages = KernelPages::new(fs.clone(), sole_door, false);
        let remains = sole_door.then(Remains::default);
        let (handles, retries) = (Handles::new(turn.number), Retries::default());
        let (is_checked, is_away) = (false, false);
        let client = turn.client;
        Service { fs, pages, client, handles, is_checked, is_away, remains, retries }
    }

    /// The same for a kernel of another machine, which has asked whether its callers may, or not.
    pub(crate) fn away(fs: Arc<FileSystem>, is_checked: bool, turn: Turn) -> Service {
        let pages = KernelPages::new(fs.clone(), false, true);
        Service { pages, is_checked, is_away: true, ..Service::new(fs, false, turn) }
    }

    /// What the kernel keeps of files.
    pub(crate) fn pages(&self) -> &Arc<KernelPages> {
        &self.pages
    }

    /// Serves a request and counts it; what it gives back says whether it was refused.
    #[inline]
    pub(crate) fn metered(&self, call: Call, serve: impl FnOnce() -> bool) {
        let serve = || if serve() { Err(()) } else { Ok(()) };
        // The answer is out by now.
        let _ = self.fs.meter().call(call, serve);
    }

    /// The handle of open file `number`, which is of `ino`. One that an earlier server opened is
    /// opened again.
    /// It is an error if it is not open for what is `wanted`.
    fn handle(&self, file: OpenFile, wanted: May) -> Served<Arc<Handle>> {
        let (number, ino) = file;
        let open = match self.handles.get(file) {
            Some(open) => open,
            None if self.is_inherited(number) => {
                let handle = self.fs.open(ino).map_err(stale)?;
                self.may_open_more()?;
                self.handles.inherit(number, Open { handle, may: None, writes: true })
            }
            None => return Err(Errno(libc::EBADF)),
        };
        let may = open.may.unwrap_or_else(|| self.permits(ino, wanted));
        match may.has(wanted) {
            true => Ok(open.handle),
            false => Err(rights::NOT_OPEN_FOR_IT),
        }
    }

    /// Keeps what was opened with these flags of open(2), and gives it a number.
    fn keep(&self, handle: Arc<Handle>, may: May, flags: i32) -> Served<u64> {
        self.may_open_more()?;
        let writes = May::of(flags).has(May::WRITE);
        Ok(self.handles.insert(Open { handle, may: Some(may), writes }))
    }

    /// Whether somebody may have stored to the file by a mapping, and the kernel has not told yet.
    fn may_be_stored_to(&self, file: OpenFile, handle: &Handle) -> bool {
        let is_own = || self.handles.get(file).is_none_or(|open| open.writes);
        is_own() || (handle.opens() > 1 && self.handles.is_written(file.1))
    }

    /// Whether somebody may have the file mapped to store to it: not by a descriptor that reads
    /// nothing, where it is the only one.
    fn may_be_mapped_for_stores(&self, file: OpenFile, handle: &Handle) -> bool {
        let may = self.handles.get(file).and_then(|open| open.may);
        handle.opens() > 1 || may.is_none_or(|may| may.has(May::READ))
    }

    /// An error where a machine has as much open as it may.
    fn may_open_more(&self) -> Served<()> {
        match self.is_away && self.handles.len() >= OPEN_MAX {
            true => Err(Errno(libc::ENFILE)),
            false => Ok(()),
        }
    }

    /// Opens a file again that an earlier server opened.
    pub(crate) fn reopen_handle(&self, file: OpenFile) -> Served<()> {
        self.permit_again(file.1)?;
        let handle = self.handle(file, May::NOTHING)?;
        self.pages.may_have_all(&handle);
        Ok(())
    }

    /// Whether this is open, for what is wanted as far as that is known, and is not opened for it.
    pub(crate) fn may_lock(&self, file: OpenFile, wanted: May) -> bool {
        let open = self.handles.get(file);
        open.is_some_and(|open| open.may.is_none_or(|may| may.has(wanted)))
    }

    /// Whether an earlier server had this open.
    pub(crate) fn has_inherited(&self, ino: Ino) -> bool {
        self.handles.has_inherited(ino)
    }

    fn is_inherited(&self, number: u64) -> bool {
        number != NO_HANDLE && self.handles.is_inherited(number)
    }

    /// What is left of an inode that is gone.
    fn remains(&self, ino: Ino) -> Option<Attr> {
        self.remains.as_ref()?.get(ino)
    }

    /// Closes an open file or directory: when this returns nothing of it is open. So if the server
    /// dies after its answer, upon which the kernel may forget the inode, the next one does not
    /// find a file that is open to nobody.
    pub(crate) fn release(&self, file: OpenFile) -> Served<()> {
        let number = file.0;
        if number == NO_HANDLE {
            return Ok(());
        }
        match self.handles.remove(file) {
            Some(handle) => {
                close(handle);
                Ok(())
            }
            // Nobody used it since the earlier server ended.
            None if self.is_inherited(number) => Ok(()),
            None => Err(Errno(libc::EBADF)),
        }
    }
}

/// Closes a file on which every request is answered. The thread that answered one may not have let
/// go of it yet; it is about to.
fn close(mut handle: Arc<Handle>) {
    let late = Instant::now() + LET_GO_MAX;
    while let Err(shared) = Arc::try_unwrap(handle) {
        if Instant::now() > late {
            tracing::warn!(ino = shared.ino().0, "a file is in use after its release");
            return;
        }
        handle = shared;
        std::thread::yield_now();
    }
}

/// For requests on an inode that the kernel found earlier: it is gone, look it up again.
fn stale(error: FsError) -> Errno {
    match error {
        FsError::NotFound => Errno(libc::ESTALE),
        other => other.into(),
    }
}
