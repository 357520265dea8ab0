//! Superblocks, slices, free space, log, tree.
#![forbid(unsafe_code)]

mod error;
pub use error::{Error, Result};
