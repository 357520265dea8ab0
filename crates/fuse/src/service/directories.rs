//! Requests about the entries of directories.
//!
//! The kernel asks for what comes after an offset; 0 is the start. Offsets 1 and 2 come after `.`
//! and `..`, which the engine does not give; after them its own cookies follow, moved up by 2.

use nearside::FileKind;
use nearside::files::{Error as FsError, Ino};

use super::{NO_HANDLE, Served, Service, stale};

const AFTER_DOT: u64 = 1;
const AFTER_DOT_DOT: u64 = 2;

/// One entry on its way to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    /// Where to go on after it.
    pub(crate) offset: u64,
}

impl Listed {
    /// Whether it is `.` or `..`.
    pub(crate) fn is_dots(&self) -> bool {
        self.offset <= AFTER_DOT_DOT
    }
}

impl Service {
    /// Opens a directory, which keeps it while it is listed. One that is gone is empty, for those
    /// who still stand in it.
    pub(crate) fn opendir(&self, ino: Ino, flags: i32) -> Served<u64> {
        let may = self.permit_open(ino, libc::O_RDONLY | flags & libc::O_NOATIME)?;
        match self.fs.open(ino) {
            Ok(handle) => self.keep(handle, may, libc::O_RDONLY),
            Err(FsError::NotFound) if self.remains(ino).is_some() => Ok(NO_HANDLE),
            Err(error) => Err(stale(error)),
        }
    }

    /// At most `entries_max` entries after `offset`; none means the end.
    pub(crate) fn list(&self, ino: Ino, offset: u64, entries_max: usize) -> Served<Vec<Listed>> {
        let mut list = Vec::with_capacity(entries_max);
        if offset < AFTER_DOT {
            list.push(dots(b".", ino, AFTER_DOT));
        }
        if offset < AFTER_DOT_DOT {
            // A directory that was removed while open has no parent any more.
            let parent = self.fs.parent(ino).unwrap_or(ino);
            list.push(dots(b"..", parent, AFTER_DOT_DOT));
        }
        let cookie = offset.saturating_sub(AFTER_DOT_DOT);
        let done = self.fs.readdir(ino, cookie, &mut |entry| {
            list.push(Listed {
                name: entry.name.clone(),
                ino: entry.ino,
                kind: entry.kind,
                offset: entry.cookie + AFTER_DOT_DOT,
            });
            list.len() < entries_max
        });
        match done {
            Ok(()) | Err(FsError::NotFound) => Ok(list),
            Err(error) => Err(error.into()),
        }
    }
}

fn dots(name: &[u8], ino: Ino, offset: u64) -> Listed {
    Listed { name: name.to_vec(), ino, kind: FileKind::Directory, offset }
}
