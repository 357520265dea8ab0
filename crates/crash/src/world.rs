//! A file system that a workload runs on, with short words for its calls.

use crate::attached::Attached;
use fs::{Attr, Creation, Error, FileSystem, Handle, Ino, NewNode, Pages, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::Pinned;

/// Who makes everything here.
pub const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 7, gid: 8 };

/// Stops this thread's clock, a while after the beginning: what it stores is the same each time.
pub fn clock(seconds: u64) {
    fs::stop_clock(Some(1_700_000_000_000_000_000 + seconds as i64 * 1_000_000_007));
}

/// Who keeps pages: of each second block he stored to each third byte.
struct EverySecond;

impl Pages for EverySecond {
    fn is_changed(&self, block: u64) -> bool {
        block % 2 == 1
    }

    fn merge(&self, _block: u64, at: usize, pages: &[u8], now: &mut [u8]) {
        let stored = (at..).zip(now).zip(pages).filter(|((place, _), _)| place % 3 == 0);
        stored.for_each(|((_, now), page)| *now = *page);
    }

    fn taken(&self, _offset: u64, _data: &[u8]) {}

    fn left(&self, _offset: u64, _data: &[u8], _end: u64) {}
}

/// The file system, the CPUs to run on, and open handles.
#[derive(Debug)]
pub struct World {
    /// The file system.
    pub fs: Arc<FileSystem>,
    /// Handles that operations left open, by name.
    pub handles: BTreeMap<&'static str, Arc<Handle>>,
    /// The CPU that it runs on.
    pub home: u32,
    /// Another one, where an operation asks for it.
    pub other: u32,
    /// A process that is attached.
    pub attached: Option<Attached>,
}

impl World {
    /// Runs on CPU `home`, and on `other` where an operation asks for it.
    pub fn new(fs: FileSystem, home: u32, other: u32) -> World {
        World::of(Arc::new(fs), home, other)
    }

    /// The same of a file system that others work on, too.
    pub fn of(fs: Arc<FileSystem>, home: u32, other: u32) -> World {
        World { fs, handles: BTreeMap::new(), home, other, attached: None }
    }

    /// Runs `act` on the other CPU: on another lane, and another slice if there are two.
    pub fn elsewhere<T>(&mut self, act: impl FnOnce(&mut World) -> T) -> T {
        let _pinned = Pinned::to(&[self.other]);
        act(self)
    }

    /// Runs `act` on the home CPU.
    pub fn at_home<T>(&mut self, act: impl FnOnce(&mut World) -> T) -> T {
        let _pinned = Pinned::to(&[self.home]);
        act(self)
    }

    /// Runs `act` on the other CPU in a thread of its own: its fences order only its own stores.
    pub fn on_thread<T: Send>(&self, act: impl FnOnce(&World) -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                clock(0);
                let _pinned = Pinned::to(&[self.other]);
                act(self)
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Ino, &'p [u8])> {
        let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.ino(dirs)?, name.as_bytes()))
    }

    /// The inode at `path`.
    pub fn ino(&self, path: &str) -> Result<Ino> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(Ino::ROOT, |ino, name| Ok(self.fs.lookup(ino, name.as_bytes())?.ino))
    }

    /// Makes an inode.
    pub fn make(&self, path: &str, node: NewNode<'_>) -> Result<Attr> {
        let (parent, name) = self.parent(path)?;
        self.fs.create(parent, name, node, BY)
    }

    /// Makes a file without a name that holds `data`, and keeps it open.
    pub fn unnamed(&mut self, data: &[u8]) -> Result<()> {
        let (_, handle) = self.fs.create_unnamed(self.ino("/dir")?, BY)?;
        self.handles.insert("unnamed", handle.clone());
        self.fs.write(&handle, 0, data).map(|_| ())
    }

    /// Gives it a name.
    pub fn name_unnamed(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let Some(handle) = self.handles.get("unnamed") else { return Err(fs::Error::NotFound) };
        self.fs.link(handle.ino(), parent, name).map(|_| ())
    }

    /// Opens it.
    pub fn open(&self, path: &str) -> Result<Arc<Handle>> {
        self.fs.open(self.ino(path)?)
    }

    /// Writes at `offset`.
    pub fn write(&self, path: &str, offset: u64, data: &[u8]) -> Result<()> {
        self.fs.write(&*self.open(path)?, offset, data).map(|_| ())
    }

    /// Moves what a file has to a slice, as far as there is room; whether anything was elsewhere.
    pub fn migrate(&self, path: &str, to: u8) -> Result<bool> {
        let done = self.fs.migrate(self.open(path)?.ino(), 0..u64::MAX, to)?;
        Ok(done.moved + done.stayed > 0)
    }

    /// Writes what comes by and by: so many bytes at a time, from the beginning on.
    pub fn write_in_pieces(&self, path: &str, data: &[u8], piece: usize) -> Result<()> {
        let file = self.open(path)?;
        let mut arrival = self.fs.begin_write(&file, 0, data.len()).ok_or(Error::NoSpace)?;
        data.chunks(piece).for_each(|piece| _ = arrival.put(piece));
        self.fs.end_write(arrival).map(|_| ())
    }

    /// Writes pages back, of whose blocks every second one was changed by others since.
    pub fn write_pages(&self, path: &str, offset: u64, data: &[u8]) -> Result<()> {
        self.fs.write_pages(&*self.open(path)?, offset, data, &EverySecond)
    }

    /// Writes to places of files in one transaction: path, offset, bytes.
    pub fn commit(&self, writes: &[(&str, u64, usize)]) -> Result<()> {
        let opened: Result<Vec<_>> = writes.iter().map(|(path, ..)| self.open(path)).collect();
        let opened = opened?;
        let data: Vec<Vec<u8>> =
            (40..).zip(writes).map(|(seed, (.., len))| pattern(seed, *len)).collect();
        let all: Vec<fs::Write<'_>> = opened
            .iter()
            .zip(writes)
            .zip(&data)
            .map(|((file, (_, offset, _)), data)| fs::Write { file, offset: *offset, data })
            .collect();
        self.fs.commit(&all, &[])
    }

    /// Copies from a place in a file to one in another, which shares what can be shared.
    pub fn copy(&self, from: (&str, u64), to: (&str, u64), len: u64) -> Result<()> {
        let (source, target) = (self.open(from.0)?, self.open(to.0)?);
        self.fs.copy((&*source, from.1), (&*target, to.1), len).map(|_| ())
    }

    /// Makes a file that holds `data`.
    pub fn file(&self, path: &str, data: &[u8]) -> Result<()> {
        self.make(path, NewNode::File)?;
        self.write(path, 0, data)
    }

    /// Removes a name.
    pub fn unlink(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.fs.unlink(parent, name).map(|_| ())
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.fs.rmdir(parent, name).map(|_| ())
    }

    /// Renames.
    pub fn rename(&self, from: &str, to: &str, mode: fs::RenameMode) -> Result<()> {
        self.fs.rename(self.parent(from)?, self.parent(to)?, mode).map(|_| ())
    }

    /// One more name.
    pub fn link(&self, path: &str, name: &str) -> Result<()> {
        let (parent, name) = self.parent(name)?;
        self.fs.link(self.ino(path)?, parent, name).map(|_| ())
    }

    /// Sets the size.
    pub fn truncate(&self, path: &str, size: u64) -> Result<()> {
        let change = fs::SetAttr { size: Some(size), ..fs::SetAttr::default() };
        self.fs.setattr(self.ino(path)?, &change).map(|_| ())
    }

    /// Punches, zeroes or reserves.
    pub fn fallocate(&self, path: &str, mode: fs::Fallocate, offset: u64, len: u64) -> Result<()> {
        self.fs.fallocate(&*self.open(path)?, mode, offset, len)
    }

    /// Sets an extended attribute.
    pub fn setxattr(&self, path: &str, name: &str, value: &[u8]) -> Result<()> {
        self.fs.setxattr(self.ino(path)?, name.as_bytes(), value, fs::XattrMode::Any)
    }
}

/// `len` bytes that tell `seed` and their place.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8) ^ (at >> 8) as u8 ^ seed.wrapping_mul(37) | 1).collect()
}

/// CPU number `index` of those that this thread may run on, counted round.
pub fn cpu(index: usize) -> u32 {
    let cpus = topology::allowed_cpus().unwrap_or_default();
    if cpus.is_empty() { 0 } else { cpus[index % cpus.len()] }
}
