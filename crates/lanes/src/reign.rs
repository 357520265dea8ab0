//! Which service owns a pool, for who looks at a word of memory and asks nobody.
//!
//! A process may have memory from its service that says what is in a file. It is right as long as
//! that service owns the pool: the next owner changes files, and does not know the memory. So a
//! service that gives such memory away makes a file with a word, which it sets, and the process
//! looks at it behind each look at the memory. Whoever opens the pool next clears the word before
//! anything else, and removes the file.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use shm::Words;

use crate::files::directory;
use crate::{Error, Result};

const NAME: &str = "reign";
const BYTES: u64 = 4096;
/// The only word.
const WORD: usize = 0;
/// It is set.
const LASTS: u64 = 1;

/// The word of the service that owns the pool; cleared when this is dropped.
#[derive(Debug)]
pub struct Reign {
    directory: PathBuf,
    words: Words,
    /// To be loaded.
    theirs: File,
}

impl Reign {
    /// That of a service which begins to give memory away, of the pool in `pool_dir`.
    pub fn begin(pool_dir: &Path) -> Result<Reign> {
        let directory = directory(pool_dir);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::io("mkdir")(error));
            }
            _ => {}
        }
        let path = directory.join(NAME);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(Error::io("open"))?;
        let flags = rustix::fs::FallocateFlags::empty();
        let allocated = rustix::fs::fallocate(&file, flags, 0, BYTES);
        let begin = || {
            allocated.map_err(|errno| Error::io("fallocate")(errno.into()))?;
            let words = Words::to_store(file.as_fd(), WORD + 1)?;
            let theirs = File::open(&path).map_err(Error::io("open"))?;
            words.store(WORD, LASTS);
            Ok(Reign { directory: directory.clone(), words, theirs })
        };
        begin().inspect_err(|_| remove(&directory))
    }

    /// The word's file, to be loaded.
    pub fn file(&self) -> &File {
        &self.theirs
    }

    /// Ends that of the service which owned the pool before, if it died or was replaced.
    pub(crate) fn end_last(directory: &Path) -> Result<()> {
        let file = match OpenOptions::new().read(true).write(true).open(directory.join(NAME)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file.map_err(Error::io("open"))?,
        };
        match Words::to_store(file.as_fd(), WORD + 1) {
            Ok(words) => words.store(WORD, 0),
            // it died before it had made it: nobody was given it
            Err(shm::Error::Foreign) => {}
            Err(error) => return Err(error.into()),
        }
        remove(directory);
        Ok(())
    }
}

impl Drop for Reign {
    fn drop(&mut self) {
        self.words.store(WORD, 0);
        remove(&self.directory);
    }
}

fn remove(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(NAME));
    // if nothing else is there
    let _ = std::fs::remove_dir(directory);
}

/// The word of the service that this process is attached to.
#[derive(Debug)]
pub struct Subject(Words);

impl Subject {
    /// Over the file that the service gave.
    pub fn new(file: &File) -> Result<Subject> {
        Ok(Subject(Words::to_load(file.as_fd(), WORD + 1)?))
    }

    /// Whether that service owns the pool still. What this thread loaded before was right then.
    #[inline]
    pub fn is_ruled(&self) -> bool {
        // ordering: nothing that was loaded before is loaded after this
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        self.0.load(WORD) == LASTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_opens_the_pool_next_ends_it() {
        let pool = tempfile::tempdir().unwrap();
        let lanes = directory(pool.path());
        let dead = Reign::begin(pool.path()).unwrap();
        let subject = Subject::new(dead.file()).unwrap();
        // as if it had been killed
        std::mem::forget(dead);
        assert!(subject.is_ruled());
        assert!(Reign::begin(pool.path()).is_err(), "there is one at a time");
        Reign::end_last(&lanes).unwrap();
        assert!(!subject.is_ruled() && !lanes.exists());
        Reign::end_last(&lanes).unwrap();

        let next = Reign::begin(pool.path()).unwrap();
        let theirs = Subject::new(next.file()).unwrap();
        assert!(theirs.is_ruled() && !subject.is_ruled());
        drop(next);
        assert!(!theirs.is_ruled() && !lanes.exists());
    }
}
