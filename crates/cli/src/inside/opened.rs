//! What the other way has beyond the library's own calls, for a pool that this process opened.

use std::path::Path;

use nearside::files::{Error as FsError, FileExtent, FileExtras, Ino, Layout, NearSlice, SetAttr};
use nearside::{Error, OpenFlags, Pool, Result};
use nearside_fuse::placed::EXTENTS_MAX;

use super::{Entry, Opening};
use crate::content::Content;

/// The library's calls in the words of [`super::Inside`].
pub trait Opened {
    /// The entries of a directory.
    fn entries(&self, path: &Path) -> Result<Vec<Entry>>;
    /// Opens a file.
    fn open_content(&self, path: &Path, how: Opening) -> Result<Content>;
    /// Changes attributes, of a symbolic link's target if `follow`.
    fn change(&self, path: &Path, change: &SetAttr, follow: bool) -> Result<()>;
    /// Where new blocks go.
    fn layout(&self, path: &Path) -> Result<Layout>;
    /// Sets that.
    fn set_layout(&self, path: &Path, layout: Layout) -> Result<()>;
    /// Some extents of a file, and where to go on.
    fn extents(&self, path: &Path, offset: u64) -> Result<(Vec<FileExtent>, Option<u64>)>;
    /// What a file has beside them, and where to go on.
    fn extras(&self, path: &Path, offset: u64) -> Result<(FileExtras, Option<u64>)>;
    /// The pool's slices.
    fn near_slices(&self) -> Result<Vec<NearSlice>>;
}

impl Opened for Pool {
    fn entries(&self, path: &Path) -> Result<Vec<Entry>> {
        let entries = self.read_dir(path)?;
        entries
            .map(|entry| entry.map(|it| Entry { name: it.name_bytes().to_vec(), kind: it.kind() }))
            .collect()
    }

    fn open_content(&self, path: &Path, how: Opening) -> Result<Content> {
        let flags = match how {
            Opening::Read => OpenFlags::new().read(true),
            Opening::New(mode) => OpenFlags::new().write(true).create_new(true).mode(mode),
            Opening::Emptied => OpenFlags::new().write(true).truncate(true),
        };
        self.open_file(path, &flags).map(Content::Inside)
    }

    fn change(&self, path: &Path, change: &SetAttr, follow: bool) -> Result<()> {
        let meta = if follow { self.metadata(path)? } else { self.symlink_metadata(path)? };
        let changed = self.fs().setattr(Ino(meta.ino()), change);
        changed.map(drop).map_err(at(path))
    }

    fn layout(&self, path: &Path) -> Result<Layout> {
        self.fs().layout(Ino(self.metadata(path)?.ino())).map_err(at(path))
    }

    fn set_layout(&self, path: &Path, layout: Layout) -> Result<()> {
        self.fs().set_layout(Ino(self.metadata(path)?.ino()), layout).map_err(at(path))
    }

    fn extents(&self, path: &Path, offset: u64) -> Result<(Vec<FileExtent>, Option<u64>)> {
        let ino = Ino(self.metadata(path)?.ino());
        self.fs().extents(ino, offset, EXTENTS_MAX).map_err(at(path))
    }

    fn extras(&self, path: &Path, offset: u64) -> Result<(FileExtras, Option<u64>)> {
        let ino = Ino(self.metadata(path)?.ino());
        self.fs().extras(ino, offset).map_err(at(path))
    }

    fn near_slices(&self) -> Result<Vec<NearSlice>> {
        Ok(self.fs().near_slices())
    }
}

fn at(path: &Path) -> impl Fn(FsError) -> Error + '_ {
    move |source| Error::Path { path: path.to_path_buf(), source }
}
