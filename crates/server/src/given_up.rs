//! Whose calls a service has forgotten that may come back all the same, and has to be told so.
//!
//! A process of another machine that is not back in time is given up: what it did is forgotten. It
//! comes back later as who it was, perhaps to the next service, and by the first call that it makes
//! then it is known to have been told. Until then it is kept here: who loses the connection over
//! which it was told has not heard of it.
//!
//! For the next service it is in a directory beside `nearside.attached`, `nearside.given-up`, as an
//! empty file for each, which is durable before anything is forgotten.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::beside::{clear, make, sync};

/// The directory's name.
const NAME: &str = "nearside.given-up";
/// Most that are written down.
const ALL_MAX: usize = 4096;

/// Until when somebody is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// By this service alone: the next one knows by other means that it knows nothing.
    Here,
    /// Written down by this service.
    Now,
    /// Written down by one before.
    Before,
}

/// Who was given up.
#[derive(Debug)]
pub struct GivenUp {
    /// None: the next service knows nobody.
    dir: Option<PathBuf>,
    all: Mutex<HashMap<u128, Kept>>,
}

impl GivenUp {
    /// Beside the file `attached`. `awaits`: somebody may come back to this service. False: it
    /// cannot be said whom the last one gave up.
    pub fn open(attached: Option<&Path>, awaits: bool) -> (GivenUp, bool) {
        let dir = attached.map(|path| path.with_file_name(NAME));
        let read = match &dir {
            Some(dir) if awaits => left_in(dir),
            Some(dir) => clear(dir).map(|()| HashMap::new()),
            None => Ok(HashMap::new()),
        };
        if let Err(error) = &read {
            tracing::warn!("{NAME}: {error}; who comes back is told that it is not known");
        }
        let is_said = read.is_ok();
        (GivenUp { dir, all: Mutex::new(read.unwrap_or_default()) }, is_said)
    }

    /// It is about to be forgotten. False: it could not be written down.
    pub fn add(&self, client: u128) -> bool {
        let mut all = self.all.lock();
        let is_written = match &self.dir {
            _ if matches!(all.get(&client), Some(Kept::Now | Kept::Before)) => true,
            Some(_) if all.len() >= ALL_MAX => false,
            Some(dir) => write_down(dir, client)
                .inspect_err(|error| tracing::warn!("{}: {error}", dir.display()))
                .is_ok(),
            None => true,
        };
        // where it is not, this service knows it all the same: by its being attached to this one
        let _ = if is_written { all.insert(client, Kept::Now) } else { all.remove(&client) };
        is_written
    }

    /// It comes back, and is not known as who it comes back.
    pub fn note(&self, client: u128) {
        self.all.lock().entry(client).or_insert(Kept::Here);
    }

    /// Whether it has not heard, as far as this service knows, that it is not known.
    pub fn has(&self, client: u128) -> bool {
        self.all.lock().contains_key(&client)
    }

    /// The same of one that was given up, whatever it comes back as.
    pub fn is_forgotten(&self, client: u128) -> bool {
        matches!(self.all.lock().get(&client), Some(Kept::Now | Kept::Before))
    }

    /// It has heard of it, or does not come back. Whether it was here.
    pub fn remove(&self, client: u128) -> bool {
        let kept = self.all.lock().remove(&client);
        if let (Some(dir), Some(Kept::Now | Kept::Before)) = (&self.dir, kept) {
            // left behind, it is told once more
            let _ = std::fs::remove_file(path(dir, client));
        }
        kept.is_some()
    }

    /// Nobody is known any more who was not attached to this service, whoever gave him up.
    pub fn end_before(&self) {
        let mut all = self.all.lock();
        for (client, kept) in all.iter_mut().filter(|(_, kept)| **kept == Kept::Before) {
            *kept = Kept::Here;
            let _ = self.dir.as_deref().map(|dir| std::fs::remove_file(path(dir, *client)));
        }
    }
}

fn path(dir: &Path, client: u128) -> PathBuf {
    dir.join(format!("{client:032x}"))
}

fn write_down(dir: &Path, client: u128) -> io::Result<()> {
    let path = path(dir, client);
    match make(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).create(dir)?;
            dir.parent().map_or(Ok(()), sync)?;
            make(&path)?;
        }
        made => made?,
    }
    sync(dir)
}

fn left_in(dir: &Path) -> io::Result<HashMap<u128, Kept>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HashMap::new()),
        entries => entries?,
    };
    let mut left = HashMap::new();
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| u128::from_str_radix(name, 16).ok());
        let number = number.ok_or_else(|| io::Error::other("a name that is none of its own"))?;
        left.insert(number, Kept::Before);
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn who_was_given_up_is_known_to_the_next_service_until_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let attached = dir.path().join("nearside.attached");
        let opened = || GivenUp::open(Some(&attached), true);
        let (first, read) = opened();
        assert!(read && !first.has(1));
        assert!(first.add(1) && first.add(1) && first.add(2));
        first.note(3);
        assert!([1, 2, 3].iter().all(|client| first.has(*client)));
        let (second, _) = opened();
        assert_eq!([1, 2, 3].map(|client| second.has(client)), [true, true, false]);
        second.remove(1);
        assert!(!second.has(1) && !opened().0.has(1));
        assert!(second.add(4));
        second.end_before();
        assert!(second.has(2), "it was not told by this service");
        assert_eq!([2, 4].map(|client| opened().0.has(client)), [false, true]);
        assert!(GivenUp::open(Some(&attached), false).1);
        assert!(!opened().0.has(4), "nobody comes back");
    }

    #[test]
    fn what_cannot_be_written_down_or_read_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let attached = dir.path().join("nearside.attached");
        std::fs::write(dir.path().join(NAME), "no directory").unwrap();
        let (given_up, read) = GivenUp::open(Some(&attached), true);
        assert!(!read && !given_up.add(1) && !given_up.has(1));
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        assert!(given_up.add(2));
        std::fs::write(dir.path().join(NAME).join("x"), "").unwrap();
        assert!(!GivenUp::open(Some(&attached), true).1);
        let many = GivenUp::open(None, true).0;
        assert!((0..5000).all(|client| many.add(client)), "there is no next one");
        let full = GivenUp { dir: Some(dir.path().to_path_buf()), all: many.all };
        assert!(full.has(4999) && !full.add(6000) && !full.has(6000));
    }
}
