//! Opening files by path, and whole files read and written at once.

use std::path::Path;
use std::sync::Arc;

use fs::{Attr, Error as FsError, FileKind, Handle};

use crate::names::at;
use crate::pool_door::{Door, Owned};
use crate::walk::{Last, Located, locate};
use crate::{File, OpenFlags, Pool, Result};

/// Walks that one open makes when others add and remove the name at the same moment.
const OPEN_TRIES_MAX: u32 = 64;

impl Pool {
    /// Opens the file at `path`, and makes it first if `flags` say so.
    pub fn open_file(&self, path: impl AsRef<Path>, flags: &OpenFlags) -> Result<File> {
        let path = path.as_ref();
        flags.validate().map_err(at(path))?;
        match &self.door {
            Door::Owned(owned) => owned.open_file(path, flags),
            Door::Attached(attached) => Ok(File::there(attached.open_file(path, flags)?, *flags)),
        }
    }

    /// A file over the engine's handle of it, opened so: nothing is looked at, made or emptied. For
    /// doors that know that it was open before.
    ///
    /// # Errors
    /// It is no regular file; this process is attached, and has no engine.
    pub fn open_handle(&self, handle: Arc<Handle>, flags: &OpenFlags) -> Result<File> {
        let owned = self.here()?;
        owned.own()?;
        match owned.fs.getattr(handle.ino())?.kind {
            FileKind::File => Ok(File::here(owned, handle, *flags)),
            FileKind::Directory => Err(FsError::IsDirectory.into()),
            _ => Err(FsError::Unsupported("only regular files can be opened").into()),
        }
    }

    /// Makes the file at `path`, or empties it; opens it for reading and writing.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_file(path, &OpenFlags::new().read(true).write(true).create(true).truncate(true))
    }

    /// All bytes of the file at `path`.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let file = self.open_file(path, &OpenFlags::new().read(true))?;
        let size = usize::try_from(file.len()?).map_err(|_| at(path)(FsError::TooBig))?;
        let mut content = vec![0; size];
        // It may shrink meanwhile; what is there then is what this returns.
        let bytes = file.read_at(&mut content, 0)?;
        content.truncate(bytes);
        Ok(content)
    }

    /// Makes the file at `path`, or replaces its content. A crash in between may leave it empty or
    /// short: write another name and [`rename`](Pool::rename) it to replace a file in one step.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let flags = OpenFlags::new().write(true).create(true).truncate(true);
        self.open_file(path, &flags)?.write_all_at(content.as_ref(), 0)
    }
}

impl Owned {
    fn open_file(&self, path: &Path, flags: &OpenFlags) -> Result<File> {
        self.own()?;
        let last = if flags.create_new { Last::Keep } else { Last::Follow };
        for _ in 0..OPEN_TRIES_MAX {
            let found = locate(self, path, last)?;
            match self.open_found(&found, flags) {
                Ok(handle) => return Ok(File::here(self, handle, *flags)),
                // The name came or went after the walk: look again.
                Err(FsError::Exists) if found.attr.is_none() && !flags.create_new => {}
                Err(FsError::NotFound) if found.attr.is_some() || flags.create => {}
                Err(error) => return Err(at(path)(error)),
            }
        }
        Err(at(path)(FsError::NotFound))
    }

    fn open_found(
        &self,
        found: &Located,
        flags: &OpenFlags,
    ) -> std::result::Result<Arc<Handle>, FsError> {
        match &found.attr {
            Some(_) if flags.create_new => Err(FsError::Exists),
            Some(attr) => self.open_existing(attr, flags),
            None if flags.create || flags.create_new => {
                let by = self.creation(flags.mode);
                let parent = (found.parent, &found.name[..]);
                self.checked().create_open(parent.0, parent.1, by).map(|(_, handle)| handle)
            }
            None => Err(FsError::NotFound),
        }
    }

    fn open_existing(
        &self,
        attr: &Attr,
        flags: &OpenFlags,
    ) -> std::result::Result<Arc<Handle>, FsError> {
        match attr.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Unsupported("only regular files can be opened")),
        }
        let handle = self.checked().open(attr.ino, flags.access())?;
        if flags.truncate {
            self.checked().resize(&handle, 0)?;
        }
        Ok(handle)
    }
}
