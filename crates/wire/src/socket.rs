//! The places of sockets in the file system. A path of a socket has room for 107 bytes only
//! (unix(7)), a directory may have a longer one: then the way leads through a descriptor of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest path of a socket, bytes.
const PATH_BYTES_MAX: usize = 107;

/// A directory, and a way to it that is short enough for sockets in it.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Keeps the way open.
    _dir: Option<File>,
}

impl Place {
    /// The way to `dir`, for sockets whose names have `name_bytes` bytes at most.
    pub fn of(dir: &Path, name_bytes: usize) -> io::Result<Place> {
        if dir.as_os_str().as_bytes().len() + 1 + name_bytes <= PATH_BYTES_MAX {
            return Ok(Place { path: dir.to_path_buf(), _dir: None });
        }
        let dir = File::open(dir)?;
        let path = format!("/proc/self/fd/{}", dir.as_raw_fd()).into();
        Ok(Place { path, _dir: Some(dir) })
    }

    /// The way to a name in it.
    pub fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// The way to the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
