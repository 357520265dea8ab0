//! Writing a file: new blocks, or bytes in the record for small pieces; one record, one fence.
//!
//! Under the range's lock: the data goes to blocks that nobody names, the record that names them
//! is appended, one fence makes both durable, readers are given the new slots, and the blocks that
//! lost their place are retired. A crash before the fence leaves the old blocks in place.

use crate::clock::now;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::in_place::IN_PLACE_BYTES_MAX;
use crate::inode::Inode;
use crate::item::{self, Placed};
use crate::leased::has_spare;
use crate::long_record::InRecord;
use crate::patches::{PATCH_BYTES_MAX, Patches};
use crate::range_lock::RangeGuard;
use crate::slot::{Freed, InPlace, SlotChange, SlotView};
use crate::types::{FILE_BYTES_MAX, FileKind};
use placement::Kind;
use pmem::InFlight;
use pool::{BLOCK_BYTES, BlockAddr, Extent, KIND_CHANGE, RecordBuffer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Largest piece of a block that becomes a patch.
pub const PATCH_PIECE_BYTES_MAX: usize = 256;

const _: () = assert!(PATCH_PIECE_BYTES_MAX <= PATCH_BYTES_MAX);

/// What a write will do to one block.
pub enum Piece<'d> {
    /// These are its bytes.
    Full(&'d [u8]),
    /// These are its bytes, some of them from before.
    Merged(Box<[u8; BLOCK]>),
    /// These bytes overlay it: where in the block, the new bytes, the patches and the checksum
    /// then.
    Patch(usize, &'d [u8], Arc<Patches>, u32),
    /// These bytes change in it.
    InPlace(InPlace<'d>),
}

impl Piece<'_> {
    fn takes_a_block(&self) -> bool {
        matches!(self, Piece::Full(_) | Piece::Merged(_))
    }
}

/// A write under way: blocks taken, data on its way.
pub struct Prepared<'d> {
    /// Its first block.
    pub first: u64,
    /// Where its bytes end.
    pub end: u64,
    pub pieces: Vec<Piece<'d>>,
    /// What changes in the slots, block by block.
    pub changes: Vec<SlotChange<'d>>,
    /// Blocks that were taken for it.
    pub extents: Vec<Extent>,
    /// Data on its way.
    pub in_flight: InFlight,
}

impl Core {
    /// One atomic write under its range's lock, for a request or not.
    #[cold]
    pub fn write_asked(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<()> {
        self.count_unsynced(inode);
        self.write_many(inode, offset, data)?;
        self.was_written(inode, offset, data);
        Ok(())
    }

    /// One atomic write under its range's lock, for no request.
    #[inline(always)]
    pub fn write_locked(
        &self,
        inode: &Arc<Inode>,
        _range: &RangeGuard<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        debug_assert!(!crate::request::is_current(), "its record would carry no id");
        self.count_unsynced(inode);
        let is_block = offset.is_multiple_of(BLOCK_BYTES) && data.len() == BLOCK;
        if is_block && !self.inlines(inode, 1) {
            self.write_one_block(inode, offset, data)?;
        } else if data.len() > IN_PLACE_BYTES_MAX || !self.write_small(inode, offset, data)? {
            self.write_many(inode, offset, data)?;
        }
        self.was_written(inode, offset, data);
        Ok(())
    }

    /// Any number of blocks, and parts of them.
    #[inline(never)]
    fn write_many(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<()> {
        let mut prepared = self.prepare(inode, offset, data, InRecord::Bytes)?;
        let time = now();
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        prepared.describe(inode, &mut record);
        let result = self.finish_write(inode, &mut record, &mut prepared, time);
        if result.is_err() {
            self.pool.reclaim().give_extents(&mut prepared.extents);
        }
        result
    }

    /// The commonest write: one whole block. From the first byte of its data to the record's fence
    /// there is no atomic instruction: see [`pool::LaneGuard::reserve`].
    #[inline(never)]
    fn write_one_block(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<()> {
        let block = offset / BLOCK_BYTES;
        let end = offset + BLOCK_BYTES;
        let time = now();
        let (addr, was_reserved) = self.take_one(inode, block)?;
        self.count_taken(&[addr]);
        let Some(turn) = self.turn(addr.slice(), Kind::Write) else {
            if !was_reserved {
                self.pool.reclaim().give_one(addr);
            }
            return self.write_many(inode, offset, data);
        };
        let after = inode.begin_change();
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        let (mut lane, slice) = self.pool.lane();
        let logged =
            lane.reserve(&slice.mapping, item::WRITE_ONE_RECORD_BYTES).and_then(|header| {
                let (in_flight, crc) = self.pool.write_block(addr, data);
                let placed = Placed { addr, crc };
                item::push_write_one(&mut record, inode.ino, block, placed, end);
                let in_flight = header.and(in_flight);
                let (stamp, _clean) = lane.append(&slice.mapping, &mut record, after, in_flight)?;
                Ok((stamp, placed))
            });
        drop(lane);
        drop(turn);
        self.copied(Kind::Write, addr.slice(), BLOCK);
        let (stamp, placed) = match logged {
            Ok(logged) => logged,
            Err(error) => {
                if !was_reserved {
                    self.pool.reclaim().give_one(addr);
                }
                return Err(error.into());
            }
        };
        // it owns nothing: to find that out, to drop it, takes a call
        let change = std::mem::ManuallyDrop::new(SlotChange::Place(placed));
        let published = self.publish_one(inode, block, &change, || grow(inode, end, time));
        self.logged(inode, stamp, slice);
        if let Ok(published) = &published
            && !published.old.is_none()
        {
            self.retire_one(published);
        }
        self.published(published.map(|_| ()))
    }

    /// A durable record could not be published: DRAM and medium disagree, so nothing more is taken.
    #[inline]
    pub fn published(&self, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => Err(self.unpublished(error)),
        }
    }

    #[cold]
    fn unpublished(&self, error: Error) -> Error {
        self.pool.poison(&format!("a durable change could not be published: {error}"));
        error
    }

    pub fn finish_write(
        &self,
        inode: &Arc<Inode>,
        record: &mut RecordBuffer,
        prepared: &mut Prepared<'_>,
        time: i64,
    ) -> Result<()> {
        let in_flight = std::mem::replace(&mut prepared.in_flight, InFlight::none());
        let mut freed = Freed::default();
        let mut published = Ok(());
        self.log_after(record, &[inode], in_flight, || {
            published = self.publish(inode, prepared.first, &prepared.changes, &mut freed, || {
                grow(inode, prepared.end, time);
            });
        })?;
        prepared.extents.clear();
        self.retire(&freed);
        self.published(published)
    }

    /// Takes blocks and sends the data on its way.
    pub fn prepare<'d>(
        &self,
        inode: &Inode,
        offset: u64,
        data: &'d [u8],
        in_record: InRecord,
    ) -> Result<Prepared<'d>> {
        let (first, last) = blocks_of(offset, data.len());
        let mut pieces = Vec::with_capacity((last - first + 1) as usize);
        let mut rest = data;
        let mut at = (offset % BLOCK_BYTES) as usize;
        for block in first..=last {
            let (piece, more) = rest.split_at(rest.len().min(BLOCK - at));
            pieces.push(self.plan(inode, block, (at, piece), in_record)?);
            rest = more;
            at = 0;
        }
        let takers = pieces.iter().zip(first..).filter(|(piece, _)| piece.takes_a_block());
        let mut extents = Vec::new();
        let addrs = self.take_blocks(inode, takers.map(|(_, block)| block), &mut extents)?;
        self.count_taken(&addrs);
        let inline = in_record == InRecord::Bytes && self.inlines(inode, addrs.len());
        let mut in_flight = InFlight::none();
        let mut changes = Vec::with_capacity(pieces.len());
        let whole = if inline { 0..0 } else { whole_blocks(&pieces) };
        let mut addrs = addrs.into_iter();
        for (index, piece) in pieces.iter().enumerate() {
            if index == whole.start && !whole.is_empty() {
                let at = (index as u64 * BLOCK_BYTES).saturating_sub(offset % BLOCK_BYTES) as usize;
                let places: Vec<BlockAddr> = addrs.by_ref().take(whole.len()).collect();
                let bytes = &data[at..at + whole.len() * BLOCK];
                let (written, sums) = self.copy_in(&places, bytes);
                in_flight = in_flight.and(written);
                let placed = places.into_iter().zip(sums).map(|(addr, crc)| Placed { addr, crc });
                changes.extend(placed.map(SlotChange::Place));
            }
            if whole.contains(&index) {
                continue;
            }
            let bytes: &[u8] = match piece {
                Piece::Full(bytes) => bytes,
                Piece::Merged(bytes) => bytes.as_slice(),
                Piece::Patch(_, _, patches, crc) => {
                    changes.push(SlotChange::Patch(patches.clone(), *crc));
                    continue;
                }
                Piece::InPlace(change) => {
                    changes.push(SlotChange::InPlace(*change));
                    continue;
                }
            };
            let addr = addrs.next().unwrap_or(BlockAddr::NONE);
            if inline {
                let placed = Placed { addr, crc: pmem::crc32c(0, bytes) };
                changes.push(SlotChange::Unwritten(placed, Arc::new(Patches::whole(bytes))));
                continue;
            }
            let (written, crc) = self.pool.write_block(addr, bytes);
            self.copied(Kind::Write, addr.slice(), BLOCK);
            in_flight = in_flight.and(written);
            changes.push(SlotChange::Place(Placed { addr, crc }));
        }
        let end = offset + data.len() as u64;
        Ok(Prepared { first, end, pieces, changes, extents, in_flight })
    }

    /// What to do to one block for bytes at `at` in it.
    fn plan<'d>(
        &self,
        inode: &Inode,
        block: u64,
        (at, data): (usize, &'d [u8]),
        in_record: InRecord,
    ) -> Result<Piece<'d>> {
        if data.len() == BLOCK {
            return Ok(Piece::Full(data));
        }
        let view = self.view_block(inode, block)?;
        if in_record != InRecord::Places
            && let Some(change) = self.in_place(inode, block, &view, at, data)?
        {
            return Ok(Piece::InPlace(change));
        }
        // patches may be put into the block later: not where it has other places, not where it is
        // not written, and not on the capacity tier, whose blocks never change
        let is_away = view.addr.device().is_some();
        let in_record = in_record == InRecord::Bytes;
        let may = in_record && !view.shared && !view.reserved && !is_away;
        let patches = data.len() <= PATCH_PIECE_BYTES_MAX && may;
        if patches && !self.begins_a_block(inode, block, at, &view) {
            let patches = match &view.patches {
                Some(patches) => patches.with(at, data),
                None => Patches::default().with(at, data),
            };
            let fits = !patches.too_large() || patches.cover_all();
            // on a full pool a block that is there is written anew: it takes no more than there is;
            // so is what a fold brings, which has spare blocks, and no room in the trees
            if fits && (self.pool.has_room() || view.addr.is_none() && !has_spare()) {
                self.check_room()?;
                match self.crc_with(inode, block, &view, at, data) {
                    Ok(crc) => return Ok(Piece::Patch(at, data, Arc::new(patches), crc)),
                    // where memory has failed the block is written anew
                    Err(_) if view.verified => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let mut bytes = Box::new([0u8; BLOCK]);
        if !view.is_hole() {
            self.copy_block(inode, block, &view, 0, bytes.as_mut_slice())?;
        }
        bytes[at..at + data.len()].copy_from_slice(data);
        Ok(Piece::Merged(bytes))
    }

    /// Whether bytes at `at` of a block go on a file that grows block by block: behind its end, and
    /// the block before is one of its own. Then more will follow, and a block takes it in place.
    fn begins_a_block(&self, inode: &Inode, block: u64, at: usize, view: &SlotView) -> bool {
        // ordering: a guess
        let size = inode.size.load(Ordering::Relaxed);
        let grows = self.stores_in_place && at == 0 && block > 0 && size <= block * BLOCK_BYTES;
        if !grows || !view.is_hole() {
            return false;
        }
        // what is wrong with the block before is not this write's to say
        self.view_block(inode, block - 1).is_ok_and(|view| !view.addr.is_none())
    }
}

/// Most blocks of one item of a record.
const RUN_BLOCKS_MAX: usize = 1 << 15;

impl Prepared<'_> {
    /// The record's items: runs of blocks, and patches.
    pub fn describe(&self, inode: &Inode, record: &mut RecordBuffer) {
        let mut run: Vec<Placed> = Vec::new();
        let mut run_first = self.first;
        for (index, (piece, change)) in self.pieces.iter().zip(&self.changes).enumerate() {
            let block = self.first + index as u64;
            match (piece, change) {
                (Piece::Patch(at, data, _, crc), _) => {
                    let offset = block * BLOCK_BYTES + *at as u64;
                    item::push_patch(record, inode.ino, offset, data, *crc, self.end);
                }
                (Piece::InPlace(change), _) => {
                    let offset = block * BLOCK_BYTES + change.at as u64;
                    item::push_patch(record, inode.ino, offset, change.data, change.crc, self.end);
                }
                (Piece::Full(data), SlotChange::Unwritten(placed, _)) => {
                    item::push_write_inline(record, inode.ino, block, *placed, data, self.end);
                }
                (Piece::Merged(data), SlotChange::Unwritten(placed, _)) => {
                    let data = data.as_slice();
                    item::push_write_inline(record, inode.ino, block, *placed, data, self.end);
                }
                (_, SlotChange::Place(placed)) => {
                    if run.is_empty() {
                        run_first = block;
                    }
                    run.push(*placed);
                }
                _ => {}
            }
        }
        // patches are only ever the first or the last piece, so that the blocks are one run
        for (first, run) in (run_first..).step_by(RUN_BLOCKS_MAX).zip(run.chunks(RUN_BLOCKS_MAX)) {
            item::push_write(record, inode.ino, first, run, self.end);
        }
    }
}

/// The blocks that are written whole, out of the caller's bytes: they lie one behind the other.
fn whole_blocks(pieces: &[Piece<'_>]) -> std::ops::Range<usize> {
    let is_whole = |piece: &Piece<'_>| matches!(piece, Piece::Full(_));
    let first = pieces.iter().position(is_whole).unwrap_or(0);
    let count = pieces[first..].iter().take_while(|piece| is_whole(piece)).count();
    first..first + count
}

/// First and last block of `len` bytes at `offset`.
#[inline]
pub fn blocks_of(offset: u64, len: usize) -> (u64, u64) {
    (offset / BLOCK_BYTES, (offset + (len as u64).max(1) - 1) / BLOCK_BYTES)
}

/// Bytes up to `end` were written at `time`.
#[inline]
pub fn grow(inode: &Inode, end: u64, time: i64) {
    // ordering: Release publishes the size after the slots that it covers
    if inode.size.load(Ordering::Relaxed) < end {
        inode.size.fetch_max(end, Ordering::Release);
    }
    inode.touch(time);
}

/// An error unless bytes can be written there.
#[inline]
pub fn check_write(inode: &Inode, offset: u64, len: usize) -> Result<()> {
    if inode.kind != FileKind::File {
        return Err(Error::Invalid("only a regular file holds data"));
    }
    let end = offset.checked_add(len as u64);
    if end.is_some_and(|end| end <= FILE_BYTES_MAX) { Ok(()) } else { Err(Error::TooBig) }
}
