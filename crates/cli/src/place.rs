//! The mount point: found without touching what is mounted there, and judged.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nearside_fuse::mounts::{self, MountEntry};
use nix::errno::Errno;

use crate::error::{self, Error, Result};
use crate::origin;

/// Type of our mounts.
const KIND: &str = "fuse.nearside";
/// What the mount table's source says before the pool's path.
const SOURCE_PREFIX: &str = "nearside:";

/// What the mount table is to say of a mount of `pool`.
pub fn source(pool: &Path) -> std::ffi::OsString {
    let mut source = std::ffi::OsString::from(SOURCE_PREFIX);
    source.push(pool);
    source
}

/// The pool that is mounted there, if it is one of ours: made by root, or by the pool's owner. What
/// another user's mount says of itself is believed by nobody.
pub fn pool_of(entry: &MountEntry) -> Option<PathBuf> {
    let named = entry.source.as_bytes().strip_prefix(SOURCE_PREFIX.as_bytes());
    let named = named.map(|path| PathBuf::from(OsStr::from_bytes(path)));
    // of a pool that another machine has, what stands for it here
    let pool = named.or_else(|| origin::home_of(entry))?;
    let is_owners = |user: u32| {
        // A pool whose directory has gone is nobody's but root's.
        user == 0 || std::fs::metadata(&pool).is_ok_and(|dir| dir.uid() == user)
    };
    (entry.kind == KIND && entry.user.is_some_and(is_owners)).then_some(pool)
}

/// Whether all of a file system is mounted there, and not a directory of it (`mount --bind`).
pub fn is_whole(entry: &MountEntry) -> bool {
    entry.root == Path::new("/")
}

/// What is mounted on `dir` itself, and the path that the mount table has for it.
pub fn mounted_on(dir: &Path) -> Result<Option<MountEntry>> {
    let table =
        |path: &Path| mounts::at(path).map_err(error::io(Path::new("/proc/self/mountinfo")));
    // Only the way there is resolved: a look at the place itself would fail, or wait, when its
    // server does not answer.
    let whole = std::path::absolute(dir).map_err(error::io(dir))?;
    if let (Some(parent), Some(name)) = (whole.parent(), whole.file_name())
        && let Ok(parent) = parent.canonicalize()
        && let Some(entry) = table(&parent.join(name))?
    {
        return Ok(Some(entry));
    }
    match whole.canonicalize() {
        Ok(path) => table(&path),
        Err(_) => Ok(None),
    }
}

/// For a place where no mount of ours is.
pub fn nothing_here(dir: &Path) -> Error {
    Error::Place {
        dir: dir.to_path_buf(),
        reason: "no Nearside pool is mounted here; see /proc/mounts for what is".to_owned(),
    }
}

/// Whether the server of the mount on `dir` has gone. It asks for the space, which the kernel
/// never remembers; attributes it would answer itself.
pub fn is_dead(dir: &Path) -> bool {
    matches!(nix::sys::statvfs::statvfs(dir), Err(Errno::ENOTCONN | Errno::ECONNABORTED))
}

/// Checks that `pool` may be mounted on `dir`; both are canonical.
pub fn judge(pool: &Path, dir: &Path) -> Result<()> {
    let refuse = |reason: &str| Error::Place { dir: dir.to_path_buf(), reason: reason.to_owned() };
    if !dir.is_dir() {
        return Err(refuse("not a directory; give an empty directory to mount on"));
    }
    if dir.starts_with(pool) {
        return Err(refuse("lies in the pool's own directory; choose one outside"));
    }
    if pool.starts_with(dir) {
        return Err(refuse("the mount would hide the pool, which lies in it; choose another"));
    }
    let mut entries = std::fs::read_dir(dir).map_err(error::io(dir))?;
    if entries.next().is_some() {
        return Err(refuse("not empty; choose an empty directory, so that nothing is hidden"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_places_are_refused_with_a_reason() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let pool = root.join("pool");
        std::fs::create_dir_all(pool.join("inside")).unwrap();
        std::fs::create_dir_all(root.join("good")).unwrap();
        std::fs::create_dir_all(root.join("full/x")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        judge(&pool, &root.join("good")).unwrap();
        for (dir, word) in [
            ("pool", "own"),
            ("pool/inside", "own"),
            ("", "hide"),
            ("full", "empty"),
            ("file", "directory"),
        ] {
            let said = judge(&pool, &root.join(dir)).unwrap_err().to_string();
            assert!(said.contains(word), "{dir}: {said}");
        }
    }

    #[test]
    fn a_source_leads_back_to_its_pool() {
        let entry = MountEntry {
            device: (0, 1),
            root: "/".into(),
            user: Some(0),
            allows_others: false,
            dir: "/mnt".into(),
            kind: "fuse.nearside".to_owned(),
            source: source(Path::new("/a b/pool")),
        };
        assert_eq!(pool_of(&entry), Some("/a b/pool".into()));
        assert!(is_whole(&entry));
        for other in [
            MountEntry { source: "/dev/sda".into(), ..entry.clone() },
            MountEntry { kind: "fuse.other".to_owned(), ..entry.clone() },
            MountEntry { user: Some(12_345), ..entry.clone() },
            MountEntry { user: None, ..entry },
        ] {
            assert_eq!(pool_of(&other), None, "{other:?}");
        }
        assert!(mounted_on(Path::new("/proc")).unwrap().is_some());
        assert!(mounted_on(Path::new("/no/such/place")).unwrap().is_none());
    }
}
