//! Superblocks, slices, free space, log, tree.
#![forbid(unsafe_code)]

mod error;
mod options;
pub use error::{Error, Result};
pub use options::{FormatOptions, OpenOptions, PoolInfo, SliceInfo, SliceSpec};

/// Makes a pool in directory `dir` (made if it is missing).
pub fn format(dir: &std::path::Path, options: &FormatOptions) -> Result<()> {
    let _ = (dir, options);
    todo!()
}
