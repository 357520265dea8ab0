//! Why a service does not start.

use std::io;
use std::path::PathBuf;

/// What starting a service may fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket cannot be made.
    #[error("{}: {source}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// What is known of attached processes cannot be written down.
    #[error("{}: {source}", path.display())]
    Identities {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The credentials of the service are of no use.
    #[error("{0}")]
    Credentials(#[source] wire::BadCredentials),
    /// The access file cannot be read.
    #[error("{}: the access file: {source}", path.display())]
    Access {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It makes no sense.
    #[error("{}, {source}", path.display())]
    AccessLine {
        /// Its path.
        path: PathBuf,
        /// Which line, and why not.
        source: crate::access::Nonsense,
    },
    /// There is no such fabric.
    #[error(transparent)]
    Fabric(#[from] wire::NoFabric),
    /// A system call failed.
    #[error("the service: {call}: {source}")]
    Io {
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Result of starting a service.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> Error {
        move |source| Error::Io { call, source: source.into() }
    }
}
