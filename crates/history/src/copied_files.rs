//! The files of a history as `nearside cp` copies them out of the pool: a process for each copy.
//!
//! A copy is no single moment: what lies in a file is read piece by piece.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::plan::{CELL_BYTES, History};
use crate::record::{Act, Answer, runs};

/// What copies files out of a pool.
#[derive(Debug)]
pub struct CopiedFiles {
    nearside: PathBuf,
    pool: PathBuf,
    scratch: tempfile::TempDir,
}

/// The error of a copy that failed: one that no model knows.
const FAILED: i32 = -1;

impl CopiedFiles {
    /// Copies with the program `nearside`, out of the pool in this directory.
    pub fn new(nearside: PathBuf, pool: PathBuf) -> std::io::Result<CopiedFiles> {
        Ok(CopiedFiles { nearside, pool, scratch: tempfile::tempdir()? })
    }

    pub fn answer(&self, history: &History, act: &Act) -> Answer {
        let Act::Copy { file, cells, .. } = *act else { return Answer::failed(FAILED) };
        let to = self.scratch.path().join("copy");
        let mut from = self.pool.clone().into_os_string();
        from.push(format!(":/{}", history.file(file)));
        let mut command = Command::new(&self.nearside);
        command.arg("cp").arg(from).arg(&to).stdin(Stdio::null());
        let copied = command.output().is_ok_and(|output| {
            if !output.status.success() {
                eprintln!("nearside cp: {}", String::from_utf8_lossy(&output.stderr));
            }
            output.status.success()
        });
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
}
