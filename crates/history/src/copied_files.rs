//! The files of a history as `nearside cp` copies them out of the pool, and others over them: a
//! process for each copy.
//!
//! A copy is no single moment: what lies in a file is read piece by piece. A file that is copied
//! over is emptied, which is one change, and written, which is another one: it is one piece.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::plan::{CELL_BYTES, History, PAGE_CELLS};
use crate::record::{Act, Answer, bytes, runs};

/// What copies files out of a pool, and into it.
#[derive(Debug)]
pub struct CopiedFiles {
    nearside: PathBuf,
    pool: PathBuf,
    scratch: tempfile::TempDir,
}

/// The error of a copy that failed: one that no model knows.
const FAILED: i32 = -1;
const BLOCK_BYTES: usize = PAGE_CELLS as usize * CELL_BYTES;
/// The block that a copy with a gap leaves out: the second of a file.
const GAP: Range<usize> = BLOCK_BYTES..2 * BLOCK_BYTES;

impl CopiedFiles {
    /// Copies with the program `nearside`, out of the pool in this directory.
    pub fn new(nearside: PathBuf, pool: PathBuf) -> std::io::Result<CopiedFiles> {
        Ok(CopiedFiles { nearside, pool, scratch: tempfile::tempdir()? })
    }

    pub fn answer(&self, history: &History, act: &Act, number: u64) -> Answer {
        match *act {
            Act::Copy { file, cells, .. } => self.copy_out(history, file, cells),
            Act::CopyIn { file, cells } => self.copy_in(history, file, &bytes(number, cells), &[]),
            _ => Answer::failed(FAILED),
        }
    }

    /// Copies into the pool as the act says, but leaves out a block.
    pub fn copy_in_with_gap(&self, history: &History, act: &Act, number: u64) -> Answer {
        let Act::CopyIn { file, cells } = *act else { return Answer::failed(FAILED) };
        self.copy_in(history, file, &bytes(number, cells), &[GAP])
    }

    fn copy_out(&self, history: &History, file: u32, cells: u32) -> Answer {
        let to = self.scratch.path().join("copy");
        let copied = self.copy(&[self.inside(history, file).as_os_str(), to.as_os_str()]);
        let seen = std::fs::read(&to);
        // the next copy makes it anew
        let _ = std::fs::remove_file(&to);
        match seen {
            Ok(mut seen) if copied => {
                seen.truncate(cells as usize * CELL_BYTES);
                let runs = runs(history.number, &seen);
                Answer { runs: Some(vec![runs]), ..Answer::default() }
            }
            _ => Answer::failed(FAILED),
        }
    }

    /// Copies these bytes over a file, but for the `gaps`, which are holes and stay holes.
    fn copy_in(&self, history: &History, file: u32, data: &[u8], gaps: &[Range<usize>]) -> Answer {
        let from = self.scratch.path().join("source");
        if let Err(error) = write_with_gaps(&from, data, gaps) {
            eprintln!("{}: {error}", from.display());
            return Answer::failed(FAILED);
        }
        let to = self.inside(history, file);
        let copied = match gaps.is_empty() {
            true => self.copy(&[from.as_os_str(), &to]),
            false => self.copy(&[OsStr::new("--sparse"), from.as_os_str(), &to]),
        };
        match copied {
            true => Answer::default(),
            false => Answer::failed(FAILED),
        }
    }

    /// A file as `nearside cp` names it.
    fn inside(&self, history: &History, file: u32) -> OsString {
        let mut name = self.pool.clone().into_os_string();
        name.push(format!(":/{}", history.file(file)));
        name
    }

    /// Whether `nearside cp` copied.
    fn copy(&self, words: &[&OsStr]) -> bool {
        let mut command = Command::new(&self.nearside);
        command.arg("cp").args(words).stdin(Stdio::null());
        command.output().is_ok_and(|output| {
            if !output.status.success() {
                eprintln!("nearside cp: {}", String::from_utf8_lossy(&output.stderr));
            }
            output.status.success()
        })
    }
}

fn write_with_gaps(path: &Path, data: &[u8], gaps: &[Range<usize>]) -> std::io::Result<()> {
    let file = File::create(path)?;
    let mut at = 0;
    for gap in gaps {
        file.write_all_at(&data[at..gap.start], at as u64)?;
        at = gap.end;
    }
    file.write_all_at(&data[at..], at as u64)
}
