//! The entries of a directory, one after the other.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use fs::{FileKind, FileSystem, Handle, Ino};

use crate::{Error, Metadata, Result, owner};

/// Entries that one call to the engine brings.
const BATCH_ENTRIES: usize = 128;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    name: OsString,
    ino: Ino,
    kind: FileKind,
}

impl DirEntry {
    /// Its name, without the directory's path.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// Its name's bytes.
    pub fn name_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The number of the inode that it names.
    pub fn ino(&self) -> u64 {
        self.ino.0
    }

    /// What that inode is.
    pub fn kind(&self) -> FileKind {
        self.kind
    }
}

/// Iterator over the entries of a directory, without `.` and `..`, in no order that means
/// anything. An entry that is there all the time is given exactly once; one that comes or goes
/// meanwhile may or may not be.
#[derive(Debug)]
pub struct ReadDir {
    fs: Arc<FileSystem>,
    /// Keeps the directory, should somebody remove it meanwhile.
    handle: Arc<Handle>,
    batch: std::vec::IntoIter<DirEntry>,
    cookie: u64,
    ended: bool,
}

impl ReadDir {
    pub(crate) fn new(fs: Arc<FileSystem>, handle: Arc<Handle>) -> ReadDir {
        ReadDir { fs, handle, batch: Vec::new().into_iter(), cookie: 0, ended: false }
    }

    /// Attributes of the directory itself.
    pub fn metadata(&self) -> Result<Metadata> {
        owner::check(&self.fs)?;
        Ok(Metadata(self.fs.getattr(self.handle.ino())?))
    }

    fn refill(&mut self) -> Result<()> {
        let mut batch = Vec::with_capacity(BATCH_ENTRIES);
        let mut cookie = self.cookie;
        self.fs.readdir(self.handle.ino(), self.cookie, &mut |entry| {
            cookie = entry.cookie;
            let name = OsString::from_vec(entry.name.clone());
            batch.push(DirEntry { name, ino: entry.ino, kind: entry.kind });
            batch.len() < BATCH_ENTRIES
        })?;
        self.ended = batch.len() < BATCH_ENTRIES;
        self.cookie = cookie;
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if let Err(error) = owner::check(&self.fs) {
            self.batch = Vec::new().into_iter();
            return (!std::mem::replace(&mut self.ended, true)).then_some(Err(error));
        }
        if let Some(entry) = self.batch.next() {
            return Some(Ok(entry));
        }
        if self.ended {
            return None;
        }
        if let Err(error) = self.refill() {
            // Going on after an error would give the same error for ever.
            self.ended = true;
            return Some(Err::<DirEntry, Error>(error));
        }
        self.batch.next().map(Ok)
    }
}
