//! Errors of lanes.

use std::path::PathBuf;

/// What may fail with a lane.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// The memory below.
    #[error("a lane: {0}")]
    Memory(#[from] pmem::Error),
    /// Words that are shared.
    #[error("the words of a lane: {0}")]
    Words(#[from] shm::Error),
    /// The pool below.
    #[error(transparent)]
    Files(#[from] fs::Error),
    /// A lane could not be as durable as the pool is.
    #[error(
        "the pool's directory is less durable than the pool: processes write through the service"
    )]
    LessDurable,
    /// The pool is open for reading only.
    #[error("lanes have to be folded first; open the pool for writing once")]
    Unfolded,
    /// What was committed cannot be in its file, and is kept elsewhere.
    #[error("what an attached process had committed cannot be stored, and is kept in {path}: {source}", path = path.display())]
    Kept {
        /// Where.
        path: PathBuf,
        /// Why.
        source: fs::Error,
    },
    /// The notes about leases cannot be read.
    #[error(
        "what is noted of the leases of connection {0:032x} is damaged; see docs/operations.md"
    )]
    Damaged(u128),
}

/// Result of what is done with a lane.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno that a POSIX caller would see.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(5),
            Error::Files(error) | Error::Kept { source: error, .. } => error.errno(),
            Error::Unfolded => rustix::io::Errno::ROFS.raw_os_error(),
            _ => rustix::io::Errno::IO.raw_os_error(),
        }
    }

    pub(crate) fn io(what: &'static str) -> impl Fn(std::io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}
