//! Errors of mounting and unmounting; each knows its errno and says what to do.

use std::path::PathBuf;

/// What mounting or unmounting may fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The FUSE device cannot be used.
    #[error("/dev/fuse: {0}; load the kernel module (modprobe fuse), and check the permissions")]
    Device(std::io::Error),
    /// The mount point cannot be used.
    #[error("{}: {source}; give an existing directory that you may enter", dir.display())]
    Directory {
        /// The mount point.
        dir: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel or fusermount3 refused the mount.
    #[error(
        "{}: cannot mount here: {source}; {}",
        dir.display(),
        way_out(&source.to_string())
    )]
    Refused {
        /// The mount point.
        dir: PathBuf,
        /// What was answered.
        source: std::io::Error,
    },
    /// The connection to the kernel ended with an error.
    #[error("the connection to the kernel failed: {0}; unmount, then mount again")]
    Session(std::io::Error),
    /// The state of a connection cannot be kept or used.
    #[error("the state of the connection: {0}")]
    State(#[from] shm::Error),
    /// This server cannot go on where another stopped.
    #[error("cannot take the connection over: {0}; unmount, then mount again")]
    Takeover(&'static str),
    /// The service of another machine cannot be had.
    #[error(transparent)]
    Origin(#[from] client::Error),
    /// Somebody uses the mount.
    #[error(
        "{}: in use; close its files and leave its directories (fuser -vm shows whose they are)",
        .0.display()
    )]
    Busy(PathBuf),
    /// The kernel refused to unmount.
    #[error("{}: cannot unmount: {source}", dir.display())]
    Unmount {
        /// The mount point.
        dir: PathBuf,
        /// What was answered.
        source: std::io::Error,
    },
}

/// What to do when a mount is refused, by what fusermount3 said of it.
fn way_out(said: &str) -> &'static str {
    match said {
        said if said.contains("user_allow_other") => {
            "write that line into /etc/fuse.conf, as root, or mount without --allow-other"
        }
        said if said.contains("failed to open /dev/fuse") => {
            "let users open it (chmod 666 /dev/fuse, as root), or mount as root"
        }
        _ => "mounting takes root, or fusermount3 (package fuse3)",
    }
}

/// Result of mounting and unmounting.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno that belongs to it.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Busy(_) => libc::EBUSY,
            Error::State(error) => error.errno(),
            Error::Origin(error) => error.errno(),
            Error::Takeover(_) => libc::EINVAL,
            Error::Device(source)
            | Error::Session(source)
            | Error::Directory { source, .. }
            | Error::Refused { source, .. }
            | Error::Unmount { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}
