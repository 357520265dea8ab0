//! Files of a mirrored pool that are away for one life of it, one after the other.

use crate::common::scratch;
use fs::FileSystem;
use pool::FormatOptions;
use std::path::Path;

/// The same with two copies of everything, if that is asked for.
pub fn mirrored(options: FormatOptions, mirrored: bool) -> FormatOptions {
    let data_copies = if mirrored { 2 } else { 1 };
    let slice_bytes = options.slice_bytes * u64::from(data_copies);
    FormatOptions { data_copies, slice_bytes, ..options }
}

/// The file that is away now.
pub struct Away {
    place: tempfile::TempDir,
    /// Slices of the mirrored pool; 0: it is none.
    slices: usize,
    turns: usize,
    now: Option<usize>,
}

impl Away {
    pub fn new(slices: usize) -> Away {
        Away { place: scratch(), slices, turns: 0, now: None }
    }

    pub fn is_any(&self) -> bool {
        self.now.is_some()
    }

    /// Between two lives of the pool in `dir`: a file goes, or comes back.
    pub fn turn(&mut self, dir: &Path) {
        if self.slices == 0 {
            return;
        }
        let name = |slice: usize| format!("slice.{slice}");
        let moved = match self.now.take() {
            Some(slice) => {
                let away = self.place.path().join(name(slice));
                let back = std::fs::copy(&away, dir.join(name(slice)));
                back.and_then(|_| std::fs::remove_file(away))
            }
            None => {
                let slice = self.turns % self.slices;
                self.turns += 1;
                self.now = Some(slice);
                let gone =
                    std::fs::copy(dir.join(name(slice)), self.place.path().join(name(slice)));
                gone.and_then(|_| std::fs::remove_file(dir.join(name(slice))))
            }
        };
        moved.unwrap();
    }

    /// The pool is open: what was away is brought up to date.
    pub fn settle(&self, fs: &FileSystem) {
        if self.now.is_none()
            && let Some(done) = fs.resilver(&mut |_, _| true)
        {
            assert_eq!(done.ended, Some(Ok(())), "{done:?}");
        }
    }
}
