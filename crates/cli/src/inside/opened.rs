//! What the other way has beyond the library's own calls, for a pool that this process opened, or
//! that it is attached to.

use std::path::Path;

use nearside::files::{
    Decided, Error as FsError, FileExtent, FileExtras, Heat, Ino, NearSlice, Placing,
};
use nearside::{Error, FileSystem, OpenFlags, Pool, Result};
use nearside_fuse::placed::EXTENTS_MAX;

use super::{Entry, Opening};
use crate::content::Content;
use crate::placed::Setting;

/// The library's calls in the words of [`super::Inside`].
pub trait Opened {
    /// The entries of a directory.
    fn entries(&self, path: &Path) -> Result<Vec<Entry>>;
    /// Opens a file.
    fn open_content(&self, path: &Path, how: Opening) -> Result<Content>;
    /// Where new blocks go, and how far data and threads may move.
    fn placing(&self, path: &Path) -> Result<Placing>;
    /// Sets something of that.
    fn set_placed(&self, path: &Path, settings: &[Setting]) -> Result<()>;
    /// Some extents of a file, and where to go on.
    fn extents(&self, path: &Path, offset: u64) -> Result<(Vec<FileExtent>, Option<u64>)>;
    /// What a file has beside them, and where to go on.
    fn extras(&self, path: &Path, offset: u64) -> Result<(FileExtras, Option<u64>)>;
    /// Who would gain by having parts of a file near, and where to go on.
    fn heat(&self, path: &Path, offset: u64) -> Result<(Vec<Heat>, Option<u64>)>;
    /// What was decided about a file lately.
    fn decisions(&self, path: &Path) -> Result<Vec<Decided>>;
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

    fn placing(&self, path: &Path) -> Result<Placing> {
        engine(self, path)?.placing(Ino(self.metadata(path)?.ino())).map_err(at(path))
    }

    fn set_placed(&self, path: &Path, settings: &[Setting]) -> Result<()> {
        let ino = Ino(self.metadata(path)?.ino());
        engine(self, path)?.setattr(ino, &Setting::change(settings)).map(drop).map_err(at(path))
    }

    fn extents(&self, path: &Path, offset: u64) -> Result<(Vec<FileExtent>, Option<u64>)> {
        let ino = Ino(self.metadata(path)?.ino());
        engine(self, path)?.extents(ino, offset, EXTENTS_MAX).map_err(at(path))
    }

    fn extras(&self, path: &Path, offset: u64) -> Result<(FileExtras, Option<u64>)> {
        let ino = Ino(self.metadata(path)?.ino());
        engine(self, path)?.extras(ino, offset).map_err(at(path))
    }

    fn heat(&self, path: &Path, offset: u64) -> Result<(Vec<Heat>, Option<u64>)> {
        let ino = Ino(self.metadata(path)?.ino());
        engine(self, path)?.heat(ino, offset).map_err(at(path))
    }

    fn decisions(&self, path: &Path) -> Result<Vec<Decided>> {
        let ino = Ino(self.metadata(path)?.ino());
        Ok(engine(self, path)?.decisions(Some(ino)))
    }

    fn near_slices(&self) -> Result<Vec<NearSlice>> {
        Ok(engine(self, Path::new("/"))?.near_slices())
    }
}

/// The engine of a pool that this process opened.
fn engine<'p>(pool: &'p Pool, path: &Path) -> Result<&'p FileSystem> {
    match pool.is_attached() {
        false => Ok(pool.fs()),
        true => Err(at(path)(FsError::Unsupported(
            "where blocks of a pool lie, while a service has it and it is not mounted",
        ))),
    }
}

fn at(path: &Path) -> impl Fn(FsError) -> Error + '_ {
    move |source| Error::Path { path: path.to_path_buf(), source }
}
