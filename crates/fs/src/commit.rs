//! Transactions: writes to any places of any files that happen together or not at all.
//!
//! The ranges of all of them are held, in the order of the inodes; one record names everything; one
//! fence. Who reads across the writes of one file in one call sees all of them or none.
//!
//! Of each file one range is held, from its first byte to its last: ranges taken one after the
//! other could wait for each other in a circle, as whoever comes later waits for whoever came
//! earlier.
//!
//! One that changes more than a record of the log holds has its payload in blocks, and one that
//! changes more than others may before a checkpoint is let in by itself: `long_record.rs`. No more
//! than one checkpoint can fold can be in one transaction.

use crate::away::{AWAY_BLOCKS_MAX, away};
use crate::clock::now;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::in_place::IN_PLACE_BYTES_MAX;
use crate::inline::BLOCKS_MAX as INLINE_BLOCKS_MAX;
use crate::inode::Inode;
use crate::item::INLINE_BYTES;
use crate::leaf::LEAF_BLOCKS;
use crate::leaves::leaf_of;
use crate::long_record::{InRecord, Size, size_of};
use crate::pieces::{Hull, Part, Piece, parts_of};
use crate::region_memory::is_region_memory;
use crate::request;
use crate::slot::Freed;
use crate::system::FileSystem;
use crate::write::{PATCH_PIECE_BYTES_MAX, Prepared, blocks_of, check_write, grow};
use pmem::InFlight;
use pool::{BLOCK_BYTES, KIND_CHANGE, RecordBuffer, SPILLED_PAYLOAD_MAX};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes that are to be at a place of a file.
#[derive(Clone, Copy, Debug)]
pub struct Write<'d> {
    /// The file.
    pub file: &'d Handle,
    /// Where.
    pub offset: u64,
    /// The bytes.
    pub data: &'d [u8],
}

/// Bytes that must be there still when a transaction happens.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'d> {
    /// The file.
    pub file: &'d Handle,
    /// Where.
    pub offset: u64,
    /// The bytes; a file that ends before reads as zeros there.
    pub data: &'d [u8],
}

impl FileSystem {
    /// Makes all of these writes in one atomic change, later ones over earlier ones, if all that is
    /// `expected` is there: else [`Error::Conflict`], and nothing happened. Durable when it returns
    /// (in the `sync` domain: after a sync).
    ///
    /// # Errors
    /// [`Error::TooLong`]: more than one checkpoint can fold.
    pub fn commit(&self, writes: &[Write<'_>], expected: &[Expected<'_>]) -> Result<()> {
        for write in writes {
            check_write(&write.file.inode, write.offset, write.data.len())?;
        }
        let data = writes.iter().map(|it| it.data).chain(expected.iter().map(|it| it.data));
        if data.into_iter().any(is_region_memory) {
            return self.commit_region_memory(writes, expected);
        }
        // the short way knows no requests
        if let ([one], []) = (writes, expected)
            && !request::is_current()
        {
            return self.core.commit_one(one);
        }
        self.core.commit(writes, expected)
    }

    /// These bytes of a file are to be written soon: what that looks at is brought near meanwhile.
    #[inline]
    pub fn expect_write(&self, file: &Handle, offset: u64, len: usize) {
        let at = (offset % BLOCK_BYTES) as usize;
        if len > IN_PLACE_BYTES_MAX || at + len > BLOCK_BYTES as usize {
            return;
        }
        let (index, slot) = leaf_of(offset / BLOCK_BYTES);
        let lent = file.inode.map.lent(index);
        let leaf = lent.as_ref().and_then(|lent| lent.as_ref());
        if let Some(placed) = leaf.and_then(|leaf| leaf.plain_own(slot)) {
            self.core.pool.prefetch(placed.addr, at, len);
        }
    }

    /// Reads ranges of files as they are at one moment: no change is seen of which not all is.
    pub fn read_together(&self, reads: &mut [(&Handle, u64, &mut [u8])]) -> Result<()> {
        reads.iter().for_each(|(file, ..)| self.core.settle(&file.inode));
        self.core.read_together(reads)
    }
}

impl Core {
    /// The commonest transaction: one write.
    #[inline]
    fn commit_one(&self, write: &Write<'_>) -> Result<()> {
        let Write { file, offset, data } = *write;
        if data.is_empty() {
            return Ok(());
        }
        let (first, last) = blocks_of(offset, data.len());
        let leaves = last / LEAF_BLOCKS - first / LEAF_BLOCKS + 1;
        if !self.is_short(&Size { inodes: 1, leaves, blocks: last - first + 1, parts: 2 }) {
            return self.commit(std::slice::from_ref(write), &[]);
        }
        self.change(|| {
            let range = file.inode.ranges.lock(first, last);
            self.may_change(&file.inode, first, last)?;
            self.write_locked(&file.inode, &range, offset, data)
        })
    }

    fn commit(&self, writes: &[Write<'_>], expected: &[Expected<'_>]) -> Result<()> {
        let parts = parts_of(writes);
        let mut hulls: Vec<Hull<'_>> = Vec::new();
        for part in &parts {
            for (offset, data) in &part.pieces {
                hulls.push(Hull::of(part.inode, *offset, data.len()));
            }
        }
        hulls.extend(expected.iter().map(|it| Hull::of(&it.file.inode, it.offset, it.data.len())));
        let hulls = Hull::join(hulls);
        let size = size_of(&parts);
        let long = (!self.is_short(&size)).then_some(&size);
        if let Some(size) = long {
            if self.units_of(&Size { parts: 0, ..*size }) > self.units_max() {
                return Err(Error::TooLong);
            }
            self.make_room_for(size.blocks)?;
        }
        // so that a long one is not for ever behind short ones
        let _in_line = long.map(|_| self.wait_in_line());
        self.change(|| {
            let _ranges: Vec<_> =
                hulls.iter().map(|it| it.inode.ranges.lock(it.first, it.last)).collect();
            for hull in &hulls {
                self.check_leased(hull.inode, hull.first, hull.last)?;
            }
            for part in &parts {
                for (offset, data) in &part.pieces {
                    let (first, last) = blocks_of(*offset, data.len());
                    self.may_change(part.inode, first, last)?;
                }
            }
            let done = self.commit_as_expected(&parts, expected, long);
            if done.as_ref().err().and_then(away).is_some() {
                self.want_all(&parts, expected)?;
            }
            done
        })
    }

    /// The ranges of all parts, and of all that is expected, are held. `long`: the size of one that
    /// is let in by itself.
    fn commit_as_expected(
        &self,
        parts: &[Part<'_>],
        expected: &[Expected<'_>],
        long: Option<&Size>,
    ) -> Result<()> {
        for expected in expected {
            let mut found = vec![0; expected.data.len()];
            self.read_held(&expected.file.inode, expected.offset, &mut found)?;
            if found != expected.data {
                return Err(Error::Conflict);
            }
        }
        let joined: Vec<Vec<Piece<'_>>> =
            parts.iter().map(|part| self.joined(part)).collect::<Result<_>>()?;
        let time = now();
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        let mut all: Vec<Vec<Prepared<'_>>> = Vec::new();
        let result = self.log_parts(parts, &joined, (&mut record, &mut all), long, time);
        if result.is_err() {
            for prepared in all.iter_mut().flatten() {
                self.pool.reclaim().give_extents(&mut prepared.extents);
            }
        }
        result
    }

    /// The blocks that a transaction must see, and that are away, are fetched together: one by one
    /// it would begin anew for each.
    #[cold]
    fn want_all(&self, parts: &[Part<'_>], expected: &[Expected<'_>]) -> Result<()> {
        let Some(tier) = &self.tier else { return Ok(()) };
        let (mut wanted, mut held) = (HashSet::new(), 0);
        let expected = expected.iter().filter(|it| !it.data.is_empty()).flat_map(|it| {
            let (first, last) = blocks_of(it.offset, it.data.len());
            (first..=last).map(|block| (&it.file.inode, block))
        });
        let changed = parts.iter().flat_map(Part::each).flat_map(|(part, (offset, data))| {
            // those between are written whole
            let (first, last) = blocks_of(*offset, data.len());
            [first, last].map(|block| (part.inode, block))
        });
        for (inode, block) in expected.chain(changed) {
            let addr = self.view_block(inode, block)?.addr;
            if addr.device().is_some() && !tier.is_near(addr) {
                match tier.is_held(addr) {
                    true => held += 1,
                    false => drop(wanted.insert(addr)),
                }
            }
            if wanted.len() >= AWAY_BLOCKS_MAX {
                break;
            }
        }
        if held + wanted.len() > HELD_BLOCKS_MAX {
            return Err(Error::TooLong);
        }
        crate::away::want(wanted);
        Ok(())
    }

    fn log_parts<'d>(
        &self,
        parts: &[Part<'_>],
        joined: &'d [Vec<Piece<'_>>],
        (record, all): (&mut RecordBuffer, &mut Vec<Vec<Prepared<'d>>>),
        long: Option<&Size>,
        time: i64,
    ) -> Result<()> {
        let mut in_flight = InFlight::none();
        let patches = long.map_or(u64::MAX, |size| self.patches_max(size));
        let prepared = self.prepare_all(parts, joined, (record, all), patches, &mut in_flight);
        let admitted = prepared.and_then(|()| match long {
            None => Ok(None),
            Some(size) => self.admit(self.units_of_prepared(size, parts, all)?).map(Some),
        });
        let _admitted = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                // what is on its way lands before the blocks are somebody else's
                let _ = pmem::fence(in_flight);
                return Err(error);
            }
        };
        let inodes: Vec<&Arc<Inode>> = parts.iter().map(|part| part.inode).collect();
        let (mut freed, mut published) = (Freed::default(), Ok(()));
        self.log_after(record, &inodes, in_flight, || {
            published = parts.iter().zip(all.iter()).try_for_each(|(part, prepared)| {
                let changes: Vec<_> =
                    prepared.iter().map(|it| (it.first, it.changes.as_slice())).collect();
                let end = prepared.iter().map(|it| it.end).max().unwrap_or(0);
                self.publish_parts(part.inode, &changes, &mut freed, || {
                    grow(part.inode, end, time);
                })
            });
        })?;
        all.iter_mut().flatten().for_each(|prepared| prepared.extents.clear());
        self.retire(&freed);
        for (part, pieces) in parts.iter().zip(joined) {
            pieces.iter().for_each(|(offset, data)| self.was_written(part.inode, *offset, data));
        }
        self.published(published)
    }

    /// Takes blocks for all pieces, sends their data on its way, and describes them, with no more
    /// than so many `patches`.
    fn prepare_all<'d>(
        &self,
        parts: &[Part<'_>],
        joined: &'d [Vec<Piece<'_>>],
        (record, all): (&mut RecordBuffer, &mut Vec<Vec<Prepared<'d>>>),
        mut patches: u64,
        in_flight: &mut InFlight,
    ) -> Result<()> {
        let lens = || joined.iter().flatten().map(|(_, data)| self.record_bytes(data.len()));
        let holds_all = lens().sum::<usize>() <= self.payload_max;
        let mut left = lens().count();
        for (part, pieces) in parts.iter().zip(joined) {
            self.count_unsynced(part.inode);
            all.push(Vec::with_capacity(pieces.len()));
            for (offset, data) in pieces {
                left -= 1;
                // where the log takes whole blocks or none, it names those that do not fit
                let taken = record.payload_len() + left * NAMED_BYTES_MAX;
                let fits = taken + self.record_bytes(data.len()) <= self.payload_max;
                let in_record = match holds_all || data.len() <= PATCH_PIECE_BYTES_MAX || fits {
                    true if patches >= 2 => InRecord::Bytes,
                    _ if self.stores_in_place => InRecord::InPlace,
                    _ => InRecord::Places,
                };
                if in_record == InRecord::Bytes {
                    patches -= 2;
                }
                let mut prepared = self.prepare(part.inode, *offset, data, in_record)?;
                let before = std::mem::replace(in_flight, InFlight::none());
                let written = std::mem::replace(&mut prepared.in_flight, InFlight::none());
                *in_flight = before.and(written);
                prepared.describe(part.inode, record);
                if let Some(last) = all.last_mut() {
                    last.push(prepared);
                }
                if record.payload_len() as u64 > PAYLOAD_MAX {
                    return Err(Error::TooLong);
                }
            }
        }
        Ok(())
    }

    /// Bytes that a record takes at most for a piece whose bytes it may hold.
    fn record_bytes(&self, len: usize) -> usize {
        let blocks = len.div_ceil(BLOCK_BYTES as usize) + 1;
        let held = match self.stores_in_place {
            // of a long one what it has in the first block and in the last
            true => len.min(2 * BLOCK_BYTES as usize),
            false => blocks.min(INLINE_BLOCKS_MAX) * INLINE_BYTES,
        };
        held + NAMED_BYTES_MAX + blocks * RUN_BYTES
    }

    /// The pieces of a part, of which no two lie in one block: what is between them there is added.
    fn joined<'d>(&self, part: &'d Part<'_>) -> Result<Vec<Piece<'d>>> {
        let mut joined: Vec<Piece<'d>> = Vec::with_capacity(part.pieces.len());
        for (offset, data) in &part.pieces {
            let meets = |(before, bytes): &&mut Piece<'_>| {
                (*before + bytes.len() as u64 - 1) / BLOCK_BYTES == offset / BLOCK_BYTES
            };
            let Some((before, bytes)) = joined.last_mut().filter(meets) else {
                joined.push((*offset, Cow::Borrowed(data)));
                continue;
            };
            let end = *before + bytes.len() as u64;
            let mut between = vec![0; (offset - end) as usize];
            self.read_held(part.inode, end, &mut between)?;
            let bytes = bytes.to_mut();
            bytes.extend_from_slice(&between);
            bytes.extend_from_slice(data);
        }
        Ok(joined)
    }

    /// Reads bytes whose range the caller holds; zeros behind the file's end. What is away is an
    /// error, to be fetched when nothing is held.
    pub fn read_held(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.read_in_memory(inode, offset, buffer)?;
        buffer[read..].fill(0);
        Ok(())
    }

    fn read_together(&self, reads: &mut [(&Handle, u64, &mut [u8])]) -> Result<()> {
        let hull = |(file, offset, buffer): &(&Handle, u64, &mut [u8])| {
            (file.inode.clone(), *offset, buffer.len())
        };
        let places: Vec<_> = reads.iter().map(hull).collect();
        let hulls = places.iter().map(|(inode, offset, len)| Hull::of(inode, *offset, *len));
        let hulls = Hull::join(hulls.collect());
        let mut read = || {
            let _ranges: Vec<_> =
                hulls.iter().map(|it| it.inode.ranges.lock(it.first, it.last)).collect();
            reads
                .iter_mut()
                .try_for_each(|(file, offset, buffer)| self.read_held(&file.inode, *offset, buffer))
        };
        let mut result = read();
        while let Err(Some(addr)) = result.as_ref().map_err(away) {
            result = self.fetch(&[addr]).and_then(|()| read());
        }
        self.let_go();
        result
    }
}

/// Bytes that a record takes for a block that it names, and for each more of a run.
const NAMED_BYTES_MAX: usize = 48;
const RUN_BYTES: usize = 12;
/// Longest payload of a transaction's record, bytes: the id of a request comes to it.
const PAYLOAD_MAX: u64 = SPILLED_PAYLOAD_MAX - 4096;
/// Blocks of the capacity tier that one transaction holds in memory, at most.
const HELD_BLOCKS_MAX: usize = 1 << 16;
