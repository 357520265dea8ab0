//! What a pool does with names: make, remove, rename, link, list.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use fs::{Attr, Creation, Error as FsError, FileKind, NewNode, RenameMode};

use crate::walk::{Last, Located, find, locate};
use crate::{Error, Pool, ReadDir, Result};

/// Permission bits of a new directory.
const DIRECTORY_MODE: u16 = 0o755;
/// Permission bits of a symbolic link: nobody asks for them.
const SYMLINK_MODE: u16 = 0o777;

/// Puts the path that the caller gave to an error of the engine.
pub(crate) fn at(path: &Path) -> impl Fn(FsError) -> Error + '_ {
    move |source| Error::Path { path: path.to_path_buf(), source }
}

impl Pool {
    /// Makes a directory; its parent must exist.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_node(path.as_ref(), NewNode::Directory, DIRECTORY_MODE)
    }

    /// Makes a directory and those above it, where they are missing.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.own()?;
        let mut missing = PathBuf::new();
        for component in path.components() {
            missing.push(component);
            match self.create_dir(&missing) {
                Err(Error::Path { source: FsError::Exists, .. }) => {}
                done => done?,
            }
        }
        match find(&self.fs, path, Last::Follow)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(at(path)(FsError::NotDirectory)),
        }
    }

    /// Makes a symbolic link at `path` that says `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let target = target.as_ref().as_os_str().as_bytes();
        self.create_node(path.as_ref(), NewNode::Symlink(target), SYMLINK_MODE)
    }

    /// What the symbolic link at `path` says.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.own()?;
        let attr = find(&self.fs, path, Last::Keep)?;
        let target = self.fs.readlink(attr.ino).map_err(at(path))?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
    }

    /// Gives the file at `original` one more name, `path`.
    pub fn hard_link(&self, original: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.own()?;
        let file = find(&self.fs, original.as_ref(), Last::Keep)?;
        let place = self.vacant(path)?;
        self.fs.link(file.ino, place.parent, &place.name).map_err(at(path))?;
        Ok(())
    }

    /// Removes the name of a file, link or special file; what has no name left and is not open is
    /// freed.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (place, _) = self.occupied(path)?;
        self.fs.unlink(place.parent, &place.name).map_err(at(path))?;
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (place, _) = self.occupied(path)?;
        self.fs.rmdir(place.parent, &place.name).map_err(at(path))?;
        Ok(())
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
        let (from, to) = (from.as_ref(), to.as_ref());
        let (old, attr) = self.occupied(from)?;
        let new = locate(&self.fs, strip_slashes(to, &attr), Last::Keep)?;
        if new.name.is_empty() {
            return Err(at(to)(FsError::Invalid("the path names no entry of a directory")));
        }
        let places = ((old.parent, &old.name[..]), (new.parent, &new.name[..]));
        self.fs.rename(places.0, places.1, mode).map_err(at(from))?;
        Ok(())
    }

    /// The entries of the directory at `path`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        self.own()?;
        let attr = find(&self.fs, path, Last::Follow)?;
        if attr.kind != FileKind::Directory {
            return Err(at(path)(FsError::NotDirectory));
        }
        let handle = self.fs.open(attr.ino).map_err(at(path))?;
        Ok(ReadDir::new(self.fs.clone(), handle))
    }

    /// Whether `path` leads to something; an error when that cannot be said.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.own()?;
        match locate(&self.fs, path.as_ref(), Last::Follow) {
            Ok(found) => Ok(found.attr.is_some()),
            Err(Error::Path { source: FsError::NotFound | FsError::NotDirectory, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Who makes a new inode here, with these permission bits.
    pub(crate) fn creation(&self, mode: u16) -> Creation {
        Creation { mode, umask: 0, uid: self.uid, gid: self.gid }
    }

    fn create_node(&self, path: &Path, node: NewNode<'_>, mode: u16) -> Result<()> {
        self.own()?;
        let place = self.vacant(path)?;
        let by = self.creation(mode);
        self.fs.create(place.parent, &place.name, node, by).map_err(at(path))?;
        Ok(())
    }

    /// Where a new name goes.
    fn vacant(&self, path: &Path) -> Result<Located> {
        // A final slash is allowed for a directory to be and follows no link, as in mkdir(2).
        let place = locate(&self.fs, trim_slashes(path), Last::Keep)?;
        match place.attr {
            Some(_) => Err(at(path)(FsError::Exists)),
            None => Ok(place),
        }
    }

    /// A name that exists, and what it names.
    fn occupied(&self, path: &Path) -> Result<(Located, Attr)> {
        self.own()?;
        let place = locate(&self.fs, path, Last::Keep)?;
        let attr = place.attr.ok_or_else(|| at(path)(FsError::NotFound))?;
        if place.name.is_empty() {
            return Err(at(path)(FsError::Invalid("the path names no entry of a directory")));
        }
        Ok((place, attr))
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
fn strip_slashes<'a>(to: &'a Path, renamed: &Attr) -> &'a Path {
    if renamed.kind == FileKind::Directory { trim_slashes(to) } else { to }
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
