//! Errors of the tree; each knows its errno.

use crate::addr::BlockAddr;

/// Why the tree could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A page makes no sense or does not match its checksum.
    #[error("tree page at {addr}: {what}; run nearside check")]
    Damaged {
        /// Where the page is; none for the root's own record.
        addr: BlockAddr,
        /// What is wrong.
        what: &'static str,
    },
    /// The page could not be read at all (poisoned memory, I/O error).
    #[error("tree page at {addr} cannot be read: {why}; run nearside check")]
    Unreadable {
        /// Where the page is.
        addr: BlockAddr,
        /// What the memory below said.
        why: String,
    },
    /// A new page could not be persisted.
    #[error("a tree page cannot be written: {0}")]
    Unwritable(String),
    /// No block is free for a new page.
    #[error("the pool is full: remove files, or copy them to a larger pool")]
    NoSpace,
    /// A value longer than a page takes.
    #[error("a value of {bytes} bytes, the tree takes up to {bytes_max}")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
        /// What the tree takes.
        bytes_max: usize,
    },
    /// The caller's batch is not in order.
    #[error("the batch is not in order: {0}")]
    Unsorted(&'static str),
    /// The tree would need more levels than it may have.
    #[error("the tree would be higher than {0} levels; this is a bug, please report it")]
    TooHigh(u8),
}

impl TreeError {
    /// The errno that a POSIX caller sees.
    pub fn errno(&self) -> i32 {
        match self {
            TreeError::NoSpace => libc::ENOSPC,
            TreeError::ValueTooLong { .. } | TreeError::Unsorted(_) => libc::EINVAL,
            TreeError::Damaged { .. }
            | TreeError::Unreadable { .. }
            | TreeError::Unwritable(_)
            | TreeError::TooHigh(_) => libc::EIO,
        }
    }
}

/// Damage in the page at `addr`.
pub(super) fn damaged<T>(addr: BlockAddr, what: &'static str) -> Result<T, TreeError> {
    Err(TreeError::Damaged { addr, what })
}
