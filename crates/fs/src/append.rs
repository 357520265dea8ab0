//! Writing at the end of a file.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::region_memory;
use crate::request::{self, Answer};
use crate::system::FileSystem;
use crate::types::ATOMIC_WRITE_BYTES_MAX;
use crate::write::check_write;
use placement::Kind;
use pool::BLOCK_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl FileSystem {
    /// Writes at the end of the file, atomically against other appends; returns the offset where
    /// the data went.
    pub fn append(&self, handle: &Handle, data: &[u8]) -> Result<u64> {
        let began = self.trace_began();
        let offset = self.core.append(&handle.inode, data)?;
        self.trace_done(began, &handle.inode, (Kind::Write, offset, data.len()));
        Ok(offset)
    }
}

impl Core {
    /// Writes at the end of the file; returns where. More than one record can describe is written
    /// from its last part on: that takes the place of all of it, and other appends go behind.
    pub fn append(&self, inode: &Arc<Inode>, data: &[u8]) -> Result<u64> {
        let asked = request::is_current();
        if asked && data.len() > ATOMIC_WRITE_BYTES_MAX {
            return Err(Error::Invalid("a request that may be sent again appends 2 MiB at most"));
        }
        check_write(inode, 0, data.len())?;
        let last = match data.len() % ATOMIC_WRITE_BYTES_MAX {
            0 => data.len().min(ATOMIC_WRITE_BYTES_MAX),
            rest => rest,
        };
        let (front, tail) = data.split_at(data.len() - last);
        let tail = &*region_memory::outside(tail);
        let start = self.change(|| {
            loop {
                let from = inode.size.load(Ordering::Acquire) / BLOCK_BYTES;
                let range = inode.ranges.lock(from, u64::MAX);
                let size = inode.size.load(Ordering::Acquire);
                if size / BLOCK_BYTES < from {
                    continue;
                }
                self.may_change(inode, size / BLOCK_BYTES, u64::MAX)?;
                check_write(inode, size, data.len())?;
                if asked {
                    request::answer_with(Answer::At(size));
                }
                if !tail.is_empty() {
                    let at = size + front.len() as u64;
                    match asked {
                        true => self.write_asked(inode, at, tail)?,
                        false => self.write_locked(inode, &range, at, tail)?,
                    }
                }
                return Ok(size);
            }
        })?;
        if front.is_empty() {
            return Ok(start);
        }
        let written = self.write(inode, start, front)?;
        if written == front.len() { Ok(start) } else { Err(Error::NoSpace) }
    }
}
