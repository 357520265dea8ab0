//! What is measured, where, and how long.

use placement::Machine;
use std::path::{Path, PathBuf};

/// What is measured, where, and how long.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directory for the scratch pools in the `process` domain; `None`: `/dev/shm`.
    pub dir: Option<PathBuf>,
    /// Directory on a disk for the rows in the `sync` domain; `None`: the temporary directory.
    pub disk: Option<PathBuf>,
    /// This row only.
    pub only: Option<String>,
    /// The rows on an emulated machine play this one instead of their own.
    pub emulate: Option<Machine>,
    /// Directory for pictures of curves; `None`: there are none.
    pub pictures: Option<PathBuf>,
    /// Fewer rounds and files: for a look, not for a record.
    pub quick: bool,
}

impl Options {
    pub(crate) fn dir(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new("/dev/shm"))
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.disk.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Rounds of a row whose turns are long enough to hold a checkpoint.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 3 } else { 9 }
    }

    /// Rounds of a row with short turns.
    pub(crate) fn short_rounds(&self) -> usize {
        if self.quick { 11 } else { 41 }
    }
}
