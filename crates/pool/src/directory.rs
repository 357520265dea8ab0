//! Finding the slices of a pool: the directory only finds them, the superblocks say what they are.

use crate::error::{Error, Result};
use crate::slice::Candidate;
use std::path::{Path, PathBuf};

/// The slices' files and links in `dir`, by name.
pub fn slice_paths(dir: &Path) -> Result<Vec<PathBuf>> {
    named(dir, b"slice")
}

fn named(dir: &Path, first: &[u8]) -> Result<Vec<PathBuf>> {
    let io = |source| Error::Io { path: dir.to_path_buf(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_name().as_encoded_bytes().starts_with(first) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// The files, devices and links of the capacity tier in `dir`, by their numbers.
pub fn device_paths(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = named(dir, b"capacity.")?;
    let number = |path: &PathBuf| path.extension()?.to_str()?.parse::<u32>().ok();
    // not a copy of one, nor what somebody keeps beside them
    paths.retain(|path| number(path).is_some() && path.file_stem() == Some("capacity".as_ref()));
    paths.sort_by_key(number);
    Ok(paths)
}

/// The slices in `dir`, opened; and of a mirrored pool, which can do without a file, what is wrong
/// with those that are no slices any more.
pub fn candidates(
    dir: &Path,
    open: &dyn Fn(&Path) -> Result<Candidate>,
) -> Result<(Vec<Candidate>, Vec<String>)> {
    let opened: Vec<Result<Candidate>> = slice_paths(dir)?.iter().map(|path| open(path)).collect();
    if opened.is_empty() {
        return Err(Error::NoPool(dir.to_path_buf()));
    }
    let is_mirrored = opened.iter().flatten().any(|found| found.superblock.is_mirrored());
    let (mut candidates, mut notes) = (Vec::new(), Vec::new());
    for opened in opened {
        match opened {
            Ok(candidate) => candidates.push(candidate),
            Err(error) if is_mirrored && error.is_of_a_lost_file() => notes.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok((candidates, notes))
}
