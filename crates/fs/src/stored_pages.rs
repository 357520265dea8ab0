//! Pages that somebody kept, and stored to: they come back whole, and what is taken of them is what
//! was stored. What became of the file meanwhile stays.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::request;
use crate::system::FileSystem;
use crate::types::ATOMIC_WRITE_BYTES_MAX;
use crate::write::{blocks_of, check_write};
use pool::BLOCK_BYTES;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Who knows what pages were when they were given to whoever keeps them. The range of what is asked
/// is held.
pub trait Pages {
    /// Whether somebody changed this block since; else all of its pages is taken.
    fn is_changed(&self, block: u64) -> bool;

    /// Puts into `now`, which the file holds from `at` in the block on, what was stored to these
    /// bytes of its pages.
    fn merge(&self, block: u64, at: usize, pages: &[u8], now: &mut [u8]);

    /// These bytes of the pages were taken, and are what the pages were from now on.
    fn taken(&self, offset: u64, data: &[u8]);

    /// Of these bytes of the pages those from `end` on lie behind the file's end, and nothing
    /// becomes of them.
    fn left(&self, offset: u64, data: &[u8], end: u64);
}

impl FileSystem {
    /// Writes pages back: changes the bytes of the file that were stored to the pages, in changes
    /// that are each atomic (one, but on a full pool), and no others. Nothing is written behind the
    /// file's end: a file that was cut does not grow again.
    pub fn write_pages(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        pages: &dyn Pages,
    ) -> Result<()> {
        let core = &self.core;
        check_write(&handle.inode, offset, data.len())?;
        core.settle(&handle.inode);
        match core.write_pages(&handle.inode, offset, data, (pages, ATOMIC_WRITE_BYTES_MAX)) {
            Err(Error::NoSpace) if data.len() > BLOCK => {
                core.write_pages(&handle.inode, offset, data, (pages, BLOCK))
            }
            result => result,
        }
    }
}

impl Core {
    fn write_pages(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        (pages, piece_max): (&dyn Pages, usize),
    ) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            // pieces end where blocks do
            let room = piece_max - (at % BLOCK_BYTES) as usize;
            let piece = &data[done..data.len().min(done + room)];
            let write = || self.change(|| self.write_stored(inode, at, piece, pages));
            let ends = done + piece.len() == data.len();
            let written = if ends { write() } else { request::repeatable(write) };
            written?;
            done += piece.len();
        }
        Ok(())
    }

    fn write_stored(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        pages: &dyn Pages,
    ) -> Result<()> {
        let (first, last) = blocks_of(offset, data.len());
        let _range = inode.ranges.lock(first, last);
        self.may_change(inode, first, last)?;
        // whoever moves the end from here, or to here, has these blocks
        let inside = inode.size.load(Ordering::Acquire).saturating_sub(offset);
        let inside = data.len().min(usize::try_from(inside).unwrap_or(usize::MAX));
        if inside > 0 {
            self.write_inside(inode, offset, &data[..inside], pages)?;
        }
        if inside < data.len() {
            pages.left(offset, data, offset + inside as u64);
        }
        Ok(())
    }

    /// The same of what lies before the file's end.
    fn write_inside(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        pages: &dyn Pages,
    ) -> Result<()> {
        let (first, last) = blocks_of(offset, data.len());
        let mut merged = Cow::Borrowed(data);
        let mut at = 0;
        for block in first..=last {
            let place = ((offset + at as u64) % BLOCK_BYTES) as usize;
            let end = data.len().min(at + BLOCK - place);
            if pages.is_changed(block) {
                let mut now = vec![0; end - at];
                self.read_held(inode, offset + at as u64, &mut now)?;
                pages.merge(block, place, &data[at..end], &mut now);
                merged.to_mut()[at..end].copy_from_slice(&now);
            }
            at = end;
        }
        self.write_asked(inode, offset, &merged)?;
        pages.taken(offset, data);
        Ok(())
    }
}
