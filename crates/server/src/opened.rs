//! What a session has open, by number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fs::{Error as FsError, FileSystem, Handle, Watch};
use nearside::{Error, File};
use parking_lot::{Mutex, RwLock};

use crate::read_cache::{CachedFile, ReadCache};

/// Files and directories that a process can have open at once.
const OPENED_MAX: usize = 1 << 16;

const NOT_OPEN: FsError = FsError::Invalid("nothing of this number is open");

/// A file or a directory.
#[derive(Clone, Debug)]
pub enum Opened {
    /// A file.
    File(File),
    /// A directory.
    Directory(Arc<Handle>),
    /// What a service before this one had open, and this one has not: why.
    Stale(&'static str),
}

/// One of them.
#[derive(Debug)]
pub struct One {
    opened: Opened,
    /// Watches the file, once somebody wants to know whether it changes.
    watch: OnceLock<Arc<Watch>>,
    /// Has pages in the read cache, once it was read.
    cached: OnceLock<Arc<CachedFile>>,
}

/// Numbers are given out once.
#[derive(Debug, Default)]
pub struct Table {
    all: RwLock<(u64, HashMap<u64, One>)>,
    /// What the process had open over a connection before this one, and has not asked for so far.
    inherited: Mutex<HashMap<u64, One>>,
    has_inherited: AtomicBool,
}

impl One {
    fn new(opened: Opened) -> One {
        One { opened, watch: OnceLock::new(), cached: OnceLock::new() }
    }
}

impl Table {
    /// Adds one; `None` where there are too many.
    pub fn add(&self, opened: Opened) -> Option<u64> {
        let mut table = self.all.write();
        if table.1.len() >= OPENED_MAX {
            return None;
        }
        table.0 += 1;
        let number = table.0;
        table.1.insert(number, One::new(opened));
        Some(number)
    }

    /// Has what the other one has, for who asks for it by its number.
    pub fn inherit(&self, other: &Table) {
        let (last, mut all) = std::mem::take(&mut *other.all.write());
        all.extend(other.inherited.lock().drain());
        self.all.write().0 = last;
        *self.inherited.lock() = all;
        self.has_inherited.store(true, Ordering::Release);
    }

    /// Takes one over that was inherited. False: there is none of this number.
    pub fn take_over(&self, number: u64) -> bool {
        let one = self.inherited.lock().remove(&number);
        one.is_some_and(|one| self.all.write().1.insert(number, one).is_none())
    }

    /// Closes what was inherited, and nobody has asked for.
    pub fn end_inheritance(&self) {
        // ordering: who asks for it is one thread, and has it before it asks for anything else
        if self.has_inherited.load(Ordering::Acquire) {
            self.has_inherited.store(false, Ordering::Release);
            let left = std::mem::take(&mut *self.inherited.lock());
            // closed while no lock of the table is held
            drop(left);
        }
    }

    /// Adds one under the number that it had. False: it has it still, or there are too many.
    pub fn restore(&self, number: u64, opened: Opened) -> bool {
        let mut table = self.all.write();
        let has_room = table.1.len() < OPENED_MAX && !table.1.contains_key(&number);
        if has_room {
            table.0 = table.0.max(number);
            table.1.insert(number, One::new(opened));
        }
        has_room
    }

    /// What has this number.
    pub fn get(&self, number: u64) -> nearside::Result<Opened> {
        match self.all.read().1.get(&number).map(|one| &one.opened) {
            Some(Opened::Stale(why)) => Err(Error::Files(FsError::Elsewhere {
                errno: rustix::io::Errno::STALE.raw_os_error(),
                words: (*why).to_owned(),
            })),
            Some(opened) => Ok(opened.clone()),
            None => Err(Error::Files(NOT_OPEN)),
        }
    }

    /// The file of this number.
    pub fn file(&self, number: u64) -> nearside::Result<File> {
        match self.get(number)? {
            Opened::File(file) => Ok(file),
            _ => Err(Error::Files(NOT_OPEN)),
        }
    }

    /// What watches the file of this number, from now on until it is closed.
    pub fn watch(&self, fs: &FileSystem, number: u64) -> nearside::Result<Arc<Watch>> {
        let file = self.file(number)?;
        let handle = file.handle()?;
        match self.all.read().1.get(&number) {
            Some(one) => Ok(one.watch.get_or_init(|| Arc::new(fs.watch(handle))).clone()),
            None => Err(Error::Files(NOT_OPEN)),
        }
    }

    /// Puts pages of the file of this number into the read cache, until it is closed.
    pub fn cached(
        &self,
        fs: &Arc<FileSystem>,
        number: u64,
        cache: &Arc<ReadCache>,
    ) -> nearside::Result<Arc<CachedFile>> {
        let of_this = |table: &HashMap<u64, One>| {
            table.get(&number).map(|one| one.cached.get().cloned()).ok_or(Error::Files(NOT_OPEN))
        };
        if let Some(cached) = of_this(&self.all.read().1)? {
            return Ok(cached);
        }
        let file = self.file(number)?;
        let of_all = cache.file(fs, file.handle()?).ok_or(Error::Files(NOT_OPEN))?;
        let table = self.all.read();
        let one = table.1.get(&number).ok_or(Error::Files(NOT_OPEN));
        one.map(|one| one.cached.get_or_init(|| of_all.clone()).clone())
    }

    /// Takes one out, to be dropped by the caller, who holds no lock of the table's then.
    pub fn remove(&self, number: u64) -> Option<One> {
        self.all.write().1.remove(&number)
    }

    /// Takes all out.
    pub fn clear(&self) -> Vec<One> {
        self.end_inheritance();
        std::mem::take(&mut self.all.write().1).into_values().collect()
    }
}
