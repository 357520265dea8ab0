//! What a copy keeps of a file besides its content, and what a copy that was killed leaves behind.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nearside::FileKind;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::content::Content;
use crate::inside::Opening;
use crate::side::{Side, Stat};

/// Permission bits that a copy keeps if asked. Not setuid and setgid: the copy is its maker's.
pub const MODE_BITS_KEPT: u16 = 0o1777;
/// Those of a copy that keeps its owner.
const MODE_BITS_OF_OWNER: u16 = 0o7777;
/// Classes of extended attributes that a pool holds. ACLs it would have to obey, too.
const CLASSES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const SCRATCH_PREFIX: &str = ".nearside-cp-";

/// A name for a file that is not whole yet: the writer's process, and a moment.
pub fn scratch_name() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    format!("{SCRATCH_PREFIX}{}-{nanos}", std::process::id())
}

/// The process that chose this name, if it is one of a file that is not whole.
fn writer(name: &OsStr) -> Option<u32> {
    let (process, nanos) = name.to_str()?.strip_prefix(SCRATCH_PREFIX)?.split_once('-')?;
    nanos.parse::<u128>().ok()?;
    process.parse().ok()
}

/// Holds a file that is not whole against those who clear up, until it is closed, however that
/// comes about. One of a pool that this process opened needs it not: nobody else has the pool.
pub fn hold(content: &Content) {
    if let Content::Outside(file) | Content::Mounted(file) = content {
        // Where there are no locks, only the process says who writes.
        let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
    }
}

/// Removes what copies into this directory left behind whose process has gone. What cannot be
/// looked at stays.
pub fn clear(side: Side<'_>, dir: &Path) {
    for name in side.names(dir).unwrap_or_default() {
        let Some(process) = writer(&name) else { continue };
        let path = dir.join(&name);
        let kind = side.stat(&path, false).ok().flatten().map(|stat| stat.kind);
        let may_go = match kind {
            Some(FileKind::File) => !is_held(side, &path),
            // Made and renamed at once: nobody works at it for long.
            Some(FileKind::Symlink) => true,
            _ => false,
        };
        if may_go && !Path::new(&format!("/proc/{process}")).exists() {
            // Somebody else may have been quicker.
            let _ = side.remove_file(&path);
        }
    }
}

/// Whether a process writes to a file, though it is not to be seen from here (a container's).
fn is_held(side: Side<'_>, path: &Path) -> bool {
    match side.open(path, Opening::Read) {
        Ok(Content::Outside(file) | Content::Mounted(file)) => {
            flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        }
        Ok(Content::Inside(_)) => false,
        Err(_) => true,
    }
}

/// Gives the copy at `to` the owner of `source`, if that may be; the permission bits that it may
/// then have.
pub fn owner(source: &Stat, side: Side<'_>, to: &Path, follow: bool) -> io::Result<u16> {
    match side.set_owner(to, source, follow) {
        Ok(()) => Ok(MODE_BITS_OF_OWNER),
        // As cp(1): who is not root keeps what it can.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(MODE_BITS_KEPT),
        Err(error) => Err(error),
    }
}

/// Copies extended attributes; gives the names of those that the other side does not take.
pub fn xattrs(from: (Side<'_>, &Path), to: (Side<'_>, &Path)) -> io::Result<Vec<OsString>> {
    let mut left_out = Vec::new();
    for name in from.0.list_xattrs(from.1)? {
        let known = CLASSES.iter().any(|class| name.as_bytes().starts_with(class));
        // None only if somebody removed it meanwhile.
        let Some(value) = from.0.xattr(from.1, &name)? else { continue };
        let set = if known { to.0.set_xattr(to.1, &name, &value).is_ok() } else { false };
        if !set {
            left_out.push(name);
        }
    }
    Ok(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_form_are_cleared() {
        assert_eq!(writer(OsStr::new(&scratch_name())), Some(std::process::id()));
        for name in [".nearside-cp-", ".nearside-cp-1", ".nearside-cp-1-x", "x.nearside-cp-1-2"] {
            assert_eq!(writer(OsStr::new(name)), None, "{name}");
        }
    }

    #[test]
    fn what_the_dead_left_goes_and_what_the_living_write_stays() {
        let dir = tempfile::tempdir().unwrap();
        // No process has a number this high.
        let dead = |n| format!("{SCRATCH_PREFIX}4294967295-{n}");
        let names = [dead(1), dead(2), scratch_name(), "file".to_owned()];
        for name in &names {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        std::fs::create_dir(dir.path().join(dead(3))).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join(dead(4))).unwrap();
        let file = std::fs::File::open(dir.path().join(&names[1])).unwrap();
        let held = Content::Outside(file);
        hold(&held);
        let left = || std::fs::read_dir(dir.path()).unwrap().count();
        clear(Side::Outside, dir.path());
        assert_eq!(left(), 4, "a file and a link are gone");
        assert!(!dir.path().join(&names[0]).exists());
        drop(held);
        clear(Side::Outside, dir.path());
        assert_eq!(left(), 3);
    }
}
