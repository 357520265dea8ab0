//! From a path to an inode: one component at a time, symbolic links followed.
//!
//! Absolute links start at the root, `..` of the root is the root. No lock is held between two
//! components: as with every POSIX walk, a rename in between may lead elsewhere. Where the root is
//! a directory of the pool, it does not lead out of that: `..` goes back to where the walk came
//! from, and asks nobody which directory is above.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fs::{Attr, Error as FsError, FileKind, FileSystem, ForCaller, Ino};

use crate::pool_door::Owned;
use crate::{Error, Result};

/// Longest path, bytes (Linux's PATH_MAX without its final NUL).
const PATH_BYTES_MAX: usize = 4095;
/// Most symbolic links that one walk follows, as in Linux.
const LINKS_FOLLOWED_MAX: u32 = 40;

/// Whether a symbolic link at the end of the path is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// Where a path leads.
pub(crate) struct Located {
    /// The directory that holds the name.
    pub(crate) parent: Ino,
    /// The name; empty when the path ends in a directory itself (`/`, `.`, `..`).
    pub(crate) name: Vec<u8>,
    /// What is there; `None` when only the name itself is missing.
    pub(crate) attr: Option<Attr>,
}

impl Located {
    fn directory(attr: Attr) -> Located {
        Located { parent: attr.ino, name: Vec::new(), attr: Some(attr) }
    }
}

/// Walks `path`; everything but its last component must exist, and every directory on the way be
/// open to the pool's caller.
pub(crate) fn locate(pool: &Owned, path: &Path, last: Last) -> Result<Located> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > PATH_BYTES_MAX {
        return Err(Error::PathTooLong);
    }
    let wrap = |source| Error::Path { path: path.to_path_buf(), source };
    if bytes.is_empty() {
        return Err(wrap(FsError::NotFound));
    }
    // "a/" means the directory a, also when a is a link to it.
    let slash_ends = bytes.ends_with(b"/");
    let follow_last = last == Last::Follow || slash_ends;
    let mut walk = Walk {
        fs: &pool.fs,
        checked: pool.checked(),
        root: pool.root,
        above: Vec::new(),
        pending: Vec::new(),
        links: 0,
        follow_last,
    };
    walk.push(bytes);
    let located = match walk.run() {
        Ok(located) => located,
        Err(Stop::Loop) => return Err(Error::Loop(path.to_path_buf())),
        Err(Stop::Fs(source)) => return Err(wrap(source)),
    };
    match &located.attr {
        Some(attr) if slash_ends && attr.kind != FileKind::Directory => {
            Err(wrap(FsError::NotDirectory))
        }
        _ => Ok(located),
    }
}

/// Walks `path` to something that must exist.
pub(crate) fn find(pool: &Owned, path: &Path, last: Last) -> Result<Attr> {
    locate(pool, path, last)?
        .attr
        .ok_or_else(|| Error::Path { path: path.to_path_buf(), source: FsError::NotFound })
}

/// Why a walk ended early.
enum Stop {
    Fs(FsError),
    Loop,
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Stop {
        Stop::Fs(error)
    }
}

struct Walk<'a> {
    fs: &'a FileSystem,
    checked: ForCaller<'a>,
    root: Ino,
    /// The directories through which the walk came, from the root on.
    above: Vec<Ino>,
    /// Components to come, the next one at the end.
    pending: Vec<Vec<u8>>,
    links: u32,
    follow_last: bool,
}

impl Walk<'_> {
    /// Puts the components of `path` in front of those that are still to come.
    fn push(&mut self, path: &[u8]) {
        let parts = path.rsplit(|&byte| byte == b'/');
        self.pending.extend(parts.filter(|part| !part.is_empty()).map(<[u8]>::to_vec));
    }

    fn run(&mut self) -> std::result::Result<Located, Stop> {
        let mut here = self.fs.getattr(self.root)?;
        while let Some(name) = self.pending.pop() {
            if here.kind != FileKind::Directory {
                return Err(FsError::NotDirectory.into());
            }
            self.checked.search(here.ino)?;
            if name == b"." {
                continue;
            }
            if name == b".." {
                here = self.fs.getattr(self.above.pop().unwrap_or(self.root))?;
                continue;
            }
            let last = self.pending.is_empty();
            let attr = match self.fs.lookup(here.ino, &name) {
                Ok(attr) => attr,
                Err(FsError::NotFound) if last => {
                    return Ok(Located { parent: here.ino, name, attr: None });
                }
                Err(error) => return Err(error.into()),
            };
            if attr.kind == FileKind::Symlink && (!last || self.follow_last) {
                here = self.follow(attr.ino, here)?;
            } else if last {
                return Ok(Located { parent: here.ino, name, attr: Some(attr) });
            } else {
                self.above.push(here.ino);
                here = attr;
            }
        }
        Ok(Located::directory(here))
    }

    /// Goes on at the target of link `ino`, which lies in `directory`.
    fn follow(&mut self, ino: Ino, directory: Attr) -> std::result::Result<Attr, Stop> {
        self.links += 1;
        if self.links > LINKS_FOLLOWED_MAX {
            return Err(Stop::Loop);
        }
        let target = self.fs.readlink(ino)?;
        self.push(&target);
        match target.first() {
            Some(b'/') => {
                self.above.clear();
                Ok(self.fs.getattr(self.root)?)
            }
            Some(_) => Ok(directory),
            None => Err(FsError::NotFound.into()),
        }
    }
}
