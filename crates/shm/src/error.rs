//! Errors of shared memory.

use std::io;

/// What making or mapping shared memory may fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("shared memory: {call}: {source}")]
    Io {
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The descriptor is not one of memory made here.
    #[error("shared memory: the descriptor is of something else; give one that `create` made")]
    Foreign,
    /// Another process has it mapped, or this one has.
    #[error("shared memory: in use; wait until the process that uses it has ended")]
    InUse,
    /// A page could not come alone.
    #[error("regions of attached processes, where shared memory comes in huge pages")]
    HugePages,
}

/// Result of making or mapping shared memory.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(call: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Io { call, source: source.into() }
    }

    /// The errno that belongs to it.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io { source, .. } => {
                source.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error())
            }
            Error::Foreign => rustix::io::Errno::INVAL.raw_os_error(),
            Error::InUse => rustix::io::Errno::BUSY.raw_os_error(),
            Error::HugePages => rustix::io::Errno::OPNOTSUPP.raw_os_error(),
        }
    }
}
