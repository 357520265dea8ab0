//! Calls on paths.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs::{RenameMode, Timestamp, XattrMode};
use wire::{Flags, Node, Reply, Request};

use super::{Attached, AttachedDir, AttachedFile, nonsense};
use crate::names::path_of;
use crate::{Metadata, OpenFlags, Result};

fn raw(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn nanoseconds(time: SystemTime) -> i64 {
    Timestamp::from_system_time(time).0
}

impl Attached {
    pub(crate) fn open_file(&self, path: &Path, flags: &OpenFlags) -> Result<AttachedFile> {
        let OpenFlags { read, write, append, truncate, create, create_new, mode } = *flags;
        let flags = Flags { read, write, append, truncate, create, create_new, mode };
        match self.ask(&Request::Open(raw(path), flags))? {
            Reply::Opened(number, attr, _) => Ok(AttachedFile::new(self.clone(), number, attr.ino)),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn read_dir(&self, path: &Path) -> Result<AttachedDir> {
        match self.ask(&Request::OpenDirectory(raw(path)))? {
            Reply::Opened(number, ..) => Ok(AttachedDir::new(self.clone(), number)),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn metadata(&self, path: &Path, follow: bool) -> Result<Metadata> {
        match self.ask(&Request::Attributes(raw(path), follow))? {
            Reply::Attributes(attributes) => Ok(attributes.into()),
            _ => Err(nonsense()),
        }
    }

    pub(crate) fn set_permissions(&self, path: &Path, mode: u16) -> Result<()> {
        self.act(&Request::SetMode(raw(path), mode))
    }

    pub(crate) fn set_owner(
        &self,
        path: &Path,
        follow: bool,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.act(&Request::SetOwner(raw(path), follow, uid, gid))
    }

    pub(crate) fn set_times(
        &self,
        path: &Path,
        follow: bool,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let (accessed, modified) = (accessed.map(nanoseconds), modified.map(nanoseconds));
        self.act(&Request::SetTimes(raw(path), follow, accessed, modified))
    }

    pub(crate) fn xattr(&self, path: &Path, name: &OsStr) -> Result<Option<Vec<u8>>> {
        self.bytes(&Request::Xattr(raw(path), name.as_bytes()))
    }

    pub(crate) fn set_xattr(
        &self,
        path: &Path,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if value.len() > fs::XATTR_BYTES_MAX {
            return Err(crate::names::at(path)(fs::Error::AttributeSize));
        }
        let request = Request::SetXattr(raw(path), name.as_bytes(), mode);
        self.exchange(&request, value, &mut []).map(drop)
    }

    pub(crate) fn remove_xattr(&self, path: &Path, name: &OsStr) -> Result<()> {
        self.act(&Request::RemoveXattr(raw(path), name.as_bytes()))
    }

    pub(crate) fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        let names = self.bytes(&Request::ListXattrs(raw(path)))?.unwrap_or_default();
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
    }

    pub(crate) fn create_dir(&self, path: &Path) -> Result<()> {
        self.act(&Request::Make(raw(path), Node::Directory))
    }

    pub(crate) fn create_dir_with_mode(&self, path: &Path, mode: u16) -> Result<()> {
        self.act(&Request::Make(raw(path), Node::DirectoryWithMode(mode)))
    }

    pub(crate) fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.act(&Request::Make(raw(path), Node::Directories))
    }

    pub(crate) fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        self.act(&Request::Make(raw(path), Node::Symlink(raw(target))))
    }

    pub(crate) fn hard_link(&self, original: &Path, path: &Path) -> Result<()> {
        self.act(&Request::Make(raw(path), Node::Link(raw(original))))
    }

    pub(crate) fn read_link(&self, path: &Path) -> Result<PathBuf> {
        Ok(path_of(self.bytes(&Request::ReadLink(raw(path)))?.unwrap_or_default()))
    }

    pub(crate) fn remove(&self, path: &Path, is_directory: bool) -> Result<()> {
        self.act(&Request::Remove(raw(path), is_directory))
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        self.act(&Request::Rename(raw(from), raw(to), mode))
    }
}
