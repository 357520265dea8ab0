//! Files, directories, attributes, locks: the POSIX semantics.
//!
//! Skeleton of the interface; every body is written next.
#![forbid(unsafe_code)]

mod error;
mod types;

pub use error::{Error, Result};
pub use types::*;

use std::sync::Arc;

/// The file system of one pool. All calls may come from many threads.
#[derive(Debug)]
pub struct FileSystem {}

/// An open inode: keeps it (also unlinked) until dropped.
#[derive(Debug)]
pub struct Handle {}

impl Handle {
    /// The inode's number.
    pub fn ino(&self) -> Ino {
        todo!()
    }
}

impl FileSystem {
    /// The entry `name` of directory `parent`; `.` and `..` are known.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let _ = (parent, name);
        todo!()
    }
    /// Attributes of `ino`.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let _ = ino;
        todo!()
    }
    /// Changes attributes, truncates or extends.
    pub fn setattr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        let _ = (ino, change);
        todo!()
    }
    /// Makes a new inode named `name` in `parent`.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        node: NewNode<'_>,
        by: Creation,
    ) -> Result<Attr> {
        let _ = (parent, name, node, by);
        todo!()
    }
    /// Removes a name that is not a directory's.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _ = (parent, name);
        todo!()
    }
    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _ = (parent, name);
        todo!()
    }
    /// Renames, in one atomic step.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()> {
        let _ = (from, to, mode);
        todo!()
    }
    /// Gives `ino` (not a directory) one more name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let _ = (ino, parent, name);
        todo!()
    }
    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let _ = ino;
        todo!()
    }
    /// Opens an inode of any kind.
    pub fn open(&self, ino: Ino) -> Result<Arc<Handle>> {
        let _ = ino;
        todo!()
    }
    /// Reads at `offset`; returns bytes read, fewer than asked only at the end of the file.
    pub fn read(&self, handle: &Handle, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let _ = (handle, offset, buffer);
        todo!()
    }
    /// Writes all of `data` at `offset`, each piece of up to [`ATOMIC_WRITE_BYTES_MAX`] atomically; returns bytes written
    /// (fewer than asked only when space ran out between pieces).
    pub fn write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        let _ = (handle, offset, data);
        todo!()
    }
    /// Writes at the end of the file, atomically against other appends; returns the offset where the data went.
    pub fn append(&self, handle: &Handle, data: &[u8]) -> Result<u64> {
        let _ = (handle, data);
        todo!()
    }
    /// Reserves, punches or zeroes a range.
    pub fn fallocate(&self, handle: &Handle, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let _ = (handle, mode, offset, len);
        todo!()
    }
    /// First data (`data` true) or hole at or after `offset`; ENXIO past the end.
    pub fn seek(&self, handle: &Handle, offset: u64, data: bool) -> Result<u64> {
        let _ = (handle, offset, data);
        todo!()
    }
    /// Everything returned before is durable when this returns (a no-op but in the `sync` domain).
    pub fn fsync(&self, handle: &Handle) -> Result<()> {
        let _ = handle;
        todo!()
    }
    /// Everything in the pool is durable when this returns.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    /// Calls `each` for entries after `cookie` (0 = from the start) in cookie order until it returns false.
    /// `.` and `..` are not given.
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        let _ = (ino, cookie, each);
        todo!()
    }
    /// Value of an extended attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _ = (ino, name);
        todo!()
    }
    /// Sets an extended attribute.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let _ = (ino, name, value, mode);
        todo!()
    }
    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _ = (ino, name);
        todo!()
    }
    /// Names of all extended attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let _ = ino;
        todo!()
    }
    /// Directory that holds directory `ino` (the root's is the root).
    pub fn parent(&self, ino: Ino) -> Result<Ino> {
        let _ = ino;
        todo!()
    }
    /// Space of the pool.
    pub fn statfs(&self) -> StatFs {
        todo!()
    }
    /// Folds all changes into the trees and frees the log.
    pub fn checkpoint(&self) -> Result<()> {
        todo!()
    }
}

/// One thing that `check` found wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Where: a slice and byte, an inode, a path.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// What `check` saw.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Everything wrong; empty means clean.
    pub findings: Vec<Finding>,
    /// Inodes visited.
    pub inodes: u64,
    /// Data blocks whose checksums were verified.
    pub blocks: u64,
    /// Log records replayed in memory (0 after a clean close).
    pub records: u64,
}

/// Makes an empty file system: a pool with a root directory.
pub fn format(dir: &std::path::Path, options: &pool::FormatOptions) -> Result<()> {
    let _ = (dir, options);
    todo!()
}

/// Verifies everything that a closed pool stores; changes nothing.
pub fn check(dir: &std::path::Path) -> Result<CheckReport> {
    let _ = dir;
    todo!()
}

impl FileSystem {
    /// Opens the pool in `dir`, exclusively, and recovers it.
    pub fn open_pool(dir: &std::path::Path, options: &pool::OpenOptions) -> Result<FileSystem> {
        let _ = (dir, options);
        todo!()
    }
    /// Checkpoints and closes. Dropping without it is safe: the next open recovers.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
    /// What the pool says about itself.
    pub fn info(&self) -> pool::PoolInfo {
        todo!()
    }
}
