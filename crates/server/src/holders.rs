//! Who has locks, beyond the end of a service: so that the next one gives nobody else a lock until
//! they are back, and makes nobody wait when they are.
//!
//! It is in a directory beside `nearside.attached`, `nearside.holders`, as an empty file for each:
//! its number, and `.here` or `.there`, for a process of this machine or another one's. A process
//! of this machine ends with it, so that only the others have to be found after a power cut, too:
//! their files are made durable. A file named `complete` says that nobody is missing.
//!
//! Who once had a lock stays until it goes: what it has now it says itself when it comes back.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::beside::{clear, make, sync};

/// The directory's name.
const NAME: &str = "nearside.holders";
/// The door that is not the service's, among them: nobody draws this number.
pub const OTHER_DOOR: u128 = 0;
const COMPLETE: &str = "complete";

/// Where a holder of locks is: on this machine, or on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Here,
    There,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Here => "here",
            Side::There => "there",
        }
    }
}

/// Who has locks.
#[derive(Debug)]
pub struct Holders {
    /// The file beside it. None: the next service is told nothing.
    attached: Option<PathBuf>,
    dir: Option<PathBuf>,
    all: Mutex<HashMap<u128, Side>>,
    /// Somebody could not be written down.
    lacks_somebody: AtomicBool,
}

impl Holders {
    /// Beside the file `attached`; with whom the last service left there, where that is known.
    /// `awaits`: they may come back; else nobody is left.
    pub fn open(attached: Option<&Path>, awaits: bool) -> (Holders, Option<HashMap<u128, Side>>) {
        let dir = attached.map(|path| path.with_file_name(NAME));
        let left = dir.as_deref().filter(|_| awaits).and_then(left_in);
        let all = Mutex::new(left.clone().unwrap_or_default());
        let (attached, lacks_somebody) = (attached.map(Path::to_path_buf), AtomicBool::new(false));
        let holders = Holders { attached, dir, all, lacks_somebody };
        if left.is_none() {
            holders.begin(!awaits);
        }
        (holders, left)
    }

    /// Nobody is there. Where somebody may be of whom nothing is known, it stays incomplete: until
    /// a service has ended in order.
    fn begin(&self, is_complete: bool) {
        let Some(dir) = &self.dir else { return };
        let made = clear(dir).and_then(|()| {
            DirBuilder::new().mode(0o700).create(dir)?;
            if is_complete { make(&dir.join(COMPLETE)) } else { Ok(()) }
        });
        if let Err(error) = made {
            tracing::warn!("{}: {error}; the next service waits longer", dir.display());
        }
    }

    /// It is about to get a lock. False: it could not be written down, which the next service is
    /// going to know.
    pub fn add(&self, client: u128, side: Side) -> bool {
        let Some(dir) = &self.dir else { return true };
        let Err(error) = self.write_down(dir, client, side) else { return true };
        if !self.lacks_somebody.swap(true, Ordering::SeqCst) {
            tracing::warn!("{}: {error}; the next service waits longer", dir.display());
        }
        // in a directory that is full, or damaged, less is possible still
        let _ = std::fs::remove_file(dir.join(COMPLETE));
        false
    }

    fn write_down(&self, dir: &Path, client: u128, side: Side) -> io::Result<()> {
        // also by a service before this one, which made it durable then
        if self.all.lock().contains_key(&client) {
            return Ok(());
        }
        make(&path(dir, client, side))?;
        if side == Side::There {
            // others need not wait for that; and each thread of this one waits for itself
            match self.attached.as_deref().map_or(Ok(()), sync) {
                // it could not be made: nobody comes back at all
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            sync(dir)?;
            dir.parent().map_or(Ok(()), sync)?;
        }
        self.all.lock().insert(client, side);
        Ok(())
    }

    /// It has none any more, and does not come back, unless `is_there` knows that it has.
    pub fn remove_unless(&self, client: u128, is_there: impl FnOnce(u128) -> bool) {
        let mut all = self.all.lock();
        if all.contains_key(&client) && !is_there(client) {
            let side = all.remove(&client);
            // left behind, it is waited for in vain
            if let (Some(dir), Some(side)) = (&self.dir, side) {
                let _ = std::fs::remove_file(path(dir, client, side));
            }
        }
    }

    /// Who had locks, and is not there by now, does not come back.
    pub fn keep_only(&self, is_there: impl Fn(u128) -> bool) {
        let all: Vec<u128> = self.all.lock().keys().copied().collect();
        all.into_iter().for_each(|client| self.remove_unless(client, &is_there));
        if self.lacks_somebody.load(Ordering::SeqCst) {
            return;
        }
        let complete = self.dir.as_deref().map(|dir| make(&dir.join(COMPLETE)));
        if let Some(Err(error)) = complete {
            tracing::warn!("{COMPLETE}: {error}; the next service waits longer");
        }
    }

    /// The service ends in order.
    pub fn end(&self) {
        let _ = self.dir.as_deref().map(clear);
    }
}

fn path(dir: &Path, client: u128, side: Side) -> PathBuf {
    dir.join(format!("{client:032x}.{}", side.name()))
}

/// Who is in the directory; none: it cannot be said, or not of all.
fn left_in(dir: &Path) -> Option<HashMap<u128, Side>> {
    let mut left = HashMap::new();
    let mut is_complete = false;
    for entry in std::fs::read_dir(dir).ok()? {
        let name = entry.ok()?.file_name();
        let name = name.to_str()?;
        if name == COMPLETE {
            is_complete = true;
            continue;
        }
        let (number, side) = name.split_once('.')?;
        let side = [Side::Here, Side::There].into_iter().find(|one| one.name() == side)?;
        left.insert(u128::from_str_radix(number, 16).ok()?, side);
    }
    is_complete.then_some(left)
}

#[cfg(test)]
#[path = "holders_tests.rs"]
mod tests;
