//! A scratch directory: made empty, removed at the end, also after an error.
//!
//! What a killed run left behind is removed by the next one.

use crate::error::{Result, io};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PREFIX: &str = "nearside-bench-";

/// Held while a directory is made, and for ever when the process is to end.
static MAKING: Mutex<()> = Mutex::new(());

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new directory in `parent`.
    pub fn new(parent: &Path) -> Result<Scratch> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let _making = making();
        remove_leftovers(parent);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(io(&path))?;
        Ok(Scratch { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn making() -> MutexGuard<'static, ()> {
    MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what this process made in `parents` and lets it make nothing more: it ends now.
pub fn end_all(parents: &[&Path]) {
    std::mem::forget(making());
    for parent in parents {
        remove(parent, |process| process == std::process::id());
    }
}

fn remove_leftovers(parent: &Path) {
    remove(parent, |process| !Path::new(&format!("/proc/{process}")).exists());
}

/// Removes the directories of the processes that `whose` says yes to.
fn remove(parent: &Path, whose: impl Fn(u32) -> bool) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let process = process.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(&whose) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_this_run_nor_of_a_killed_one() {
        let parent = Scratch::new(&std::env::temp_dir()).unwrap();
        // no process has this number: the kernel's are below 2^22
        let dead = parent.path().join(format!("{PREFIX}{}-0", u32::MAX));
        std::fs::create_dir(&dead).unwrap();
        let path = Scratch::new(parent.path()).unwrap().path().to_path_buf();
        assert!(!dead.exists());
        assert!(!path.exists());
    }
}
