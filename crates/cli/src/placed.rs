//! Where a file of a mount lies, as the mount tells it of any path.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nearside::files::{Decided, FileExtent, FileExtras, Heat, Ino, Layout, NearSlice};
use nearside_fuse::placed::{self, DECISIONS, EXTENTS, EXTRAS, HEAT, LAYOUT, SLICES};

use crate::xattrs;

/// Where new blocks go.
pub fn layout(path: &Path) -> io::Result<Layout> {
    ask(path, LAYOUT, placed::layout)
}

/// Sets that.
pub fn set_layout(path: &Path, layout: Layout) -> io::Result<()> {
    xattrs::set(path, OsStr::new(LAYOUT), layout.to_string().as_bytes())
}

/// Some extents of a file from `offset` on, and where to go on.
pub fn extents(path: &Path, offset: u64) -> io::Result<(Vec<FileExtent>, Option<u64>)> {
    ask(path, &format!("{EXTENTS}{offset}"), placed::extents)
}

/// What a file has beside them from `offset` on, and where to go on.
pub fn extras(path: &Path, offset: u64) -> io::Result<(FileExtras, Option<u64>)> {
    ask(path, &format!("{EXTRAS}{offset}"), placed::extras)
}

/// Who would gain by having parts of a file near, from `offset` on, and where to go on.
pub fn heat(path: &Path, offset: u64) -> io::Result<(Vec<Heat>, Option<u64>)> {
    ask(path, &format!("{HEAT}{offset}"), placed::heat)
}

/// What was decided about a file lately.
pub fn decisions(path: &Path) -> io::Result<Vec<Decided>> {
    let ino = Ino(std::fs::metadata(path)?.ino());
    ask(path, DECISIONS, |value| placed::decisions(ino, value))
}

/// The pool's slices.
pub fn slices(path: &Path) -> io::Result<Vec<NearSlice>> {
    ask(path, SLICES, placed::slices)
}

/// What the mount says, if it is one of ours: others know no such attribute.
fn ask<T>(path: &Path, name: &str, understood: impl Fn(&[u8]) -> Option<T>) -> io::Result<T> {
    let value = xattrs::get(path, OsStr::new(name))?;
    let value = value.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTSUP))?;
    understood(&value).ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))
}
