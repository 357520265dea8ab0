//! Errors of regions and transactions; each knows its errno.

/// What may go wrong with a region or a transaction.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system said no.
    #[error(transparent)]
    File(#[from] fs::Error),
    /// The kernel said no.
    #[error("{call}: {}", std::io::Error::from_raw_os_error(*errno))]
    Kernel {
        /// To what.
        call: &'static str,
        /// What it said.
        errno: i32,
    },
    /// A region of no bytes, or of more than a file can have.
    #[error("a region has at least one byte, and ends where a file can end at the latest")]
    Length,
    /// A region begins where a page does.
    #[error("a region begins at a multiple of {} bytes of its file", crate::PAGE_BYTES)]
    Alignment,
    /// Only regular files can be mapped.
    #[error("only a regular file can be a region")]
    Kind,
    /// Bytes that are not all in one region.
    #[error("the bytes are in no region, or go on behind its end")]
    Outside,
    /// The file was opened for reading only.
    #[error("the region can only be read: its file is not open for writing")]
    ReadOnly,
    /// A transaction of one pool cannot write to another.
    #[error("a transaction writes to files of one pool only")]
    OtherPool,
    /// The kernel gives this process no userfaultfd.
    #[error(
        "regions of an attached process need userfaultfd, which this process may not have: allow \
         it in the container's seccomp profile, or give it /dev/userfaultfd"
    )]
    NoUserfault,
    /// A forked child has no pool.
    #[error("this process is a forked child: the pool is its parent's")]
    Forked,
}

/// Result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What the kernel said to a call.
    pub(crate) fn kernel(call: &'static str) -> Error {
        Error::of_kernel(call, &std::io::Error::last_os_error())
    }

    /// The same where the error is at hand.
    pub(crate) fn of_kernel(call: &'static str, error: &std::io::Error) -> Error {
        Error::Kernel { call, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    /// Whether another transaction was faster: the same may succeed when it is begun again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::File(fs::Error::Conflict))
    }

    /// The errno that a caller in C sees.
    pub fn errno(&self) -> i32 {
        match self {
            Error::File(error) => error.errno(),
            Error::Kernel { errno, .. } => *errno,
            Error::Length | Error::Alignment | Error::Kind => libc::EINVAL,
            Error::Outside => libc::EFAULT,
            Error::OtherPool => libc::EXDEV,
            Error::ReadOnly => libc::EBADF,
            Error::NoUserfault => libc::EOPNOTSUPP,
            Error::Forked => libc::EPERM,
        }
    }
}
