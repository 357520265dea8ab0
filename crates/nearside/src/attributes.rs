//! Attributes and extended attributes by path.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::SystemTime;

use fs::{Error as FsError, Ino, SetAttr, Timestamp, XattrMode};

use crate::names::at;
use crate::pool_door::{Door, Owned};
use crate::walk::{Last, find};
use crate::{Metadata, Pool, Result};

impl Pool {
    /// Attributes of what `path` leads to, symbolic links followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        match &self.door {
            Door::Owned(owned) => owned.metadata(path.as_ref(), Last::Follow),
            Door::Attached(attached) => attached.metadata(path.as_ref(), true),
        }
    }

    /// Attributes of what `path` names, a symbolic link's own if it is one.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        match &self.door {
            Door::Owned(owned) => owned.metadata(path.as_ref(), Last::Keep),
            Door::Attached(attached) => attached.metadata(path.as_ref(), false),
        }
    }

    /// Sets the permission bits (`07777` at most).
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        let path = path.as_ref();
        if mode > 0o7777 {
            return Err(at(path)(FsError::Invalid("permission bits are at most 07777")));
        }
        match &self.door {
            Door::Owned(owned) => {
                let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
                owned.change(path, Last::Follow, &change)
            }
            Door::Attached(attached) => attached.set_permissions(path, mode),
        }
    }

    /// Sets owner and group; `None` leaves one as it is.
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.set_owner_of(path.as_ref(), Last::Follow, uid, gid)
    }

    /// The same of what `path` names, of a symbolic link itself if it is one.
    pub fn set_symlink_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.set_owner_of(path.as_ref(), Last::Keep, uid, gid)
    }

    fn set_owner_of(
        &self,
        path: &Path,
        last: Last,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => {
                owned.change(path, last, &SetAttr { uid, gid, ..SetAttr::default() })
            }
            Door::Attached(attached) => attached.set_owner(path, last == Last::Follow, uid, gid),
        }
    }

    /// Sets the times of the last read and of the last change of content; `None` leaves one as it
    /// is.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        self.set_times_of(path.as_ref(), Last::Follow, accessed, modified)
    }

    /// The same of what `path` names, of a symbolic link itself if it is one.
    pub fn set_symlink_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        self.set_times_of(path.as_ref(), Last::Keep, accessed, modified)
    }

    fn set_times_of(
        &self,
        path: &Path,
        last: Last,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => owned.set_times(path, last, accessed, modified),
            Door::Attached(attached) => {
                attached.set_times(path, last == Last::Follow, accessed, modified)
            }
        }
    }

    /// Value of the extended attribute `name`, if it is there.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        let (path, name) = (path.as_ref(), name.as_ref());
        match &self.door {
            Door::Owned(owned) => owned.xattr(path, name),
            Door::Attached(attached) => attached.xattr(path, name),
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
        let (path, name) = (path.as_ref(), name.as_ref());
        match &self.door {
            Door::Owned(owned) => {
                let ino = owned.inode(path)?;
                owned.checked().setxattr(ino, name.as_bytes(), value, mode).map_err(at(path))
            }
            Door::Attached(attached) => attached.set_xattr(path, name, value, mode),
        }
    }

    /// Removes the extended attribute `name`.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let (path, name) = (path.as_ref(), name.as_ref());
        match &self.door {
            Door::Owned(owned) => {
                let ino = owned.inode(path)?;
                owned.checked().removexattr(ino, name.as_bytes()).map_err(at(path))
            }
            Door::Attached(attached) => attached.remove_xattr(path, name),
        }
    }

    /// Names of all extended attributes.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        match &self.door {
            Door::Owned(owned) => {
                let names = owned.checked().listxattr(owned.inode(path)?).map_err(at(path))?;
                Ok(names.into_iter().map(OsString::from_vec).collect())
            }
            Door::Attached(attached) => attached.list_xattrs(path),
        }
    }
}

impl Owned {
    fn metadata(&self, path: &Path, last: Last) -> Result<Metadata> {
        self.own()?;
        Ok(Metadata(find(self, path, last)?))
    }

    fn set_times(
        &self,
        path: &Path,
        last: Last,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let change = SetAttr {
            accessed: accessed.map(Timestamp::from_system_time),
            modified: modified.map(Timestamp::from_system_time),
            ..SetAttr::default()
        };
        if self.caller.is_some() && accessed.is_none() && modified.is_none() {
            // no right is needed to do nothing
            return self.metadata(path, last).map(drop);
        }
        self.change(path, last, &change)
    }

    fn xattr(&self, path: &Path, name: &OsStr) -> Result<Option<Vec<u8>>> {
        let ino = self.inode(path)?;
        match self.checked().getxattr(ino, name.as_bytes()) {
            Ok(value) => Ok(Some(value)),
            Err(FsError::NoAttribute) => Ok(None),
            Err(error) => Err(at(path)(error)),
        }
    }

    fn inode(&self, path: &Path) -> Result<Ino> {
        self.own()?;
        Ok(find(self, path, Last::Follow)?.ino)
    }

    fn change(&self, path: &Path, last: Last, change: &SetAttr) -> Result<()> {
        let ino = self.metadata(path, last)?.attr().ino;
        self.checked().setattr(ino, change).map_err(at(path))?;
        Ok(())
    }
}
