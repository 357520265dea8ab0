//! What may go wrong between a process and the service.

use std::io;
use std::path::PathBuf;

/// Why a process is not attached, or is no more.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens at the pool's socket.
    #[error("{}: no service owns this pool; start one with `nearside serve POOL`", .0.display())]
    NoService(PathBuf),
    /// No service could be started.
    #[error("no service could be started: {0}")]
    NotStarted(String),
    /// It is no address of a service on a network.
    #[error("{0} is no address of a service: say near://HOST or near://HOST:PORT")]
    NoAddress(String),
    /// There is nothing to say who this program is with.
    #[error(
        "there are no credentials for {address}: no directory {}; make some with `nearside cert`, \
         or name their directory in NEARSIDE_CREDENTIALS",
        dirs(looked)
    )]
    NoCredentials {
        /// Where they were wanted.
        address: String,
        /// Where they were looked for.
        looked: Vec<PathBuf>,
    },
    /// What there is, is of no use.
    #[error(transparent)]
    BadCredentials(#[from] std::sync::Arc<wire::BadCredentials>),
    /// This program does not trust the service.
    #[error("{address} is not trusted: {reason}")]
    Untrusted {
        /// The service.
        address: String,
        /// Why not.
        reason: String,
    },
    /// The service does not trust this program.
    #[error("{address} does not trust this program: {reason}")]
    Distrusted {
        /// The service.
        address: String,
        /// Why not.
        reason: String,
    },
    /// The service encrypts, and this program was told not to.
    #[error("{0}: the service there speaks TLS; say near:// instead of near+insecure://")]
    Encrypted(String),
    /// No machine has this name.
    #[error("{host} cannot be found: {source}; look at its spelling, or say its number")]
    NoSuchHost {
        /// The host, and the port.
        host: String,
        /// What the resolver said.
        source: std::sync::Arc<io::Error>,
    },
    /// The socket may not be connected to.
    #[error("{}: this process may not connect to the service; ask who runs it", .0.display())]
    NotAllowed(PathBuf),
    /// A system call failed.
    #[error("{call}: {source}")]
    Io {
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: std::sync::Arc<io::Error>,
    },
    /// There is no memory for a region.
    #[error("memory for a region: {0}")]
    Memory(std::sync::Arc<shm::Error>),
    /// The service speaks another version of the protocol.
    #[error(
        "the service (nearside {program}) speaks version {theirs} of the protocol, this program \
         {}: use programs of one release",
        wire::VERSION
    )]
    Version {
        /// Theirs.
        theirs: u32,
        /// The version of the service's program.
        program: String,
    },
    /// The service takes no more processes, or not this one.
    #[error("the service refused this process: {0}")]
    Refused(String),
    /// The next service does not take this process for the one that was attached to the last.
    #[error("the service does not take this process back: {0}; attach again")]
    NotTakenBack(String),
    /// A child process uses its parent's attachment.
    #[error("process {owner} is attached, and only it may call; attach here, too")]
    Forked {
        /// The process that attached.
        owner: u32,
    },
    /// The service has gone.
    #[error("the service has gone: whether it did this is not known; attach again")]
    Lost,
    /// It names a fabric that is not known here.
    #[error("{0} names no fabric: say near+fabric-tcp, -shm, -verbs, -efa or -cxi")]
    UnknownFabric(String),
    /// There is no fabric to go by.
    #[error(transparent)]
    NoFabric(#[from] std::sync::Arc<wire::NoFabric>),
    /// What the service said makes no sense.
    #[error("the service said something that makes no sense: {0}; is it of this release?")]
    Nonsense(&'static str),
}

fn dirs(looked: &[PathBuf]) -> String {
    let all: Vec<_> = looked.iter().map(|dir| dir.display().to_string()).collect();
    all.join(", nor ")
}

/// Result of what a process asks the service.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(call: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Io { call, source: std::sync::Arc::new(source) }
    }

    pub(crate) fn shm(error: shm::Error) -> Error {
        let source = io::Error::from_raw_os_error(error.errno());
        Error::Io { call: "shared memory", source: std::sync::Arc::new(source) }
    }

    pub(crate) fn of_memory(error: shm::Error) -> Error {
        Error::Memory(std::sync::Arc::new(error))
    }

    /// The errno that a POSIX caller would see.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Error::NoService(_) | Error::NotStarted(_) => Errno::CONNREFUSED,
            Error::NotAllowed(_)
            | Error::NoCredentials { .. }
            | Error::BadCredentials(_)
            | Error::Untrusted { .. }
            | Error::Distrusted { .. } => Errno::ACCESS,
            Error::NoAddress(_) | Error::UnknownFabric(_) => Errno::INVAL,
            Error::NoFabric(_) => Errno::PROTONOSUPPORT,
            Error::NoSuchHost { .. } => Errno::HOSTUNREACH,
            Error::Io { source, .. } => return source.raw_os_error().unwrap_or(5),
            Error::Memory(error) => return error.errno(),
            Error::Version { .. } | Error::Nonsense(_) | Error::Encrypted(_) => Errno::PROTO,
            Error::Refused(_) => Errno::AGAIN,
            Error::Forked { .. } => Errno::PERM,
            Error::Lost | Error::NotTakenBack(_) => Errno::NOTCONN,
        };
        errno.raw_os_error()
    }
}
