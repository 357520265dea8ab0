//! What a session has open, by number.

use std::collections::HashMap;
use std::sync::Arc;

use nearside::{File, ReadDir};
use parking_lot::{Mutex, RwLock};

/// Files and directories that a process can have open at once.
const OPENED_MAX: usize = 1 << 16;

/// A file or a directory.
#[derive(Clone, Debug)]
pub enum Opened {
    /// A file.
    File(File),
    /// A directory, and how far it has been read.
    Directory(Arc<Mutex<ReadDir>>),
}

/// Numbers are given out once.
#[derive(Debug, Default)]
pub struct Table(RwLock<(u64, HashMap<u64, Opened>)>);

impl Table {
    /// Adds one; `None` where there are too many.
    pub fn add(&self, opened: Opened) -> Option<u64> {
        let mut table = self.0.write();
        if table.1.len() >= OPENED_MAX {
            return None;
        }
        table.0 += 1;
        let number = table.0;
        table.1.insert(number, opened);
        Some(number)
    }

    /// The file of this number.
    pub fn file(&self, number: u64) -> Option<File> {
        match self.0.read().1.get(&number) {
            Some(Opened::File(file)) => Some(file.clone()),
            _ => None,
        }
    }

    /// The directory of this number.
    pub fn directory(&self, number: u64) -> Option<Arc<Mutex<ReadDir>>> {
        match self.0.read().1.get(&number) {
            Some(Opened::Directory(directory)) => Some(directory.clone()),
            _ => None,
        }
    }

    /// Takes one out, to be dropped by the caller, who holds no lock of the table's then.
    pub fn remove(&self, number: u64) -> Option<Opened> {
        self.0.write().1.remove(&number)
    }

    /// Takes all out.
    pub fn clear(&self) -> Vec<Opened> {
        std::mem::take(&mut self.0.write().1).into_values().collect()
    }
}
