//! Why memory could not be mapped, read or synced.

use crate::lock::Holder;
use std::path::{Path, PathBuf};

/// Result of a call on memory.
pub type Result<T> = std::result::Result<T, Error>;

/// Why memory could not be mapped, read or synced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel said no.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// It may not be written.
    #[error(
        "{path} cannot be opened for writing: {source}; open it read-only, or make it writable"
    )]
    NotWritable {
        /// The file or device.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Somebody else has it open.
    #[error("{path} is in use by {}; close it there first", Holder::or_unknown(.holder))]
    Busy {
        /// The file or device.
        path: PathBuf,
        /// Who holds it, where the kernel says.
        holder: Option<Holder>,
    },
    /// A file without bytes.
    #[error("{path} is empty; give it a size first, for example with fallocate(1)")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A file with holes: a store there could find the file system full, and end the process.
    #[error(
        "{path} has holes: {allocated_bytes} of {size_bytes} bytes are allocated; \
         fill it with fallocate(1), on a file system that does not compress"
    )]
    Sparse {
        /// The file.
        path: PathBuf,
        /// Bytes that the file system has set aside.
        allocated_bytes: u64,
        /// The file's length.
        size_bytes: u64,
    },
    /// Neither a regular file nor a device-dax device.
    #[error("{path} is {kind}; only a regular file or a device-dax device can be mapped")]
    NotMappable {
        /// What was given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The memory keeps nothing over a power cut, as far as the system says.
    #[error(
        "{path} is not known to be persistent: {reason}; \
         ask for the `process` domain to use it all the same"
    )]
    Volatile {
        /// The file or device.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The machine cannot make stores durable in this domain.
    #[error("{path}: this CPU has no supported way to flush its caches; ask for `process`")]
    NoFlush {
        /// The file or device.
        path: PathBuf,
    },
    /// The range does not lie inside the mapping.
    #[error("{len} bytes at {offset} do not lie inside the {size} bytes mapped")]
    OutOfRange {
        /// Where it begins.
        offset: u64,
        /// Its bytes.
        len: usize,
        /// Bytes mapped.
        size: u64,
    },
    /// The memory cannot be read there: it has an uncorrectable error, or the file has been cut
    /// short.
    #[error("{len} bytes at {offset} cannot be read: the memory fails there")]
    Media {
        /// Where.
        offset: u64,
        /// How many.
        len: usize,
    },
    /// An earlier sync failed, so that nothing is known of what reached the medium.
    ///
    /// After a failed fsync Linux marks the pages clean, and the next fsync succeeds without
    /// having written them (Rebello et al., "Can Applications Recover from fsync Failures?",
    /// ATC'20). So a failure is final: close, and recover from what is on the medium.
    #[error("an earlier sync failed; close the pool and open it again to recover")]
    Poisoned,
    /// A setting in the environment cannot be followed.
    #[error("{variable}={value}: {reason}")]
    Setting {
        /// The environment variable.
        variable: &'static str,
        /// What it says.
        value: String,
        /// What is wrong with that.
        reason: String,
    },
}

impl Error {
    /// The errno that a POSIX caller sees.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io { source, .. } | Error::NotWritable { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Error::Busy { .. } => libc::EBUSY,
            Error::Empty { .. } | Error::Sparse { .. } | Error::Setting { .. } => libc::EINVAL,
            Error::NotMappable { .. } => libc::ENODEV,
            Error::Volatile { .. } | Error::NoFlush { .. } => libc::EOPNOTSUPP,
            Error::OutOfRange { .. } | Error::Media { .. } | Error::Poisoned => libc::EIO,
        }
    }

    /// `Io` from the thread's errno, just after a call that failed on `path`.
    pub(crate) fn last_os(action: &str, path: &Path) -> Error {
        Error::io(action, path, std::io::Error::last_os_error())
    }

    /// `Io` about `path`.
    pub(crate) fn io(action: &str, path: &Path, source: std::io::Error) -> Error {
        Error::Io { what: format!("{action} {}", path.display()), source }
    }
}
