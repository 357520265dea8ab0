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

/// The object store that `path` names, if it is such a URL rather than a file's name: a scheme, and
/// what comes after `://`, which no path has that somebody means.
pub fn as_url(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    let of_schemes = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_scheme && scheme.chars().all(of_schemes)).then_some(text)
}

/// The object store that a link `capacity.K` leads to: its target is a URL.
pub fn linked_url(path: &Path) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    as_url(&target).map(str::to_owned)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_no_path() {
        for url in ["s3://bucket/a/b", "file:///srv/objects", "memory:///x", "x+y-z.1://"] {
            assert_eq!(as_url(Path::new(url)), Some(url));
        }
        for path in ["/dev/nvme0n1", "a:b", "s3:/bucket", "/s3://bucket", "3s://bucket", "://b", ""]
        {
            assert_eq!(as_url(Path::new(path)), None, "{path}");
        }
    }
}
