//! One side of a copy: a pool, or the machine's own files, with the same calls for both.

use std::ffi::OsString;
use std::fs::{self, FileTimes};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nearside::{FileKind, OpenFlags, Pool};
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// One side of a copy.
#[derive(Clone, Copy)]
pub enum Side<'a> {
    /// The machine's own files.
    Outside,
    /// An open pool.
    Inside(&'a Pool),
}

/// What a copy has to know of a file.
#[derive(Clone, Copy)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Its number, unique on its side but for mounts.
    pub ino: u64,
    /// Permission bits.
    pub mode: u16,
    /// Time of the last read.
    pub accessed: SystemTime,
    /// Time of the last change of content.
    pub modified: SystemTime,
}

/// How to open a file to write to.
#[derive(Clone, Copy)]
pub enum Creating {
    /// The name must be new; permission bits.
    New(u16),
    /// The file is there and is emptied.
    Emptied,
}

/// An open file.
pub enum Content {
    /// One of the machine's own.
    Outside(fs::File),
    /// One of a pool.
    Inside(nearside::File),
}

/// An error of the library without the path, which the caller names.
fn io(error: nearside::Error) -> io::Error {
    match error {
        nearside::Error::Path { source, .. } => nearside::Error::Files(source).into(),
        error => error.into(),
    }
}

impl Side<'_> {
    /// What `path` is, if it is there; a symbolic link at its end is followed if `follow`.
    pub fn stat(self, path: &Path, follow: bool) -> io::Result<Option<Stat>> {
        let found = match self {
            Side::Outside if follow => fs::metadata(path).map(outside_stat),
            Side::Outside => fs::symlink_metadata(path).map(outside_stat),
            Side::Inside(pool) if follow => pool.metadata(path).map(inside_stat).map_err(io),
            Side::Inside(pool) => pool.symlink_metadata(path).map(inside_stat).map_err(io),
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
                let entries = pool.read_dir(path).map_err(io)?;
                entries
                    .map(|entry| entry.map(|entry| entry.file_name().to_owned()).map_err(io))
                    .collect()
            }
        }
    }

    /// Makes a directory with these permission bits, less the umask outside a pool.
    pub fn make_dir(self, path: &Path, mode: u16) -> io::Result<()> {
        match self {
            Side::Outside => fs::DirBuilder::new().mode(mode.into()).create(path),
            Side::Inside(pool) => {
                pool.create_dir(path).map_err(io)?;
                self.set_mode(path, mode)
            }
        }
    }

    /// What a symbolic link says.
    pub fn read_link(self, path: &Path) -> io::Result<PathBuf> {
        match self {
            Side::Outside => fs::read_link(path),
            Side::Inside(pool) => pool.read_link(path).map_err(io),
        }
    }

    /// Makes a symbolic link.
    pub fn make_link(self, target: &Path, path: &Path) -> io::Result<()> {
        match self {
            Side::Outside => std::os::unix::fs::symlink(target, path),
            Side::Inside(pool) => pool.symlink(target, path).map_err(io),
        }
    }

    /// Opens a file to read.
    pub fn open(self, path: &Path) -> io::Result<Content> {
        match self {
            Side::Outside => fs::File::open(path).map(Content::Outside),
            Side::Inside(pool) => {
                pool.open_file(path, &OpenFlags::new().read(true)).map(Content::Inside).map_err(io)
            }
        }
    }

    /// Opens a file to write.
    pub fn create(self, path: &Path, how: Creating) -> io::Result<Content> {
        match self {
            Side::Outside => {
                let mut options = fs::OpenOptions::new();
                options.write(true);
                match how {
                    Creating::New(mode) => options.create_new(true).mode(mode.into()),
                    Creating::Emptied => options.truncate(true),
                };
                options.open(path).map(Content::Outside)
            }
            Side::Inside(pool) => {
                let flags = match how {
                    Creating::New(mode) => OpenFlags::new().create_new(true).mode(mode),
                    Creating::Emptied => OpenFlags::new().truncate(true),
                };
                pool.open_file(path, &flags.write(true)).map(Content::Inside).map_err(io)
            }
        }
    }

    /// Renames in one step.
    pub fn rename(self, from: &Path, to: &Path) -> io::Result<()> {
        match self {
            Side::Outside => fs::rename(from, to),
            Side::Inside(pool) => pool.rename(from, to).map_err(io),
        }
    }

    /// Removes a file.
    pub fn remove_file(self, path: &Path) -> io::Result<()> {
        match self {
            Side::Outside => fs::remove_file(path),
            Side::Inside(pool) => pool.remove_file(path).map_err(io),
        }
    }

    /// Sets the permission bits.
    pub fn set_mode(self, path: &Path, mode: u16) -> io::Result<()> {
        match self {
            Side::Outside => fs::set_permissions(path, fs::Permissions::from_mode(mode.into())),
            Side::Inside(pool) => pool.set_permissions(path, mode).map_err(io),
        }
    }

    /// Sets the times of the last read and of the last change of content.
    pub fn set_times(self, path: &Path, stat: &Stat) -> io::Result<()> {
        match self {
            Side::Outside => {
                let times =
                    FileTimes::new().set_accessed(stat.accessed).set_modified(stat.modified);
                fs::File::open(path)?.set_times(times)
            }
            Side::Inside(pool) => {
                pool.set_times(path, Some(stat.accessed), Some(stat.modified)).map_err(io)
            }
        }
    }
}

fn inside_stat(meta: nearside::Metadata) -> Stat {
    Stat {
        kind: meta.kind(),
        ino: meta.ino(),
        mode: meta.mode(),
        accessed: meta.accessed(),
        modified: meta.modified(),
    }
}

fn outside_stat(meta: fs::Metadata) -> Stat {
    let kind = meta.file_type();
    let kind = match kind {
        _ if kind.is_file() => FileKind::File,
        _ if kind.is_dir() => FileKind::Directory,
        _ if kind.is_symlink() => FileKind::Symlink,
        _ if kind.is_fifo() => FileKind::Fifo,
        _ if kind.is_socket() => FileKind::Socket,
        _ if kind.is_block_device() => FileKind::BlockDevice,
        _ => FileKind::CharDevice,
    };
    Stat {
        kind,
        ino: meta.ino(),
        mode: (meta.mode() & 0o7777) as u16,
        accessed: meta.accessed().unwrap_or(SystemTime::UNIX_EPOCH),
        modified: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
    }
}

impl Content {
    /// Reads what comes next, which is at `offset`: a pipe outside knows no offsets.
    pub fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Content::Outside(file) => file.read(buffer),
            Content::Inside(file) => file.read_at(buffer, offset).map_err(io),
        }
    }

    /// Writes what comes next, which is at `offset`.
    pub fn write(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Content::Outside(file) => file.write_all(data),
            Content::Inside(file) => file.write_all_at(data, offset).map_err(io),
        }
    }

    /// Goes to `offset` for the next read or write.
    pub fn go_to(&mut self, offset: u64) -> io::Result<()> {
        match self {
            Content::Outside(file) => file.seek(SeekFrom::Start(offset)).map(drop),
            Content::Inside(_) => Ok(()),
        }
    }

    /// The first data at or after `offset`: where it begins, and where the hole behind it does.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let found = match self {
            Content::Outside(file) => {
                let seek = |offset: u64, whence| {
                    let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
                    lseek(file, offset, whence).map(i64::unsigned_abs).map_err(io::Error::from)
                };
                seek(offset, Whence::SeekData)
                    .and_then(|start| Ok((start, seek(start, Whence::SeekHole)?)))
            }
            Content::Inside(file) => file
                .seek_data(offset)
                .and_then(|start| Ok((start, file.seek_hole(start)?)))
                .map_err(|error| io::Error::from_raw_os_error(error.errno())),
        };
        match found {
            Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Size in bytes.
    pub fn len(&self) -> io::Result<u64> {
        match self {
            Content::Outside(file) => file.metadata().map(|meta| meta.len()),
            Content::Inside(file) => file.len().map_err(io),
        }
    }

    /// Cuts it to `bytes`, or extends it with a hole.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self {
            Content::Outside(file) => file.set_len(bytes),
            Content::Inside(file) => file.set_len(bytes).map_err(io),
        }
    }
}

/// Whether `path` ends in a slash, and so can only be a directory.
pub fn means_directory(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}
