//! Errors of the file system; each knows its errno.

/// What a file system call may fail with.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such name or inode.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists.
    #[error("the name exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was given where a file was needed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name over 255 bytes.
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// An argument makes no sense.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The file would be larger than a file can be.
    #[error("the file would be larger than 64 TiB")]
    TooBig,
    /// The pool is full.
    #[error("the pool is full: remove files, or copy them to a larger pool")]
    NoSpace,
    /// Too many hard links.
    #[error("more than 65000 links to one file")]
    TooManyLinks,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The value does not fit.
    #[error("the attribute is larger than the limit or the buffer")]
    AttributeSize,
    /// The pool is open for reading only.
    #[error("the pool is read-only")]
    ReadOnly,
    /// Not allowed on this object.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// Not allowed to this kind of object.
    #[error("permission denied: {0}")]
    Denied(&'static str),
    /// The operation does not exist here.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// There is no data or hole there.
    #[error("no data or hole beyond this offset")]
    NoSuchRange,
    /// Another owner's lock is in the way.
    #[error("another owner holds a lock there")]
    Locked,
    /// Waiting for the lock would never end.
    #[error("deadlock: the lock's holder waits for one that this owner holds; let go of that one")]
    Deadlock,
    /// What a transaction read was changed before it committed.
    #[error("another transaction changed what this one read; begin it again")]
    Conflict,
    /// More than one atomic change can hold.
    #[error(
        "the transaction is larger than one checkpoint can fold; make it smaller, or the pool larger"
    )]
    TooLong,
    /// What was to be read to is memory that nobody may store to.
    #[error("the buffer lies in a region, where nobody may store; read to other memory")]
    RegionMemory,
    /// Others write there by themselves: the attempt is made again when they do not.
    #[error("blocks of the file are leased")]
    Leased(crate::leased::Blocks),
    /// A wait was cancelled.
    #[error("the wait was interrupted")]
    Interrupted,
    /// Stored bytes do not match their checksum or make no sense.
    #[error("damage: {0}; run nearside check")]
    Damaged(String),
    /// An earlier write to the medium failed; nothing is accepted any more.
    #[error(
        "the pool stopped accepting changes after a failed write: {0}; close and open it again"
    )]
    Poisoned(String),
    /// What the process that owns the pool said.
    #[error("{words}")]
    Elsewhere {
        /// Its errno.
        errno: i32,
        /// Its words.
        words: String,
    },
    /// The pool below said no.
    #[error(transparent)]
    Pool(#[from] std::sync::Arc<pool::Error>),
}

/// Result of a file system call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the pool takes no changes any more, until it is opened again.
    pub fn is_poisoned(&self) -> bool {
        match self {
            Error::Poisoned(_) => true,
            Error::Pool(error) => matches!(**error, pool::Error::Poisoned(_)),
            _ => false,
        }
    }

    /// The errno that a POSIX caller sees.
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound => libc::ENOENT,
            Error::Exists => libc::EEXIST,
            Error::NotDirectory => libc::ENOTDIR,
            Error::IsDirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::Invalid(_) => libc::EINVAL,
            Error::TooBig => libc::EFBIG,
            Error::NoSpace => libc::ENOSPC,
            Error::TooManyLinks => libc::EMLINK,
            Error::NoAttribute => libc::ENODATA,
            Error::AttributeSize => libc::ERANGE,
            Error::ReadOnly => libc::EROFS,
            Error::NotPermitted(_) => libc::EPERM,
            Error::Denied(_) => libc::EACCES,
            Error::Unsupported(_) => libc::EOPNOTSUPP,
            Error::NoSuchRange => libc::ENXIO,
            Error::Locked | Error::Leased(_) => libc::EAGAIN,
            Error::Deadlock => libc::EDEADLK,
            Error::Conflict => libc::EAGAIN,
            Error::TooLong => libc::E2BIG,
            Error::RegionMemory => libc::EFAULT,
            Error::Interrupted => libc::EINTR,
            Error::Damaged(_) | Error::Poisoned(_) => libc::EIO,
            Error::Elsewhere { errno, .. } => *errno,
            Error::Pool(error) => error.errno(),
        }
    }
}

impl From<pool::Error> for Error {
    fn from(error: pool::Error) -> Error {
        Error::Pool(std::sync::Arc::new(error))
    }
}
