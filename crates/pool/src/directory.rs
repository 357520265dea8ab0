//! Finding the slices of a pool: the directory only finds them, the superblocks say what they are.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The slices' files and links in `dir`, by name.
pub fn slice_paths(dir: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::Io { path: dir.to_path_buf(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_name().as_encoded_bytes().starts_with(b"slice") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}
