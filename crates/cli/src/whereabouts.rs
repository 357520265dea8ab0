//! What a place names: the pool that is mounted on it, or the one that lies in it. Whoever knows a
//! pool by either is understood.

use std::path::{Path, PathBuf};

use nearside_fuse::mounts::{self, MountEntry};

use crate::error::{self, Error, Result};
use crate::place;

/// The directory of the pool that is meant. What is no pool at all is told by who opens it.
pub fn pool_at(place: &Path) -> Result<PathBuf> {
    let Some(entry) = place::mounted_on(place)? else { return Ok(place.to_path_buf()) };
    if client::is_address(Path::new(&entry.source)) {
        let at = entry.source.display();
        let reason = format!("the pool is that of {at}; ask on the machine that serves it");
        return Err(Error::Place { dir: place.to_path_buf(), reason });
    }
    Ok(place::pool_of(&entry).unwrap_or_else(|| place.to_path_buf()))
}

/// The mount that is meant, also that of a server that died: the one on `place`, or else the
/// latest of the pool in it.
pub fn mount_at(place: &Path) -> Result<Option<MountEntry>> {
    if let Some(entry) = place::mounted_on(place)?
        && place::pool_of(&entry).is_some()
    {
        return Ok(Some(entry));
    }
    let Ok(pool) = place.canonicalize() else { return Ok(None) };
    let is_of_pool = |entry: &MountEntry| place::pool_of(entry).is_some_and(|it| it == pool);
    Ok(mounts()?.into_iter().rfind(is_of_pool))
}

/// Where else the file system of `entry` is mounted.
pub fn others_of(entry: &MountEntry) -> Result<Vec<PathBuf>> {
    let is_other = |it: &MountEntry| it.device == entry.device && it.dir != entry.dir;
    Ok(mounts()?.into_iter().filter(is_other).map(|it| it.dir).collect())
}

/// Whether the pool is mounted once more, apart from the file system of `entry`.
pub fn is_elsewhere(pool: &Path, entry: &MountEntry) -> Result<bool> {
    let is_apart = |it: &MountEntry| {
        it.device != entry.device && place::pool_of(it).is_some_and(|of| of == pool)
    };
    Ok(mounts()?.iter().any(is_apart))
}

/// What is mounted below `dir`.
pub fn mounts_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let is_inner = |it: &MountEntry| it.dir.starts_with(dir) && it.dir != dir;
    Ok(mounts()?.into_iter().filter(is_inner).map(|it| it.dir).collect())
}

/// Several paths as one text.
pub fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn mounts() -> Result<Vec<MountEntry>> {
    mounts::list().map_err(error::io(Path::new("/proc/self/mountinfo")))
}
