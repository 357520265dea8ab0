//! One side of a copy: a pool, or the machine's own files, with the same calls for both.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown,
};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nearside::FileKind;
use nearside::files::Timestamp;
use rustix::fs::{AtFlags, Timespec, Timestamps};

use crate::content::Content;
use crate::inside::{self, Inside, Opening};
use crate::xattrs;

const NANOS_OF_SECOND: i64 = 1_000_000_000;

/// One side of a copy.
#[derive(Clone, Copy)]
pub enum Side<'a> {
    /// The machine's own files.
    Outside,
    /// A pool's.
    Inside(&'a Inside),
}

/// What a copy has to know of a file.
#[derive(Clone, Copy)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Its number, unique on its device.
    pub ino: u64,
    /// Its device; none in a pool that this process opened.
    pub device: Option<u64>,
    /// Number of names.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u16,
    /// Time of the last read.
    pub accessed: SystemTime,
    /// Time of the last change of content.
    pub modified: SystemTime,
}

impl Side<'_> {
    /// What `path` is, if it is there; a symbolic link at its end is followed if `follow`.
    pub fn stat(self, path: &Path, follow: bool) -> io::Result<Option<Stat>> {
        let found = match self {
            Side::Outside if follow => fs::metadata(path).map(outside_stat),
            Side::Outside => fs::symlink_metadata(path).map(outside_stat),
            Side::Inside(pool) if follow => stat_inside(pool, pool.metadata(path)),
            Side::Inside(pool) => stat_inside(pool, pool.symlink_metadata(path)),
        };
        match found {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// The names in a directory.
    pub fn names(self, path: &Path) -> io::Result<Vec<OsString>> {
        match self {
            Side::Outside => {
                fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
            }
            Side::Inside(pool) => {
                let entries = pool.entries(path)?;
                Ok(entries.into_iter().map(|entry| OsString::from_vec(entry.name)).collect())
            }
        }
    }

    /// Makes a directory with these permission bits, less the umask outside a pool.
    pub fn make_dir(self, path: &Path, mode: u16) -> io::Result<()> {
        match self {
            Side::Outside => fs::DirBuilder::new().mode(mode.into()).create(path),
            Side::Inside(pool) => {
                pool.create_dir(path)?;
                self.set_mode(path, mode)
            }
        }
    }

    /// What a symbolic link says.
    pub fn read_link(self, path: &Path) -> io::Result<PathBuf> {
        match self {
            Side::Outside => fs::read_link(path),
            Side::Inside(pool) => Ok(pool.read_link(path)?),
        }
    }

    /// Makes a symbolic link.
    pub fn make_link(self, target: &Path, path: &Path) -> io::Result<()> {
        match self {
            Side::Outside => std::os::unix::fs::symlink(target, path),
            Side::Inside(pool) => Ok(pool.symlink(target, path)?),
        }
    }

    /// Opens a file.
    pub fn open(self, path: &Path, how: Opening) -> io::Result<Content> {
        if let Side::Inside(pool) = self {
            return Ok(pool.open(path, how)?);
        }
        let mut options = fs::OpenOptions::new();
        match how {
            Opening::Read => options.read(true),
            Opening::New(mode) => options.write(true).create_new(true).mode(mode.into()),
            Opening::Emptied => options.write(true).truncate(true),
        };
        options.open(path).map(Content::Outside)
    }

    /// Renames in one step.
    pub fn rename(self, from: &Path, to: &Path) -> io::Result<()> {
        match self {
            Side::Outside => fs::rename(from, to),
            Side::Inside(pool) => Ok(pool.rename(from, to)?),
        }
    }

    /// Removes a file.
    pub fn remove_file(self, path: &Path) -> io::Result<()> {
        match self {
            Side::Outside => fs::remove_file(path),
            Side::Inside(pool) => Ok(pool.remove_file(path)?),
        }
    }

    /// Sets the permission bits.
    pub fn set_mode(self, path: &Path, mode: u16) -> io::Result<()> {
        match self {
            Side::Outside => fs::set_permissions(path, fs::Permissions::from_mode(mode.into())),
            Side::Inside(pool) => Ok(pool.set_permissions(path, mode)?),
        }
    }

    /// Sets the times of the last read and of the last change of content; those of a symbolic
    /// link itself unless `follow`.
    pub fn set_times(self, path: &Path, stat: &Stat, follow: bool) -> io::Result<()> {
        let times = [stat.accessed, stat.modified];
        match self {
            Side::Outside => {
                let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let [last_access, last_modification] = times.map(timespec);
                let times = Timestamps { last_access, last_modification };
                Ok(rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags)?)
            }
            Side::Inside(pool) => Ok(pool.set_times(path, times, follow)?),
        }
    }

    /// Sets owner and group; those of a symbolic link itself unless `follow`.
    pub fn set_owner(self, path: &Path, stat: &Stat, follow: bool) -> io::Result<()> {
        match self {
            Side::Outside if follow => chown(path, Some(stat.uid), Some(stat.gid)),
            Side::Outside => lchown(path, Some(stat.uid), Some(stat.gid)),
            Side::Inside(pool) => Ok(pool.set_owner(path, stat.uid, stat.gid, follow)?),
        }
    }

    /// Gives a file one more name.
    pub fn hard_link(self, original: &Path, path: &Path) -> io::Result<()> {
        match self {
            Side::Outside => fs::hard_link(original, path),
            Side::Inside(pool) => Ok(pool.hard_link(original, path)?),
        }
    }

    /// The names of the extended attributes.
    pub fn list_xattrs(self, path: &Path) -> io::Result<Vec<OsString>> {
        match self {
            Side::Outside => xattrs::list(path),
            Side::Inside(pool) => Ok(pool.list_xattrs(path)?),
        }
    }

    /// An extended attribute, if it is there.
    pub fn xattr(self, path: &Path, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        match self {
            Side::Outside => xattrs::get(path, name),
            Side::Inside(pool) => Ok(pool.xattr(path, name)?),
        }
    }

    /// Sets an extended attribute.
    pub fn set_xattr(self, path: &Path, name: &OsStr, value: &[u8]) -> io::Result<()> {
        match self {
            Side::Outside => xattrs::set(path, name, value),
            Side::Inside(pool) => Ok(pool.set_xattr(path, name, value)?),
        }
    }
}

fn timespec(time: SystemTime) -> Timespec {
    let nanos = Timestamp::from_system_time(time).0;
    Timespec {
        tv_sec: nanos.div_euclid(NANOS_OF_SECOND),
        tv_nsec: nanos.rem_euclid(NANOS_OF_SECOND),
    }
}

fn stat_inside(pool: &Inside, found: inside::Result<nearside::Metadata>) -> io::Result<Stat> {
    let meta = found?;
    Ok(Stat {
        kind: meta.kind(),
        ino: meta.ino(),
        device: pool.device(),
        links: meta.links().into(),
        uid: meta.attr().uid,
        gid: meta.attr().gid,
        mode: meta.mode(),
        accessed: meta.accessed(),
        modified: meta.modified(),
    })
}

/// What one of the machine's own files is.
pub fn kind_of(meta: &fs::Metadata) -> FileKind {
    let kind = meta.file_type();
    match kind {
        _ if kind.is_file() => FileKind::File,
        _ if kind.is_dir() => FileKind::Directory,
        _ if kind.is_symlink() => FileKind::Symlink,
        _ if kind.is_fifo() => FileKind::Fifo,
        _ if kind.is_socket() => FileKind::Socket,
        _ if kind.is_block_device() => FileKind::BlockDevice,
        _ => FileKind::CharDevice,
    }
}

fn outside_stat(meta: fs::Metadata) -> Stat {
    Stat {
        kind: kind_of(&meta),
        ino: meta.ino(),
        device: Some(meta.dev()),
        links: meta.nlink(),
        uid: meta.uid(),
        gid: meta.gid(),
        mode: (meta.mode() & 0o7777) as u16,
        accessed: meta.accessed().unwrap_or(SystemTime::UNIX_EPOCH),
        modified: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
    }
}

/// Whether `path` ends in a slash, and so can only be a directory.
pub fn means_directory(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}
