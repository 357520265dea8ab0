//! What a pool does with names: make, remove, rename, link, list.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use fs::{Access, Attr, Creation, Error as FsError, FileKind, NewNode, RenameMode};

use crate::pool_door::{Door, Owned};
use crate::walk::{Last, Located, find, locate};
use crate::{Error, Pool, ReadDir, Result};

/// Permission bits of a new directory.
const DIRECTORY_MODE: u16 = 0o755;
/// Bits that a new directory takes from the mode that its maker asks for.
const MKDIR_MODE_BITS: u16 = 0o1777;
/// Permission bits of a symbolic link: nobody asks for them.
const SYMLINK_MODE: u16 = 0o777;

/// Puts the path that the caller gave to an error of the engine.
pub(crate) fn at(path: &Path) -> impl Fn(FsError) -> Error + '_ {
    move |source| Error::Path { path: path.to_path_buf(), source }
}

/// The path of these bytes.
pub(crate) fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

impl Pool {
    /// Makes a directory; its parent must exist.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match &self.door {
            Door::Owned(owned) => owned.create_node(path, NewNode::Directory, DIRECTORY_MODE),
            Door::Attached(attached) => attached.create_dir(path),
        }
    }

    /// Makes a directory with these permission bits, in one atomic step; its parent must exist. No
    /// umask applies. As with mkdir(2), set-id bits are ignored: a set-group-id directory hands its
    /// own on.
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        let (path, mode) = (path.as_ref(), mode & MKDIR_MODE_BITS);
        match &self.door {
            Door::Owned(owned) => owned.create_node(path, NewNode::Directory, mode),
            Door::Attached(attached) => attached.create_dir_with_mode(path, mode),
        }
    }

    /// Makes a directory and those above it, where they are missing.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => owned.create_dir_all(path.as_ref()),
            Door::Attached(attached) => attached.create_dir_all(path.as_ref()),
        }
    }

    /// Makes a symbolic link at `path` that says `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let (target, path) = (target.as_ref(), path.as_ref());
        match &self.door {
            Door::Owned(owned) => {
                let target = target.as_os_str().as_bytes();
                owned.create_node(path, NewNode::Symlink(target), SYMLINK_MODE)
            }
            Door::Attached(attached) => attached.symlink(target, path),
        }
    }

    /// What the symbolic link at `path` says.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        match &self.door {
            Door::Owned(owned) => owned.read_link(path.as_ref()),
            Door::Attached(attached) => attached.read_link(path.as_ref()),
        }
    }

    /// Gives the file at `original` one more name, `path`.
    pub fn hard_link(&self, original: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => owned.hard_link(original.as_ref(), path.as_ref()),
            Door::Attached(attached) => attached.hard_link(original.as_ref(), path.as_ref()),
        }
    }

    /// Removes the name of a file, link or special file; what has no name left and is not open is
    /// freed.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => owned.remove(path.as_ref(), false),
            Door::Attached(attached) => attached.remove(path.as_ref(), false),
        }
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => owned.remove(path.as_ref(), true),
            Door::Attached(attached) => attached.remove(path.as_ref(), true),
        }
    }

    /// Renames in one atomic step, replacing what `to` names.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Renames in one atomic step; `mode` says what happens when `to` exists.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        match &self.door {
            Door::Owned(owned) => owned.rename(from.as_ref(), to.as_ref(), mode),
            Door::Attached(attached) => attached.rename(from.as_ref(), to.as_ref(), mode),
        }
    }

    /// The entries of the directory at `path`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        match &self.door {
            Door::Owned(owned) => owned.read_dir(path.as_ref()),
            Door::Attached(attached) => Ok(ReadDir::there(attached.read_dir(path.as_ref())?)),
        }
    }

    /// Whether `path` leads to something; an error when that cannot be said.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::Path { source: FsError::NotFound | FsError::NotDirectory, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Owned {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.own()?;
        let mut missing = PathBuf::new();
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            missing.push(component);
            let make = || self.create_node(&missing, NewNode::Directory, DIRECTORY_MODE);
            // where it is sent again, it was done when the last one was made
            let is_last = components.peek().is_none();
            match if is_last { make() } else { self.fs.repeatable(make) } {
                Err(Error::Path { source: FsError::Exists, .. }) => {}
                done => done?,
            }
        }
        match find(self, path, Last::Follow)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(at(path)(FsError::NotDirectory)),
        }
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.own()?;
        let attr = find(self, path, Last::Keep)?;
        Ok(path_of(self.fs.readlink(attr.ino).map_err(at(path))?))
    }

    fn hard_link(&self, original: &Path, path: &Path) -> Result<()> {
        self.own()?;
        let old = locate(self, original, Last::Keep)?;
        let file = old.attr.as_ref().ok_or_else(|| at(original)(FsError::NotFound))?;
        let new = self.vacant(path)?;
        let to = (new.parent, &new.name[..]);
        let linked = match old.name.is_empty() {
            // a directory
            true => self.checked().link(file.ino, to.0, to.1),
            false => self.checked().link_name((old.parent, &old.name), to),
        };
        linked.map(drop).map_err(at(path))
    }

    fn remove(&self, path: &Path, is_directory: bool) -> Result<()> {
        let place = self.occupied(path)?;
        let removed = match is_directory {
            true => self.checked().rmdir(place.parent, &place.name),
            false => self.checked().unlink(place.parent, &place.name),
        };
        removed.map(drop).map_err(at(path))
    }

    fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        self.own()?;
        let old = locate(self, from, Last::Keep)?;
        // both are gone to before either is missing, as in Linux
        let new = locate(self, strip_slashes(to, old.attr.as_ref()), Last::Keep)?;
        old.check_occupied(from)?;
        if new.name.is_empty() {
            return Err(at(to)(FsError::Invalid("the path names no entry of a directory")));
        }
        let places = ((old.parent, &old.name[..]), (new.parent, &new.name[..]));
        self.checked().rename(places.0, places.1, mode).map_err(at(from))?;
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> Result<ReadDir> {
        self.own()?;
        let attr = find(self, path, Last::Follow)?;
        if attr.kind != FileKind::Directory {
            return Err(at(path)(FsError::NotDirectory));
        }
        let handle = self.checked().open(attr.ino, Access::READ).map_err(at(path))?;
        Ok(ReadDir::here(self.fs.clone(), handle))
    }

    /// Who makes a new inode here, with these permission bits.
    pub(crate) fn creation(&self, mode: u16) -> Creation {
        Creation { mode, umask: 0, uid: self.uid, gid: self.gid }
    }

    fn create_node(&self, path: &Path, node: NewNode<'_>, mode: u16) -> Result<()> {
        self.own()?;
        let place = self.vacant(path)?;
        let by = self.creation(mode);
        self.checked().create(place.parent, &place.name, node, by).map_err(at(path))?;
        Ok(())
    }

    /// Where a new name goes.
    fn vacant(&self, path: &Path) -> Result<Located> {
        // A final slash is allowed for a directory to be and follows no link, as in mkdir(2).
        let place = locate(self, trim_slashes(path), Last::Keep)?;
        match place.attr {
            Some(_) => Err(at(path)(FsError::Exists)),
            None => Ok(place),
        }
    }

    /// A name that exists.
    fn occupied(&self, path: &Path) -> Result<Located> {
        self.own()?;
        let place = locate(self, path, Last::Keep)?;
        place.check_occupied(path)?;
        Ok(place)
    }
}

impl Located {
    /// An error unless the path leads to a name that exists.
    fn check_occupied(&self, path: &Path) -> Result<()> {
        match &self.attr {
            None => Err(at(path)(FsError::NotFound)),
            Some(_) if self.name.is_empty() => {
                Err(at(path)(FsError::Invalid("the path names no entry of a directory")))
            }
            Some(_) => Ok(()),
        }
    }
}

/// `path` without final slashes (the root stays).
fn trim_slashes(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let mut end = bytes.len();
    while end > 1 && bytes[end - 1] == b'/' {
        end -= 1;
    }
    Path::new(std::ffi::OsStr::from_bytes(&bytes[..end]))
}

/// The new path of a rename: a directory may be given a name that ends in a slash.
fn strip_slashes<'a>(to: &'a Path, renamed: Option<&Attr>) -> &'a Path {
    let is_dir = renamed.is_some_and(|attr| attr.kind == FileKind::Directory);
    if is_dir { trim_slashes(to) } else { to }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_final_slashes_go() {
        for (given, want) in [("/", "/"), ("//", "/"), ("/a//", "/a"), ("a/b", "a/b"), ("", "")] {
            assert_eq!(trim_slashes(Path::new(given)), Path::new(want));
        }
    }
}
