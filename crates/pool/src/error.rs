//! Errors of the pool; each knows its errno and says what to do.

use crate::addr::BlockAddr;
use crate::superblock::BLOCK_BYTES;
use std::path::PathBuf;

/// What opening, formatting or writing a pool may fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool's directory or a slice could not be used.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The memory below said no.
    #[error(transparent)]
    Memory(#[from] pmem::Error),
    /// The directory holds no slice.
    #[error(
        "{0}: no pool here (no slice found); name the directory of a pool, or make one with nearside format"
    )]
    NoPool(PathBuf),
    /// There is a pool already.
    #[error(
        "{0}: a pool is there, and format replaces none; choose another directory, or, if nothing \
         in it is wanted any more, stop what uses it (nearside stop) and remove its directory"
    )]
    Exists(PathBuf),
    /// Another pool's bytes are where one is to be made.
    #[error(
        "{0}: a slice or device of a pool is there; choose another place, remove it, or say that \
         it may be lost (nearside format --force)"
    )]
    Used(PathBuf),
    /// Something is where a slice or a device is to be made.
    #[error(
        "{0}: it holds data (file, blkid and wipefs may say what); choose another place, or say \
         that it may be lost (nearside format --force)"
    )]
    HoldsData(PathBuf),
    /// A device that the kernel uses.
    #[error(
        "{0}: this device is in use: it is mounted, or a part of another one (lsblk shows that); \
         end that first"
    )]
    Busy(PathBuf),
    /// Both superblocks of a slice are unreadable.
    #[error(
        "{path}: both superblocks are damaged or were never written ({reason}); restore the file, \
         or take it out of the pool's directory"
    )]
    Superblock {
        /// Which slice.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Made by a newer Nearside.
    #[error(
        "{path}: format version {found}, this Nearside reads up to {known}; use a newer Nearside"
    )]
    Version {
        /// Which slice.
        path: PathBuf,
        /// Version on the medium.
        found: u32,
        /// Highest version known here.
        known: u32,
    },
    /// The slices do not make one pool.
    #[error("the slices do not make one pool: {0}")]
    Slices(String),
    /// A file is to be made anew of a pool that has no other copy of it.
    #[error(
        "this pool keeps one copy of everything (format --data-copies 1): there is nothing to make \
         a file anew from; nearside check tells what is damaged"
    )]
    OneCopy,
    /// A device of the capacity tier cannot be used.
    #[error("{0}")]
    Device(String),
    /// Another pool, or another process, has a device.
    #[error("{0}: this device of a capacity tier is in use; close the pool that has it first")]
    DeviceInUse(PathBuf),
    /// A block is on a device of the capacity tier, and not in memory.
    #[error("{0} is not in memory")]
    Away(BlockAddr),
    /// Who had it made did not want it any more.
    #[error("stopped; what it made is removed")]
    Stopped,
    /// A size that cannot work.
    #[error("{0}")]
    Size(String),
    /// The pool would lose its promise.
    #[error("{0}")]
    Domain(String),
    /// A tree could not be read or changed.
    #[error(transparent)]
    Tree(crate::tree::TreeError),
    /// This machine's nodes could not be found out.
    #[error(transparent)]
    Topology(#[from] topology::Error),
    /// Stored bytes do not match their checksum or make no sense.
    #[error("slice {slice}, byte {offset}: {what}; run nearside check")]
    Damaged {
        /// Which slice.
        slice: u32,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// No block is free.
    #[error("the pool is full: remove files, or copy them to a larger pool")]
    NoSpace,
    /// No block is free, and none to lend: those that are lent come back soon. The caller lets go
    /// of its locks, gathers what came back, tries again.
    #[error("the pool is full, and what it lends for overwriting is lent out")]
    Lent,
    /// The log has no room until a checkpoint; the caller lets go of its locks, waits, tries again.
    #[error("the log is full until the next checkpoint")]
    LogFull,
    /// Open for reading only.
    #[error("the pool is open read-only")]
    ReadOnly,
    /// An earlier persist failed.
    #[error(
        "the pool stopped accepting changes after a failed write ({0}); close and open it again"
    )]
    Poisoned(String),
}

/// Result of a pool call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A store did not reach the medium.
    #[cold]
    pub fn store_lost() -> Error {
        Error::Poisoned("memory fails where it was to be written".to_owned())
    }

    /// Two files of one slice.
    #[cold]
    pub fn twice(slice: usize) -> Error {
        Error::Slices(format!("slice {slice} is there twice; remove the copy"))
    }

    /// Whether what should be a slice's file is none, rather than one that cannot be had now.
    pub fn is_of_a_lost_file(&self) -> bool {
        let gone = |errno| [libc::ENOENT, libc::ENXIO, libc::ENODEV, libc::EIO].contains(&errno);
        match self {
            Error::Superblock { .. } | Error::Memory(pmem::Error::Empty { .. }) => true,
            Error::Io { source, .. } | Error::Memory(pmem::Error::Io { source, .. }) => {
                source.raw_os_error().is_some_and(gone)
            }
            _ => false,
        }
    }

    /// The errno that a POSIX caller sees.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Error::Memory(error) => error.errno(),
            Error::Tree(error) => error.errno(),
            Error::Topology(error) => error.errno(),
            Error::NoPool(_) => libc::ENOENT,
            Error::Exists(_) | Error::Used(_) | Error::HoldsData(_) => libc::EEXIST,
            Error::Busy(_) => libc::EBUSY,
            Error::NoSpace | Error::Lent => libc::ENOSPC,
            Error::Stopped => libc::EINTR,
            Error::ReadOnly => libc::EROFS,
            Error::LogFull => libc::EAGAIN,
            Error::Superblock { .. }
            | Error::Version { .. }
            | Error::Slices(_)
            | Error::OneCopy
            | Error::Size(_)
            | Error::Device(_)
            | Error::Domain(_) => libc::EINVAL,
            Error::Away(_) => libc::EAGAIN,
            Error::DeviceInUse(_) => libc::EBUSY,
            Error::Damaged { .. } | Error::Poisoned(_) => libc::EIO,
        }
    }
}

impl From<crate::tree::TreeError> for Error {
    fn from(error: crate::tree::TreeError) -> Error {
        match error {
            crate::tree::TreeError::NoSpace => Error::NoSpace,
            error => Error::Tree(error),
        }
    }
}

impl BlockAddr {
    /// Where it is, for a report.
    pub fn place(self) -> String {
        let byte = self.block() * BLOCK_BYTES;
        match self.device() {
            Some(device) => format!("capacity device {device}, byte {byte}"),
            None => format!("slice {}, byte {byte}", self.slice()),
        }
    }
}
