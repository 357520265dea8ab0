//! What a service says over a network of the copies that a process has there.
//!
//! The memory of such a copy is the process's, and the service says what becomes of it, as it would
//! do it itself in memory of its own: in frames of [`NOTICE`](crate::NOTICE), in the order in which
//! the file changes, and each before the answer to whoever changed it. So a copy is right as far as
//! the stream has been read, and a process that takes the frames in order has no answer whose
//! causes are not in its copies.

use serde::{Deserialize, Serialize};

/// What becomes of a copy.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum OfCopy {
    /// Pages are there from now on, this one and those behind it: the frame's data.
    Pages {
        /// Which copy.
        copy: u64,
        /// The first page.
        page: u64,
    },
    /// The frame's data was written, where pages are there that have it.
    Written {
        /// Which copy.
        copy: u64,
        /// Where in it, bytes.
        at: u64,
    },
    /// Pages are not there any more.
    Gone {
        /// Which copy.
        copy: u64,
        /// The first page.
        page: u64,
        /// How many; more than there are: all behind it.
        pages: u64,
    },
}
