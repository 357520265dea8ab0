//! What is open, in memory that outlives the forwarder: number and inode of each, 8 bytes both. An
//! inode of 0 is none, and is stored last.
//!
//! A service that has lost the mount opens all of it again, so that files without a name stay.

use std::collections::HashMap;

use parking_lot::Mutex;
use shm::Area;

const ENTRY_BYTES: usize = 16;

#[derive(Debug)]
pub(super) struct Opened(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    memory: Area,
    /// Where each number is.
    places: HashMap<u64, usize>,
    vacant: Vec<usize>,
}

impl Inner {
    fn entry(&self, at: usize) -> (u64, u64) {
        let word = |at: usize| {
            let bytes = self.memory.get(at..at + size_of::<u64>());
            bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        (word(at * ENTRY_BYTES), word(at * ENTRY_BYTES + size_of::<u64>()))
    }

    fn put(&mut self, at: usize, word: u64) {
        self.memory[at..at + size_of::<u64>()].copy_from_slice(&word.to_ne_bytes());
    }
}

impl Opened {
    /// Goes on with what a forwarder before left in `memory`.
    pub(super) fn take_over(memory: Area) -> Opened {
        let entries = memory.len() / ENTRY_BYTES;
        let mut inner = Inner { memory, places: HashMap::new(), vacant: Vec::new() };
        for at in (0..entries).rev() {
            match inner.entry(at) {
                (_, 0) => inner.vacant.push(at),
                (number, _) => drop(inner.places.insert(number, at)),
            }
        }
        Opened(Mutex::new(inner))
    }

    /// This number stands for an open file from now on.
    pub(super) fn add(&self, number: u64, ino: u64) {
        let mut inner = self.0.lock();
        if inner.places.contains_key(&number) || ino == 0 {
            return;
        }
        let Some(at) = inner.vacant.pop() else {
            // it is open all the same, and a service that follows does not know so
            return tracing::warn!("more files are open than can be kept from service to service");
        };
        inner.put(at * ENTRY_BYTES, number);
        inner.put(at * ENTRY_BYTES + size_of::<u64>(), ino);
        inner.places.insert(number, at);
    }

    /// The file of this number is closed.
    pub(super) fn remove(&self, number: u64) {
        let mut inner = self.0.lock();
        if let Some(at) = inner.places.remove(&number) {
            inner.put(at * ENTRY_BYTES + size_of::<u64>(), 0);
            inner.vacant.push(at);
        }
    }

    /// Number and inode of all that is open.
    pub(super) fn all(&self) -> Vec<[u64; 2]> {
        let inner = self.0.lock();
        inner.places.values().map(|at| inner.entry(*at)).map(|(one, two)| [one, two]).collect()
    }
}
