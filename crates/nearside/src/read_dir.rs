//! The entries of a directory, one after the other.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use fs::{FileKind, FileSystem, Handle, Ino};

use crate::attached::{AttachedDir, owners_alone};
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
    source: Source,
    batch: std::vec::IntoIter<DirEntry>,
    ended: bool,
}

/// Where entries come from.
#[derive(Debug)]
enum Source {
    Here {
        fs: Arc<FileSystem>,
        /// Keeps the directory, should somebody remove it meanwhile.
        handle: Arc<Handle>,
        cookie: u64,
    },
    There(AttachedDir),
}

impl DirEntry {
    pub(crate) fn new(name: OsString, ino: Ino, kind: FileKind) -> DirEntry {
        DirEntry { name, ino, kind }
    }
}

impl ReadDir {
    fn of(source: Source) -> ReadDir {
        ReadDir { source, batch: Vec::new().into_iter(), ended: false }
    }

    pub(crate) fn here(fs: Arc<FileSystem>, handle: Arc<Handle>) -> ReadDir {
        ReadDir::of(Source::Here { fs, handle, cookie: 0 })
    }

    pub(crate) fn there(directory: AttachedDir) -> ReadDir {
        ReadDir::of(Source::There(directory))
    }

    /// Attributes of the directory itself.
    pub fn metadata(&self) -> Result<Metadata> {
        self.own()?;
        match &self.source {
            Source::Here { fs, handle, .. } => Ok(Metadata(fs.getattr(handle.ino())?)),
            Source::There(directory) => directory.metadata(),
        }
    }

    /// The engine's handle of the directory, for doors that do not speak paths.
    ///
    /// # Errors
    /// This process is attached, and has no engine.
    pub fn handle(&self) -> Result<&Arc<Handle>> {
        match &self.source {
            Source::Here { handle, .. } => Ok(handle),
            Source::There(_) => Err(owners_alone()),
        }
    }

    /// Refuses a forked child.
    fn own(&self) -> Result<()> {
        match &self.source {
            Source::Here { fs, .. } => owner::check(fs),
            Source::There(directory) => directory.own(),
        }
    }

    fn refill(&mut self) -> Result<()> {
        let batch = match &mut self.source {
            Source::Here { fs, handle, cookie } => {
                let mut batch = Vec::with_capacity(BATCH_ENTRIES);
                fs.readdir(handle.ino(), *cookie, &mut |entry| {
                    *cookie = entry.cookie;
                    let name = OsString::from_vec(entry.name.clone());
                    batch.push(DirEntry { name, ino: entry.ino, kind: entry.kind });
                    batch.len() < BATCH_ENTRIES
                })?;
                self.ended = batch.len() < BATCH_ENTRIES;
                batch
            }
            Source::There(directory) => {
                let batch = directory.next_entries()?;
                self.ended = batch.is_empty();
                batch
            }
        };
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if let Err(error) = self.own() {
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
