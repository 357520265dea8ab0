//! Errors of the library; each knows its errno and says what to do.

use std::path::PathBuf;

/// What a call to the library may fail with.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call on a path failed.
    #[error("{}: {source}", path.display())]
    Path {
        /// The path as it was given.
        path: PathBuf,
        /// What the engine said.
        source: fs::Error,
    },
    /// A call on an open file, or on the pool as a whole, failed.
    #[error(transparent)]
    Files(#[from] fs::Error),
    /// A call on a region, or a transaction, failed.
    #[error(transparent)]
    Region(#[from] region::Error),
    /// The service, to which this process is attached, cannot be asked.
    #[error(transparent)]
    Service(#[from] client::Error),
    /// What attached processes had committed by themselves cannot be brought into the pool.
    #[error("what attached processes had committed is not in the pool: {0}")]
    Lanes(std::sync::Arc<lanes::Error>),
    /// Symbolic links lead on and on.
    #[error("{}: over 40 symbolic links; look for one that leads back to itself", .0.display())]
    Loop(PathBuf),
    /// A path over 4095 bytes.
    #[error("the path is longer than 4095 bytes; go there in shorter steps")]
    PathTooLong,
    /// A child process uses its parent's pool.
    #[error(
        "process {owner} opened this pool and only it may use it; close it there and open it here"
    )]
    Forked {
        /// The process that opened the pool.
        owner: u32,
    },
    /// The file is open, but not for this.
    #[error("the file was not opened for {0}; say so in OpenFlags")]
    NotOpenedFor(&'static str),
    /// A read of an exact length met the end of the file.
    #[error("the file ended {missing} bytes before the read did; check its length first")]
    UnexpectedEnd {
        /// Bytes that were asked for and are not there.
        missing: usize,
    },
}

/// Result of a library call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno that a POSIX caller would see.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Path { source, .. } | Error::Files(source) => source.errno(),
            Error::Region(error) => error.errno(),
            Error::Service(error) => error.errno(),
            Error::Lanes(error) => error.errno(),
            Error::Loop(_) => libc::ELOOP,
            Error::PathTooLong => libc::ENAMETOOLONG,
            Error::Forked { .. } => libc::EPERM,
            Error::NotOpenedFor(_) => libc::EBADF,
            Error::UnexpectedEnd { .. } => libc::EIO,
        }
    }
}

impl From<Error> for std::io::Error {
    /// The error with its kind, for callers that speak `std::io`; the message is kept.
    fn from(error: Error) -> std::io::Error {
        let kind = match &error {
            Error::UnexpectedEnd { .. } => std::io::ErrorKind::UnexpectedEof,
            other => std::io::Error::from_raw_os_error(other.errno()).kind(),
        };
        std::io::Error::new(kind, error)
    }
}
