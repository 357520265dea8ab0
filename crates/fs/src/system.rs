//! The file system's interface: what every door calls.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::region_memory::check_buffer;
use crate::take_over::{self, TakeOver};
use crate::types::*;
use placement::Kind;
use pmem::Process;
use pool::{Candidate, OpenOptions, Pool, PoolInfo, Recovery};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// How often a close folds what other threads changed meanwhile.
const CLOSES_MAX: u32 = 1000;

/// The file system of one pool. All calls may come from many threads.
#[derive(Debug)]
pub struct FileSystem {
    pub(crate) core: Arc<Core>,
    background: parking_lot::Mutex<Vec<JoinHandle<()>>>,
    replayed: u64,
}

impl FileSystem {
    /// Opens the pool in `dir`, exclusively, and recovers it.
    pub fn open_pool(dir: &Path, options: &OpenOptions) -> Result<FileSystem> {
        let (pool, recovery) = crate::away::open_pool(dir, options)?;
        FileSystem::recover(pool, &recovery, &TakeOver::default(), true)
    }

    /// Opens the pool that these slices make. Without `background`, checkpoints are made by the
    /// calls that need them: what happens is the same on every run.
    pub fn open_candidates(
        candidates: Vec<Candidate>,
        options: &OpenOptions,
        background: bool,
    ) -> Result<FileSystem> {
        let (pool, recovery) = Pool::open_candidates(candidates, options)?;
        FileSystem::recover(pool, &recovery, &TakeOver::default(), background)
    }

    pub(crate) fn recover(
        pool: Pool,
        recovery: &Recovery,
        asked: &TakeOver,
        background: bool,
    ) -> Result<FileSystem> {
        let read_only = pool.read_only();
        let (core, replayed) = take_over::recover(pool, recovery, asked)?;
        let core = Arc::new(core);
        core.observer.let_levers(core.root()?.placing().levers);
        if background {
            core.start_evictors()?;
        }
        let mut threads = Vec::new();
        if !read_only {
            // damage without a record is cut off, too, or every later open would meet it
            if !recovery.records.is_empty() || !recovery.damage.is_empty() {
                core.commit_recovery()?;
            }
            core.pool.write_state(true)?;
            take_over::settle_orphans(&core, asked.keep_orphans)?;
            if background {
                core.background.store(true, Ordering::Relaxed);
                let runner = core.clone();
                threads.push(spawn("ns-checkpoint", move || runner.run_background())?);
                threads.extend(core.start_writers()?.into_iter().chain(core.start_migrator()?));
                let runner = core.clone();
                if !core.pool.stale_slices().is_empty() {
                    threads.push(spawn("ns-resilver", move || runner.resilver(None))?);
                }
            }
        }
        Ok(FileSystem { core, background: parking_lot::Mutex::new(threads), replayed })
    }

    /// Checkpoints and closes. Dropping without it is safe: the next open recovers.
    pub fn close(&self) -> Result<()> {
        self.end_background();
        if self.core.pool.read_only() {
            return Ok(());
        }
        self.release_orphans()?;
        for _ in 0..CLOSES_MAX {
            self.core.checkpoint()?;
            // a change that came between is to be folded, too: a closed pool has an empty log
            let _closed = self.core.pool.close_gate();
            if self.core.all_folded() {
                self.core.pool.write_state(false)?;
                self.core.pool.poison("the pool is closed");
                self.core.locks.clear();
                return Ok(());
            }
        }
        Err(Error::Invalid("other threads still change the pool: end them, then close it"))
    }

    fn end_background(&self) {
        self.core.end_moves();
        let threads = std::mem::take(&mut *self.background.lock());
        if !threads.is_empty() {
            self.core.resilvering.stop();
            self.core.stop_write_back();
            self.core.stop_background();
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }

    /// The process that opened it. A forked child has the memory, but neither threads nor locks:
    /// it must not call anything else, and dropping what it has does nothing.
    pub fn process(&self) -> Process {
        self.core.process
    }

    /// Whether that is this process.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.core.process.is_here()
    }

    /// What the pool says about itself.
    pub fn info(&self) -> PoolInfo {
        self.core.pool.info()
    }

    /// Records that recovery replayed at open.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// The entry `name` of directory `parent`; `.` and `..` are known.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.core.lookup(parent, name)
    }

    /// Attributes of `ino`.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.core.getattr(ino)
    }

    /// Changes attributes, truncates or extends.
    pub fn setattr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        self.core.setattr(ino, change, None)
    }

    /// Makes a new inode named `name` in `parent`.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        node: NewNode<'_>,
        by: Creation,
    ) -> Result<Attr> {
        self.core.create(parent, name, node, by, None)
    }

    /// Removes a name that is not a directory's. Returns what is left of the inode if that was its
    /// last name: its attributes, with no link.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>> {
        self.core.remove(parent, name, false, None)
    }

    /// Removes an empty directory; returns what is left of it.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>> {
        self.core.remove(parent, name, true, None)
    }

    /// Renames, in one atomic step. Returns what is left of what was replaced, if that was its last
    /// name.
    pub fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Attr>> {
        self.core.rename(from, to, mode, None)
    }

    /// Gives `ino` (not a directory) one more name, but none to one that lost its last name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.core.link(ino, parent, name, None)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.core.readlink(ino)
    }

    /// Opens an inode of any kind.
    pub fn open(&self, ino: Ino) -> Result<Arc<Handle>> {
        let inode = self.core.inode(ino)?;
        // under the lock that a removal holds: it sees the handle, or the open sees the removal
        let meta = inode.meta.read();
        if meta.gone {
            return Err(Error::NotFound);
        }
        inode.opens.fetch_add(1, Ordering::AcqRel);
        drop(meta);
        Ok(self.handle(inode))
    }

    /// Makes a file without a name, open, which is gone when it is closed, or the pool is, unless
    /// [`link`](FileSystem::link) gave it a name before (O_TMPFILE). It inherits from `parent`.
    pub fn create_unnamed(&self, parent: Ino, by: Creation) -> Result<(Attr, Arc<Handle>)> {
        self.for_caller(None).create_unnamed(parent, by)
    }

    /// A handle of an inode that counts it already.
    pub(crate) fn handle(&self, inode: Arc<Inode>) -> Arc<Handle> {
        Arc::new(Handle { core: self.core.clone(), inode, lock_key: AtomicU64::new(0) })
    }

    /// Reads at `offset`; returns bytes read, fewer than asked only at the end of the file.
    pub fn read(&self, handle: &Handle, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        holds_data(&handle.inode)?;
        check_buffer(buffer)?;
        self.core.settle(&handle.inode);
        let began = self.trace_began();
        let read = self.core.read(&handle.inode, offset, buffer)?;
        self.trace_done(began, &handle.inode, (Kind::Read, offset, read));
        self.core.was_read(&handle.inode);
        Ok(read)
    }

    /// Writes all of `data` at `offset`, each piece of up to [`ATOMIC_WRITE_BYTES_MAX`] atomically;
    /// returns bytes written (fewer than asked only when space ran out between pieces).
    pub fn write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        let began = self.trace_began();
        let written = self.core.write(&handle.inode, offset, data)?;
        self.trace_done(began, &handle.inode, (Kind::Write, offset, written));
        Ok(written)
    }

    /// Copies `len` bytes between two files, or two ranges of one that do not overlap; returns
    /// bytes copied, fewer than asked at the source's end, or when what came then failed. Whole
    /// blocks are shared where both offsets lie alike in theirs; holes stay holes.
    pub fn copy(
        &self,
        (from, from_offset): (&Handle, u64),
        (to, to_offset): (&Handle, u64),
        len: u64,
    ) -> Result<u64> {
        self.core.settle(&from.inode);
        self.core.settle(&to.inode);
        let copied = self.core.copy((&from.inode, from_offset), (&to.inode, to_offset), len)?;
        self.core.was_read(&from.inode);
        Ok(copied)
    }

    /// Reserves, punches or zeroes a range.
    pub fn fallocate(&self, handle: &Handle, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.core.fallocate(&handle.inode, mode, offset, len)
    }

    /// First data (`data` true) or hole at or after `offset`; ENXIO past the end.
    pub fn seek(&self, handle: &Handle, offset: u64, data: bool) -> Result<u64> {
        holds_data(&handle.inode)?;
        self.core.settle(&handle.inode);
        self.core.seek(&handle.inode, offset, data)
    }

    /// Everything returned before is durable when this returns (a no-op but in the `sync` domain).
    pub fn fsync(&self, handle: &Handle) -> Result<()> {
        handle.inode.unsynced.store(0, Ordering::Relaxed);
        self.sync()
    }

    /// Everything in the pool is durable when this returns.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Calls `each` for entries after `cookie` (0 = from the start) in cookie order until it
    /// returns false. `.` and `..` are not given.
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        let dir = self.core.inode(ino)?;
        if dir.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        self.core.list(&dir, cookie, each)?;
        self.core.was_read(&dir);
        Ok(())
    }

    /// Value of an extended attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.core.getxattr(ino, name, None)
    }

    /// Sets an extended attribute. The lists of acl(5) are attributes in the kernel's format; the
    /// access list and the permission bits follow each other.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.setxattr_by(ino, name, value, mode, true)
    }

    /// The same, by somebody who is in the inode's group, or may act as if, or is not: then a new
    /// access list takes set-group-id away.
    pub fn setxattr_by(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        in_group: bool,
    ) -> Result<()> {
        self.core.change_xattr(ino, (name, Some(value)), mode, in_group, None)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.core.change_xattr(ino, (name, None), XattrMode::Replace, true, None)
    }

    /// Names of all extended attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.core.listxattr(ino)
    }

    /// Directory that holds directory `ino` (the root's is the root).
    pub fn parent(&self, ino: Ino) -> Result<Ino> {
        let dir = self.core.inode(ino)?;
        if dir.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        Ok(dir.meta.read().parent)
    }

    /// Space of the pool.
    pub fn statfs(&self) -> StatFs {
        let (blocks, blocks_free) = self.core.blocks();
        StatFs {
            block_bytes: pool::BLOCK_BYTES as u32,
            blocks,
            blocks_free,
            inodes: self.core.inodes.load(Ordering::Relaxed).max(0) as u64,
            // an inode takes about 1/16 of a tree page
            inodes_free: blocks_free.saturating_mul(16),
        }
    }

    /// Folds all changes into the trees and frees the log.
    pub fn checkpoint(&self) -> Result<()> {
        self.core.checkpoint()
    }

    /// What checkpoints cost so far: how many, and bytes written by them.
    pub fn checkpoint_cost(&self) -> (u64, u64) {
        let bytes = self.core.checkpoint_bytes.load(Ordering::Relaxed);
        (self.core.checkpoints.load(Ordering::Relaxed), bytes)
    }

    /// Bytes of log records written since open.
    pub fn log_bytes_written(&self) -> u64 {
        self.core.pool.slices().iter().map(|slice| slice.log.bytes_written()).sum()
    }
}

pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|source| {
        let path = format!("the thread {name}").into();
        Error::from(pool::Error::Io { path, source })
    })
}

pub fn holds_data(inode: &Inode) -> Result<()> {
    match inode.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid("only a regular file holds data")),
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if !self.is_own() {
            // threads, locks and pool are the parent's
            std::mem::take(self.background.get_mut()).into_iter().for_each(std::mem::forget);
            return std::mem::forget(self.core.clone());
        }
        self.end_background();
        self.core.locks.clear();
    }
}
