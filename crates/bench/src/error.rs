//! Why a measurement could not be made.

use std::path::{Path, PathBuf};

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No row or operation has this name.
    #[error("{name}: no such measurement; there are {known}")]
    UnknownRow {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The engine said no.
    #[error(transparent)]
    Engine(#[from] fs::Error),
    /// The pool could not be made or opened.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// The library said no.
    #[error(transparent)]
    Library(#[from] nearside::Error),
    /// A service did not start.
    #[error(transparent)]
    Service(#[from] server::Error),
    /// A process of the measurement failed, or said something else than what its calls took.
    #[error("a process of the measurement: {0}")]
    Seat(String),
    /// The floor's mapping could not be had.
    #[error(transparent)]
    Memory(#[from] pmem::Error),
    /// A file of the peer or the scratch directory could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A region or a transaction was refused.
    #[error(transparent)]
    Region(#[from] region::Error),
    /// A mount could not be made or taken away.
    #[error(transparent)]
    Mount(#[from] nearside_fuse::Error),
    /// The machine's CPUs could not be asked for or set.
    #[error(transparent)]
    Machine(#[from] topology::Error),
    /// The machine to be played is none.
    #[error(transparent)]
    Emulated(#[from] sim::Error),
    /// What was to be simulated makes no sense.
    #[error(transparent)]
    Simulated(#[from] sim::Refused),
    /// A caller on an emulated machine made no two calls while they were counted.
    #[error("the machine at hand is too slow for the emulated one: no call ended in time")]
    TooShort,
    /// A thread of the measurement panicked.
    #[error("a thread of the measurement panicked")]
    Panicked,
}

/// Result of a measurement.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the caller asked for something that there is not (exit 2 rather than 1).
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::UnknownRow { .. } | Error::Emulated(_))
    }

    /// The errno nearest to it.
    pub fn errno(&self) -> i32 {
        match self {
            Error::UnknownRow { .. } | Error::Emulated(_) | Error::Simulated(_) => libc::EINVAL,
            Error::Engine(error) => error.errno(),
            Error::Region(error) => error.errno(),
            Error::Pool(error) => error.errno(),
            Error::Memory(error) => error.errno(),
            Error::Library(error) => error.errno(),
            Error::Machine(error) => error.errno(),
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Error::Mount(_)
            | Error::Service(_)
            | Error::Seat(_)
            | Error::TooShort
            | Error::Panicked => libc::EIO,
        }
    }
}

/// Puts the path to an error of the kernel.
pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.to_path_buf(), source }
}
