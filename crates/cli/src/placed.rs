//! Where a file of a mount lies, as the mount tells it of any path.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nearside::files::{
    Decided, FileExtent, FileExtras, Heat, Ino, Layout, Lever, Levers, NearSlice, Placing, SetAttr,
};
use nearside_fuse::placed::{
    self, DECISIONS, EXTENTS, EXTRAS, HEAT, LAYOUT, MOVE_DATA, MOVE_THREADS, SLICES,
};

use crate::xattrs;

/// What can be set of where a file lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Where new blocks go.
    Layout(Layout),
    /// How far its data may move to its readers,
    MoveData(Lever),
    /// and its readers to it.
    MoveThreads(Lever),
}

impl Setting {
    /// All of these as a change of attributes; the last one of a kind counts.
    pub fn change(all: &[Setting]) -> SetAttr {
        all.iter().fold(SetAttr::default(), |change, setting| match *setting {
            Setting::Layout(layout) => SetAttr { layout: Some(layout), ..change },
            Setting::MoveData(lever) => SetAttr { move_data: Some(lever), ..change },
            Setting::MoveThreads(lever) => SetAttr { move_threads: Some(lever), ..change },
        })
    }
}

/// Where new blocks go, and how far data and threads may move.
pub fn placing(path: &Path) -> io::Result<Placing> {
    let lever = |name| match ask(path, name, placed::lever) {
        // a server from before there were any
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Lever::On),
        said => said,
    };
    let levers = Levers { threads: lever(MOVE_THREADS)?, data: lever(MOVE_DATA)? };
    Ok(Placing { layout: ask(path, LAYOUT, placed::layout)?, levers })
}

/// Sets these, one after the other.
pub fn set(path: &Path, settings: &[Setting]) -> io::Result<()> {
    settings.iter().try_for_each(|setting| {
        let (name, value) = match setting {
            Setting::Layout(layout) => (LAYOUT, layout.to_string()),
            Setting::MoveData(lever) => (MOVE_DATA, lever.to_string()),
            Setting::MoveThreads(lever) => (MOVE_THREADS, lever.to_string()),
        };
        xattrs::set(path, OsStr::new(name), value.as_bytes())
    })
}

/// That in a line.
pub fn said(placing: &Placing) -> String {
    let Placing { layout, levers } = placing;
    let held = |what: &str, lever: Lever| match lever {
        Lever::On => String::new(),
        less => format!(", {what} {less}"),
    };
    let (data, threads) = (held("move-data", levers.data), held("move-threads", levers.threads));
    format!("layout {layout}{data}{threads}")
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
