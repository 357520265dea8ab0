//! What a call writes, divided into pieces that are each atomic.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::region_memory::is_region_memory;
use crate::request;
use crate::types::ATOMIC_WRITE_BYTES_MAX;
use crate::write::{blocks_of, check_write};
use pool::BLOCK_BYTES;
use std::sync::Arc;

/// What a write is divided into where the slices have no room for all of it at one time.
const TIERED_PIECE_BYTES: usize = 64 << 10;
/// What a write is divided into on a full pool.
const FULL_PIECE_BYTES: usize = 2 * BLOCK_BYTES as usize;

impl Core {
    /// Writes all of `data`, in pieces that are each atomic; returns bytes written.
    pub fn write(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<usize> {
        check_write(inode, offset, data.len())?;
        if is_region_memory(data) {
            return self.write_region_memory(inode, offset, data);
        }
        // the short ways know no requests: this look is all that they pay for them
        if data.len() > ATOMIC_WRITE_BYTES_MAX || request::is_current() {
            return self.write_pieces(inode, offset, data, ATOMIC_WRITE_BYTES_MAX);
        }
        if data.is_empty() {
            return Ok(0);
        }
        match self.write_piece(inode, offset, data) {
            Ok(()) => Ok(data.len()),
            // more than the slices have room for at one time
            Err(Error::NoSpace) if self.tier.is_some() && data.len() > TIERED_PIECE_BYTES => {
                self.write_pieces(inode, offset, data, TIERED_PIECE_BYTES)
            }
            Err(Error::NoSpace) if data.len() > FULL_PIECE_BYTES => {
                self.write_when_full(inode, offset, data)
            }
            Err(error) => Err(error),
        }
    }

    /// On a full pool, and nothing is written: a little at a time may be, where blocks are
    /// overwritten or reserved.
    #[cold]
    fn write_when_full(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<usize> {
        match self.needs_no_more(inode, offset / BLOCK_BYTES)? {
            true => self.write_pieces(inode, offset, data, FULL_PIECE_BYTES),
            false => Err(Error::NoSpace),
        }
    }

    /// Writes pieces of `piece_max` bytes at most, for a request or not.
    #[cold]
    fn write_pieces(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        piece_max: usize,
    ) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let piece = &data[done..data.len().min(done + piece_max)];
            let (first, last) = blocks_of(at, piece.len());
            let write = || {
                self.change(|| {
                    let _range = inode.ranges.lock(first, last);
                    self.may_change(inode, first, last)?;
                    self.write_asked(inode, at, piece)
                })
            };
            let ends = done + piece.len() == data.len();
            match if ends { write() } else { request::repeatable(write) } {
                Ok(()) => done += piece.len(),
                Err(Error::NoSpace) if piece.len() > FULL_PIECE_BYTES => {
                    match self.write_when_full(inode, at, &data[done..]) {
                        Ok(more) => return Ok(done + more),
                        Err(Error::NoSpace) if done > 0 => break,
                        Err(error) => return Err(error),
                    }
                }
                Err(Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    #[inline]
    fn write_piece(&self, inode: &Arc<Inode>, offset: u64, piece: &[u8]) -> Result<()> {
        let (first, last) = blocks_of(offset, piece.len());
        self.change(|| {
            let range = inode.ranges.lock(first, last);
            self.may_change(inode, first, last)?;
            self.write_locked(inode, &range, offset, piece)
        })
    }
}
