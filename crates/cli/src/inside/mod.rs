//! The files of a pool, wherever the pool is: opened by this process, with a service to which this
//! process attaches, or mounted.
//!
//! All ways give the same answers to the same questions. A pool that this process opens checks no
//! permission bits, for whoever can open it can read its bytes. A mounted one is used through its
//! mount, so that no second engine works on the pool, and the kernel checks what the caller may; a
//! service checks that, too.

mod failure;
mod mounted;
mod opened;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nearside::files::{
    Decided, FileExtent, FileExtras, Heat, NearSlice, Placing, SetAttr, Timestamp,
};
use nearside::{FileKind, Metadata, Pool, XattrMode};

pub use failure::Failure;
pub use mounted::Mounted;

use crate::content::Content;
use crate::placed::Setting;
use opened::Opened as _;

/// Result of a question about a pool's files.
pub type Result<T> = std::result::Result<T, Failure>;

/// The files of a pool.
pub enum Inside {
    /// Opened by this process, or attached to.
    Opened(Pool),
    /// Mounted by a server.
    Mounted(Mounted),
}

/// One entry of a directory.
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it names.
    pub kind: FileKind,
}

/// How to open a file.
#[derive(Clone, Copy)]
pub enum Opening {
    /// To read.
    Read,
    /// To write; the name must be new. Permission bits.
    New(u16),
    /// To write; the file is there and is emptied.
    Emptied,
}

/// Does the same of both ways.
macro_rules! either {
    ($inside:expr, $way:ident => $call:expr) => {
        match $inside {
            Inside::Opened($way) => $call.map_err(Failure::from),
            Inside::Mounted($way) => $call,
        }
    };
}

impl Inside {
    /// What `path` leads to, symbolic links followed.
    pub fn metadata(&self, path: &Path) -> Result<Metadata> {
        either!(self, way => way.metadata(path))
    }

    /// What `path` names, a symbolic link itself if it is one.
    pub fn symlink_metadata(&self, path: &Path) -> Result<Metadata> {
        either!(self, way => way.symlink_metadata(path))
    }

    /// What a symbolic link says.
    pub fn read_link(&self, path: &Path) -> Result<PathBuf> {
        either!(self, way => way.read_link(path))
    }

    /// The entries of a directory, in no order.
    pub fn entries(&self, path: &Path) -> Result<Vec<Entry>> {
        either!(self, way => way.entries(path))
    }

    /// Opens a file.
    pub fn open(&self, path: &Path, how: Opening) -> Result<Content> {
        either!(self, way => way.open_content(path, how))
    }

    /// Makes a directory of mode 0755.
    pub fn create_dir(&self, path: &Path) -> Result<()> {
        either!(self, way => way.create_dir(path))
    }

    /// Makes a directory and those above it, where they are missing.
    pub fn create_dir_all(&self, path: &Path) -> Result<()> {
        either!(self, way => way.create_dir_all(path))
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        either!(self, way => way.symlink(target, path))
    }

    /// Renames in one step, replacing what `to` names.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        either!(self, way => way.rename(from, to))
    }

    /// Removes the name of what is no directory.
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        either!(self, way => way.remove_file(path))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &Path) -> Result<()> {
        either!(self, way => way.remove_dir(path))
    }

    /// The device that its files lie on for the kernel, if it is mounted.
    pub fn device(&self) -> Option<u64> {
        match self {
            Inside::Opened(_) => None,
            Inside::Mounted(way) => Some(way.device()),
        }
    }

    /// When a file was made; nothing where that cannot be found out.
    pub fn created(&self, meta: &Metadata) -> Option<Timestamp> {
        match self {
            Inside::Opened(_) => Some(meta.attr().created),
            Inside::Mounted(way) => way.created(meta.ino()),
        }
    }

    /// Sets the times of the last read and of the last change of content, of a symbolic link's
    /// target if `follow`.
    pub fn set_times(&self, path: &Path, times: [SystemTime; 2], follow: bool) -> Result<()> {
        let [accessed, modified] = times;
        match self {
            Inside::Opened(pool) => {
                let (accessed, modified) = (Some(accessed), Some(modified));
                Ok(match follow {
                    true => pool.set_times(path, accessed, modified),
                    false => pool.set_symlink_times(path, accessed, modified),
                }?)
            }
            Inside::Mounted(way) => {
                let change = SetAttr {
                    accessed: Some(Timestamp::from_system_time(accessed)),
                    modified: Some(Timestamp::from_system_time(modified)),
                    ..SetAttr::default()
                };
                way.change(path, &change, follow)
            }
        }
    }

    /// Sets owner and group, of a symbolic link's target if `follow`.
    pub fn set_owner(&self, path: &Path, uid: u32, gid: u32, follow: bool) -> Result<()> {
        let (uid, gid) = (Some(uid), Some(gid));
        match self {
            Inside::Opened(pool) => Ok(match follow {
                true => pool.set_owner(path, uid, gid),
                false => pool.set_symlink_owner(path, uid, gid),
            }?),
            Inside::Mounted(way) => {
                way.change(path, &SetAttr { uid, gid, ..SetAttr::default() }, follow)
            }
        }
    }

    /// Gives a file one more name.
    pub fn hard_link(&self, original: &Path, path: &Path) -> Result<()> {
        either!(self, way => way.hard_link(original, path))
    }

    /// The names of the extended attributes.
    pub fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        either!(self, way => way.list_xattrs(path))
    }

    /// An extended attribute, if it is there.
    pub fn xattr(&self, path: &Path, name: &OsStr) -> Result<Option<Vec<u8>>> {
        either!(self, way => way.xattr(path, name))
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8]) -> Result<()> {
        either!(self, way => way.set_xattr(path, name, value, XattrMode::Any))
    }

    /// Where new blocks of a file go, and of what is made in a directory; and what may move.
    pub fn placing(&self, path: &Path) -> Result<Placing> {
        either!(self, way => way.placing(path))
    }

    /// Sets something of that.
    pub fn set_placed(&self, path: &Path, settings: &[Setting]) -> Result<()> {
        either!(self, way => way.set_placed(path, settings))
    }

    /// Some extents of a file from `offset` on, and where to go on.
    pub fn extents(&self, path: &Path, offset: u64) -> Result<(Vec<FileExtent>, Option<u64>)> {
        either!(self, way => way.extents(path, offset))
    }

    /// What a file has beside them from `offset` on, and where to go on.
    pub fn extras(&self, path: &Path, offset: u64) -> Result<(FileExtras, Option<u64>)> {
        either!(self, way => way.extras(path, offset))
    }

    /// Who would gain by having parts of a file near, from `offset` on, and where to go on.
    pub fn heat(&self, path: &Path, offset: u64) -> Result<(Vec<Heat>, Option<u64>)> {
        either!(self, way => way.heat(path, offset))
    }

    /// What was decided about a file lately.
    pub fn decisions(&self, path: &Path) -> Result<Vec<Decided>> {
        either!(self, way => way.decisions(path))
    }

    /// The pool's slices, and who is near them.
    pub fn near_slices(&self) -> Result<Vec<NearSlice>> {
        either!(self, way => way.near_slices())
    }

    /// Sets the permission bits.
    pub fn set_permissions(&self, path: &Path, mode: u16) -> Result<()> {
        either!(self, way => way.set_permissions(path, mode))
    }
}

impl From<Failure> for io::Error {
    /// The error without its path, which the caller names.
    fn from(failure: Failure) -> io::Error {
        let kind = io::Error::from_raw_os_error(failure.errno).kind();
        io::Error::new(kind, failure.what)
    }
}
