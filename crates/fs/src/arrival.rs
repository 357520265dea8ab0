//! Writes whose bytes come by and by, as a network brings them: each goes to its block when it
//! comes, and the file has them all, in one step, at the end.
//!
//! Until then nobody names these blocks: who gives up gives them back, and after a crash they are
//! free.

use crate::clock::now;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::item::Placed;
use crate::long_record::InRecord;
use crate::slot::SlotChange;
use crate::system::FileSystem;
use crate::types::{ATOMIC_WRITE_BYTES_MAX, FileKind};
use crate::write::{Piece, Prepared, blocks_of, check_write};
use placement::Kind;
use pmem::InFlight;
use pool::{BLOCK_BYTES, BlockAddr, Extent, KIND_CHANGE, RecordBuffer};
use std::sync::Arc;

const BLOCK: usize = BLOCK_BYTES as usize;

/// A write under way.
#[derive(Debug)]
pub struct Arrival {
    core: Arc<Core>,
    inode: Arc<Inode>,
    offset: u64,
    /// Bytes that it is going to have.
    len: usize,
    /// The places of its whole blocks, and of those that have come their checksums, too.
    addrs: Vec<BlockAddr>,
    placed: Vec<Placed>,
    /// What was taken for it.
    extents: Vec<Extent>,
    /// What has come of a block that is not whole so far.
    rest: Vec<u8>,
}

impl FileSystem {
    /// Begins a write of so many bytes, which are to [come](Arrival::put) in their order. `None`:
    /// where it is not worth it, and on a full pool, they are to be collected and written.
    pub fn begin_write(&self, handle: &Handle, offset: u64, len: usize) -> Option<Arrival> {
        let (core, inode) = (&self.core, &handle.inode);
        let fits =
            offset.is_multiple_of(BLOCK_BYTES) && (BLOCK..=ATOMIC_WRITE_BYTES_MAX).contains(&len);
        if !fits || inode.kind != FileKind::File || check_write(inode, offset, len).is_err() {
            return None;
        }
        let (first, count) = (offset / BLOCK_BYTES, (len / BLOCK) as u64);
        let blocks: Vec<u64> = (first..first + count).collect();
        let mut extents = Vec::new();
        let addrs = core.take_placed(inode, &blocks, &mut extents).ok()?;
        let (core, inode) = (core.clone(), inode.clone());
        let (placed, rest) = (Vec::with_capacity(addrs.len()), Vec::new());
        Some(Arrival { core, inode, offset, len, addrs, placed, extents, rest })
    }

    /// Ends a write all of whose bytes have come: it happens as one atomic write. An error: it has
    /// not happened.
    pub fn end_write(&self, mut arrival: Arrival) -> Result<usize> {
        let (len, inode) = (arrival.len, arrival.inode.clone());
        if arrival.placed.len() * BLOCK + arrival.rest.len() != len {
            return Err(Error::Invalid("a part of what is to be written has not come"));
        }
        let (first, last) = blocks_of(arrival.offset, len);
        let (core, began) = (&self.core, self.trace_began());
        core.change(|| {
            let _range = inode.ranges.lock(first, last);
            core.may_change(&inode, first, last)?;
            core.count_unsynced(&inode);
            core.write_arrived(&mut arrival)?;
            inode.tell_changed(arrival.offset, len as u64);
            core.observe_write(&inode, arrival.offset, len);
            Ok(())
        })?;
        self.trace_done(began, &inode, (Kind::Write, arrival.offset, len));
        Ok(len)
    }
}

impl Arrival {
    /// How many bytes it is going to have.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The next bytes have come; of more than there are to be the rest is ignored. They are on the
    /// medium when this returns, as far as they fill blocks. Gives their CRC-32C, where it is known
    /// from those of the blocks: who finds then that they are not what was sent gives up the write.
    pub fn put(&mut self, mut bytes: &[u8]) -> Option<u32> {
        let begins_block = self.rest.is_empty();
        if !begins_block {
            let lacking = (BLOCK - self.rest.len()).min(bytes.len());
            self.rest.extend_from_slice(&bytes[..lacking]);
            bytes = &bytes[lacking..];
            if self.rest.len() == BLOCK {
                let block = std::mem::take(&mut self.rest);
                self.put_blocks(&block);
            }
        }
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        let done = self.placed.len();
        self.put_blocks(whole);
        let left = self.len - self.placed.len() * BLOCK;
        self.rest.extend_from_slice(&rest[..rest.len().min(left)]);
        let new = &self.placed[done..];
        (begins_block && new.len() * BLOCK == whole.len()).then(|| {
            let sum = new.iter().fold(0, |sum, it| pmem::crc32c_append(sum, it.crc, BLOCK));
            pmem::crc32c(sum, rest)
        })
    }

    fn put_blocks(&mut self, bytes: &[u8]) {
        let done = self.placed.len();
        let count = (bytes.len() / BLOCK).min(self.addrs.len() - done);
        if count == 0 {
            return;
        }
        let addrs = &self.addrs[done..done + count];
        let (in_flight, sums) = self.core.copy_in(addrs, &bytes[..count * BLOCK]);
        // what comes next may come to another thread
        let _clean = pmem::fence(in_flight);
        let placed = addrs.iter().zip(sums).map(|(addr, crc)| Placed { addr: *addr, crc });
        self.placed.extend(placed);
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.core.pool.reclaim().give_extents(&mut self.extents);
    }
}

impl Core {
    /// One record for all that has come, under the range's lock.
    fn write_arrived(&self, arrival: &mut Arrival) -> Result<()> {
        let Arrival { inode, offset, placed, rest, .. } = &*arrival;
        let behind = offset + (placed.len() * BLOCK) as u64;
        let mut prepared = match rest[..] {
            [] => Prepared {
                first: behind / BLOCK_BYTES,
                end: behind,
                pieces: Vec::new(),
                changes: Vec::new(),
                extents: Vec::new(),
                in_flight: InFlight::none(),
            },
            _ => self.prepare(inode, behind, rest, InRecord::Bytes)?,
        };
        prepared.first = offset / BLOCK_BYTES;
        let come = placed.iter().map(|placed| (Piece::Full(&[]), SlotChange::Place(*placed)));
        let last = prepared.pieces.drain(..).zip(prepared.changes.drain(..));
        (prepared.pieces, prepared.changes) = come.chain(last).unzip();
        self.count_taken(&arrival.addrs);
        let time = now();
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        prepared.describe(inode, &mut record);
        let own = prepared.extents.len();
        prepared.extents.extend_from_slice(&arrival.extents);
        let written = self.finish_write(inode, &mut record, &mut prepared, time);
        // they are the file's, or those of the attempt go back
        match prepared.extents.is_empty() {
            true => arrival.extents.clear(),
            false => {
                prepared.extents.truncate(own);
                self.pool.reclaim().give_extents(&mut prepared.extents);
            }
        }
        written
    }
}
