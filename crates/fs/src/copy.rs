//! Copying within the pool: whole blocks that lie alike in both files are shared, the rest is read
//! and written.
//!
//! A copy is a row of steps, each of which is atomic: blocks that are shared by one record, up to
//! 16 MiB (`share.rs`); holes that are punched; bytes that are written. Bytes are copied where the
//! two offsets differ within a block, for parts of blocks at either end (not at the source's end,
//! where the target ends, too), and for blocks whose bytes lie elsewhere: in patches, or in the
//! log.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::leaf::LEAF_BLOCKS;
use crate::request;
use crate::share::Shared;
use crate::types::FileKind;
use crate::write::check_write;
use pool::BLOCK_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that are copied by one write.
const BYTES_MAX: u64 = 1 << 20;

/// A place in a file.
pub type Place<'p> = (&'p Arc<Inode>, u64);

impl Core {
    /// Copies `len` bytes from one place to another; returns bytes copied, fewer than asked at the
    /// source's end, or when what came then failed. It can be done again without harm, and so
    /// carries no request's id.
    pub fn copy(&self, from: Place<'_>, to: Place<'_>, len: u64) -> Result<u64> {
        match from.0.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid("only a regular file holds data")),
        }
        check_write(to.0, to.1, 0)?;
        let len = len.min(from.0.size.load(Ordering::Acquire).saturating_sub(from.1));
        check_write(to.0, to.1, len as usize)?;
        let apart = from.1 + len <= to.1 || to.1 + len <= from.1;
        if from.0.ino == to.0.ino && !apart && len > 0 {
            return Err(Error::Invalid("the ranges overlap"));
        }
        request::repeatable(|| {
            let mut done = 0;
            while done < len {
                let (from, to) = ((from.0, from.1 + done), (to.0, to.1 + done));
                match self.copy_step(from, to, len - done) {
                    Ok(0) => break,
                    Ok(bytes) => done += bytes,
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(done)
        })
    }

    /// Copies some of the `len` bytes; none, if the source ends.
    fn copy_step(&self, from: Place<'_>, to: Place<'_>, len: u64) -> Result<u64> {
        let inside = from.1 % BLOCK_BYTES;
        if inside != to.1 % BLOCK_BYTES {
            return self.copy_bytes(from, to, len);
        }
        let part = len.min(BLOCK_BYTES - inside);
        let hole = self.hole_at(from)?.min(len);
        // a short hole among blocks is shared with them
        if (hole >= part && part < BLOCK_BYTES) || hole >= LEAF_BLOCKS * BLOCK_BYTES {
            let bytes = if inside == 0 { hole } else { part };
            let end = to.1 + bytes;
            return self.zero(to.0, to.1, end, end).map(|()| bytes);
        }
        if inside != 0 {
            return self.copy_bytes(from, to, part);
        }
        match self.share(from, to, len)? {
            Shared::Done(bytes) => Ok(bytes),
            Shared::NotToBe(bytes) => self.copy_bytes(from, to, bytes),
        }
    }

    /// How many bytes of the file are a hole from here on.
    fn hole_at(&self, (inode, offset): Place<'_>) -> Result<u64> {
        let size = inode.size.load(Ordering::Acquire);
        match self.seek(inode, offset, true) {
            Ok(data) => Ok(data - offset),
            Err(Error::NoSuchRange) => Ok(size.saturating_sub(offset)),
            Err(error) => Err(error),
        }
    }

    fn copy_bytes(&self, from: Place<'_>, to: Place<'_>, len: u64) -> Result<u64> {
        let mut buffer = vec![0; len.min(BYTES_MAX) as usize];
        let bytes = self.read(from.0, from.1, &mut buffer)?;
        Ok(self.write(to.0, to.1, &buffer[..bytes])? as u64)
    }
}
