//! Attributes and extended attributes by path.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::SystemTime;

use fs::{Error as FsError, Ino, SetAttr, Timestamp, XattrMode};

use crate::names::at;
use crate::walk::{Last, find};
use crate::{Metadata, Pool, Result};

impl Pool {
    /// Attributes of what `path` leads to, symbolic links followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.own()?;
        Ok(Metadata(find(&self.fs, path.as_ref(), Last::Follow)?))
    }

    /// Attributes of what `path` names, a symbolic link's own if it is one.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.own()?;
        Ok(Metadata(find(&self.fs, path.as_ref(), Last::Keep)?))
    }

    /// Sets the permission bits (`07777` at most).
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        let path = path.as_ref();
        if mode > 0o7777 {
            return Err(at(path)(FsError::Invalid("permission bits are at most 07777")));
        }
        self.change(path, &SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    /// Sets owner and group; `None` leaves one as it is.
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.change(path.as_ref(), &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets the times of the last read and of the last change of content; `None` leaves one as it
    /// is.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let change = SetAttr {
            accessed: accessed.map(Timestamp::from_system_time),
            modified: modified.map(Timestamp::from_system_time),
            ..SetAttr::default()
        };
        self.change(path.as_ref(), &change)
    }

    /// Value of the extended attribute `name`, if it is there.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        let ino = self.inode(path)?;
        match self.fs.getxattr(ino, name.as_ref().as_bytes()) {
            Ok(value) => Ok(Some(value)),
            Err(FsError::NoAttribute) => Ok(None),
            Err(error) => Err(at(path)(error)),
        }
    }

    /// Sets the extended attribute `name`.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let path = path.as_ref();
        let ino = self.inode(path)?;
        self.fs.setxattr(ino, name.as_ref().as_bytes(), value, mode).map_err(at(path))
    }

    /// Removes the extended attribute `name`.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let path = path.as_ref();
        let ino = self.inode(path)?;
        self.fs.removexattr(ino, name.as_ref().as_bytes()).map_err(at(path))
    }

    /// Names of all extended attributes.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        let names = self.fs.listxattr(self.inode(path)?).map_err(at(path))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    fn inode(&self, path: &Path) -> Result<Ino> {
        self.own()?;
        Ok(find(&self.fs, path, Last::Follow)?.ino)
    }

    fn change(&self, path: &Path, change: &SetAttr) -> Result<()> {
        let ino = self.inode(path)?;
        self.fs.setattr(ino, change).map_err(at(path))?;
        Ok(())
    }
}
