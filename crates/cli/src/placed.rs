//! Where a file of a mount lies, as the mount tells it of any path.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use nearside::files::{FileExtent, FileExtras, Layout, NearSlice};
use nearside_fuse::placed::{self, EXTENTS, EXTRAS, LAYOUT, SLICES};

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
