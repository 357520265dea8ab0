//! Errors of the topology; each knows its errno.

use std::io;
use std::path::PathBuf;

/// What reading or using a topology may fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the kernel's is there but cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A list of CPUs is not one.
    #[error("not a list of CPUs: {0}")]
    CpuList(String),
    /// No CPU is left to run on.
    #[error("no CPU to run on: give at least one that is online and in the allowed set")]
    NoCpus,
    /// A number of virtual nodes that cannot be made.
    #[error("{asked} virtual nodes asked for; choose 1 to {}", crate::NODE_LIMIT)]
    VirtualNodes {
        /// The number asked for.
        asked: u32,
    },
    /// The kernel refused to say or set where the thread may run.
    #[error("cannot {what} the thread's CPU affinity: {source}")]
    Affinity {
        /// `read` or `set`.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Result of a topology call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno that a caller of a system call would see.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Read { source, .. } | Error::Affinity { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Error::CpuList(_) | Error::NoCpus | Error::VirtualNodes { .. } => libc::EINVAL,
        }
    }
}
