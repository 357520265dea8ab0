//! The log of a slice: an area of chunks, which lanes take and fill with records.
//!
//! What it keeps true:
//! - a lane starts a record only when its previous one has been fenced;
//! - a chunk's header is written under the fence of the chunk's first record, and names the chunk
//!   before it in the lane with the bytes used there, so that recovery knows where a lane ends;
//! - every write is of whole lines, 64 or 256 bytes as the superblock says: the header has lines of
//!   its own, and a record begins and ends at one;
//! - chunk sequence numbers only grow, and records are checksummed with a seed of slice, lane and
//!   sequence number: what an earlier lap left behind is never taken for a record;
//! - chunks are free again only after the checkpoint that folded them is complete on all slices,
//!   and one that is taken says which checkpoint was the last: so recovery knows when the root that
//!   it finds is not the last one, and the log behind it has been used again.
//!
//! Checked by loom: `tests/loom_lane.rs`.

use crate::error::{Error, Result};
use crate::record::{HEADER_BYTES, LINE_BYTES_MAX, RecordBuffer, STAMP_MAX};
use crate::superblock::{BLOCK_BYTES, LOG_BLOCK, Superblock};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, yield_now};
use crossbeam_utils::CachePadded;
use pmem::{Clean, InFlight, Mapping};
use std::mem::offset_of;
use std::sync::atomic::AtomicUsize;
use topology::place_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a chunk.
pub const CHUNK_MAGIC: [u8; 4] = *b"NSCH";
/// Bytes of a chunk's header.
pub const CHUNK_HEADER_BYTES: usize = 64;

/// The header of a chunk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ChunkHeader {
    /// [`CHUNK_MAGIC`].
    pub magic: [u8; 4],
    /// CRC-32C of what follows, seeded by the slice.
    pub crc: U32,
    /// The chunk's sequence number in its slice: its lap.
    pub sequence: U64,
    /// Sequence number of the lane's chunk before this; 0 = none.
    pub previous: U64,
    /// Bytes used in that chunk, its header included.
    pub previous_len: U32,
    /// The lane.
    pub lane: U16,
    /// Room.
    pub reserved_lane: [u8; 2],
    /// Generation of the last complete checkpoint when the chunk was taken.
    pub generation: U64,
    /// Room.
    pub reserved: [u8; 24],
}

const _: () = assert!(size_of::<ChunkHeader>() == CHUNK_HEADER_BYTES);
// docs/FORMAT.md says these
const _: () = assert!(offset_of!(ChunkHeader, previous) == 16);
const _: () = assert!(offset_of!(ChunkHeader, lane) == 28);
const _: () = assert!(offset_of!(ChunkHeader, generation) == 32);

impl ChunkHeader {
    fn checksum(&self, slice_uuid: &[u8; 16]) -> u32 {
        let bytes = self.as_bytes();
        pmem::crc32c(pmem::crc32c(0, slice_uuid), bytes.get(8..).unwrap_or_default())
    }

    /// The header in these bytes, if it is whole and this slice's.
    pub fn decode(bytes: &[u8], slice_uuid: &[u8; 16]) -> Option<ChunkHeader> {
        let (header, _) = ChunkHeader::read_from_prefix(bytes).ok()?;
        let whole = header.magic == CHUNK_MAGIC
            && pmem::crc_fits(header.checksum(slice_uuid), header.crc.get());
        whole.then_some(header)
    }

    /// The header that these bytes were before one bit of them was lost, if that is what happened.
    ///
    /// Without it a lane would end one chunk earlier, and nobody could say that it did not. A
    /// header that a crash tore differs in more than a bit from each that was ever whole.
    pub fn corrected(
        bytes: &[u8; CHUNK_HEADER_BYTES],
        slice_uuid: &[u8; 16],
    ) -> Option<ChunkHeader> {
        let wrong = bytes.iter().zip(CHUNK_MAGIC).map(|(byte, magic)| (byte ^ magic).count_ones());
        if wrong.sum::<u32>() > 1 {
            return None;
        }
        (0..CHUNK_HEADER_BYTES * 8).find_map(|bit| {
            let mut bytes = *bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            ChunkHeader::decode(&bytes, slice_uuid)
        })
    }
}

/// Where in a chunk its first record begins, in a log of lines of so many bytes: behind those of
/// the header.
pub const fn records_start(line_bytes: usize) -> usize {
    if line_bytes > CHUNK_HEADER_BYTES { line_bytes } else { CHUNK_HEADER_BYTES }
}

/// Longest payload of a record that fits in a chunk, bytes. Chunks are whole lines.
pub const fn payload_bytes_max(chunk_bytes: usize, line_bytes: usize) -> usize {
    chunk_bytes - records_start(line_bytes) - HEADER_BYTES
}

/// The seed of the checksums of all records in one chunk.
pub fn record_seed(slice_uuid: &[u8; 16], lane: u16, sequence: u64) -> u32 {
    let mut seed = pmem::crc32c(0, slice_uuid);
    seed = pmem::crc32c(seed, &lane.to_le_bytes());
    pmem::crc32c(seed, &sequence.to_le_bytes())
}

/// Where a lane writes next.
#[derive(Debug, Default)]
struct Lane {
    /// Byte offset of its chunk in the slice; 0 = it has none.
    base: u64,
    sequence: u64,
    /// Bytes used in the chunk, header included.
    used: u32,
    seed: u32,
    stamp: u64,
    /// Bytes of records written since open.
    written: u64,
}

/// The log of one slice.
#[derive(Debug)]
pub struct SliceLog {
    slice: u8,
    slice_uuid: [u8; 16],
    chunk_bytes: u32,
    chunks: u32,
    /// Bytes of a line.
    line_bytes: usize,
    sequence_next: AtomicU64,
    free: Mutex<Vec<u32>>,
    used: Mutex<Vec<(u64, u32)>>,
    lanes: Box<[CachePadded<Mutex<Lane>>]>,
    /// Lanes that hold a chunk.
    held: AtomicUsize,
    pressed: AtomicBool,
    /// The last complete checkpoint's.
    generation: AtomicU64,
    /// Where the lanes ended at the last cut, until that is folded.
    cut_tails: Mutex<Vec<(u16, u64, u32)>>,
}

impl SliceLog {
    /// The log of the slice that `superblock` describes, all chunks free, behind the checkpoint of
    /// this generation.
    pub fn new(
        superblock: &Superblock,
        lanes: usize,
        sequence_next: u64,
        generation: u64,
    ) -> SliceLog {
        let chunk_bytes = superblock.chunk_bytes.get();
        let chunks = (superblock.log_bytes.get() / u64::from(chunk_bytes)) as u32;
        SliceLog {
            slice: superblock.index.get() as u8,
            slice_uuid: superblock.slice_uuid,
            chunk_bytes,
            chunks,
            line_bytes: superblock.log_line(),
            sequence_next: AtomicU64::new(sequence_next),
            free: Mutex::new((0..chunks).rev().collect()),
            used: Mutex::new(Vec::new()),
            lanes: (0..lanes.clamp(1, 4096)).map(|_| CachePadded::default()).collect(),
            held: AtomicUsize::new(0),
            pressed: AtomicBool::new(false),
            generation: AtomicU64::new(generation),
            cut_tails: Mutex::default(),
        }
    }

    /// Byte offset of chunk `index` in its slice.
    pub fn chunk_offset(index: u32, chunk_bytes: u32) -> u64 {
        LOG_BLOCK * BLOCK_BYTES + u64::from(index) * u64::from(chunk_bytes)
    }

    /// Chunks that no lane holds and no unfolded record needs, and chunks in all.
    pub fn chunks_free(&self) -> (usize, usize) {
        (self.free.lock().len(), self.chunks as usize)
    }

    /// Free chunks that lanes take as soon as a cut has ended theirs: the next cut, or the last one
    /// while what it cut is folded.
    pub fn chunks_due(&self) -> usize {
        // ordering: a hint
        let (held, cut) = (self.held.load(Ordering::Relaxed), self.cut_tails.lock().len());
        if cut == 0 { held } else { cut.saturating_sub(held) }
    }

    /// Bytes of the log in use.
    pub fn used_bytes(&self) -> u64 {
        self.used.lock().len() as u64 * u64::from(self.chunk_bytes)
    }

    /// Bytes of records written since open.
    pub fn bytes_written(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.lock().written).sum()
    }

    /// Whether so much of it is in use that a checkpoint should begin.
    #[inline]
    pub fn pressed(&self) -> bool {
        // ordering: a hint
        self.pressed.load(Ordering::Relaxed)
    }

    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Takes a lane, that of `cpu` if nobody writes to it; it never sleeps for one.
    #[inline(always)] // on the way of every change
    pub fn lane(&self, cpu: usize) -> LaneGuard<'_> {
        let index = place_of(cpu, self.lanes.len());
        match self.lanes[index].try_lock() {
            Some(lane) => LaneGuard { log: self, lane, index: index as u16 },
            None => self.other_lane(index),
        }
    }

    #[cold]
    fn other_lane(&self, taken: usize) -> LaneGuard<'_> {
        let count = self.lanes.len();
        let mut tries = 1usize;
        loop {
            let index = (taken + tries) % count;
            if let Some(lane) = self.lanes[index].try_lock() {
                return LaneGuard { log: self, lane, index: index as u16 };
            }
            tries += 1;
            if tries.is_multiple_of(count) {
                yield_now();
            }
        }
    }

    fn take_chunk(&self) -> Result<(u64, u32)> {
        let mut free = self.free.lock();
        if free.len() <= self.chunks as usize / 2 {
            self.pressed.store(true, Ordering::Relaxed);
        }
        let index = free.pop().ok_or(Error::LogFull)?;
        drop(free);
        // ordering: the number only has to be unique and growing; the lane publishes it by header
        let sequence = self.sequence_next.fetch_add(1, Ordering::Relaxed);
        self.used.lock().push((sequence, index));
        Ok((sequence, index))
    }

    /// Ends every lane's chunk and returns the sequence number that later chunks start from.
    /// The caller has stopped all writers (the cut of a checkpoint).
    pub fn cut(&self) -> u64 {
        let tails = self.held_tails();
        self.cut_tails.lock().extend(tails);
        for lane in &self.lanes {
            let mut lane = lane.lock();
            *lane = Lane { stamp: lane.stamp, written: lane.written, ..Lane::default() };
        }
        self.held.store(0, Ordering::Relaxed);
        self.sequence_next.load(Ordering::Relaxed)
    }

    /// Frees the chunks below `floor`: their records are folded and the roots, of this generation,
    /// are safe.
    pub fn release(&self, floor: u64, generation: u64) {
        self.cut_tails.lock().retain(|&(_, sequence, _)| sequence >= floor);
        let mut used = self.used.lock();
        let mut free = self.free.lock();
        // ordering: the lock of `free` gives it to who takes one of these chunks
        self.generation.store(generation, Ordering::Relaxed);
        used.retain(|&(sequence, index)| {
            let folded = sequence < floor;
            if folded {
                free.insert(0, index);
            }
            !folded
        });
        self.pressed.store(free.len() <= self.chunks as usize / 2, Ordering::Relaxed);
    }

    /// Where the unfolded part of the log ends: lane, chunk sequence, bytes used; of a lane that a
    /// cut ended, also where it did. The caller has stopped all writers.
    pub fn tails(&self) -> Vec<(u16, u64, u32)> {
        let mut tails = self.cut_tails.lock().clone();
        tails.extend(self.held_tails());
        tails
    }

    fn held_tails(&self) -> Vec<(u16, u64, u32)> {
        let held = |(index, lane): (usize, &CachePadded<Mutex<Lane>>)| {
            let lane = lane.lock();
            (lane.base != 0).then_some((index as u16, lane.sequence, lane.used))
        };
        self.lanes.iter().enumerate().filter_map(held).collect()
    }
}

/// A lane, held: nobody else writes to it.
#[derive(Debug)]
pub struct LaneGuard<'l> {
    log: &'l SliceLog,
    lane: MutexGuard<'l, Lane>,
    index: u16,
}

impl LaneGuard<'_> {
    /// Makes sure that a record of `bytes` fits, taking a new chunk if it does not. To be called
    /// before data is sent on its way with non-temporal stores: an atomic instruction between them
    /// and the record's fence would wait for them, and the fence would wait once more.
    ///
    /// `LogFull`: as for `append`.
    #[inline]
    pub fn reserve(&mut self, mapping: &Mapping, bytes: usize) -> Result<InFlight> {
        // what is left of a chunk is whole lines: where the bytes fit, so does their last line
        let end = self.lane.used as usize + bytes;
        if self.lane.base != 0 && end <= self.log.chunk_bytes as usize {
            return Ok(InFlight::none());
        }
        self.begin_chunk(mapping, bytes)
    }

    /// Takes a new chunk, for a record of `bytes`.
    #[cold]
    fn begin_chunk(&mut self, mapping: &Mapping, bytes: usize) -> Result<InFlight> {
        let log = self.log;
        let records = records_start(log.line_bytes);
        assert!(bytes + records <= log.chunk_bytes as usize, "a record fits in a chunk");
        let (sequence, index) = log.take_chunk()?;
        let mut header: ChunkHeader = zerocopy::FromZeros::new_zeroed();
        header.magic = CHUNK_MAGIC;
        header.sequence = U64::new(sequence);
        if self.lane.base != 0 {
            header.previous = U64::new(self.lane.sequence);
            header.previous_len = U32::new(self.lane.used);
        } else {
            log.held.fetch_add(1, Ordering::Relaxed);
        }
        header.lane = U16::new(self.index);
        header.generation = U64::new(log.generation.load(Ordering::Relaxed));
        header.crc = U32::new(header.checksum(&log.slice_uuid));
        self.lane.base = SliceLog::chunk_offset(index, log.chunk_bytes);
        self.lane.sequence = sequence;
        self.lane.used = records as u32;
        self.lane.seed = record_seed(&log.slice_uuid, self.index, sequence);
        let mut lines = [0; LINE_BYTES_MAX];
        lines[..CHUNK_HEADER_BYTES].copy_from_slice(header.as_bytes());
        Ok(mapping.write(self.lane.base, &lines[..records]))
    }

    /// Appends the record with a stamp above `after` and above the lane's own, fences it together
    /// with what is already in flight, and returns its stamp with the proof.
    ///
    /// `LogFull`: nothing was written; the caller lets go of its locks, waits for a checkpoint and
    /// starts again.
    pub fn append(
        &mut self,
        mapping: &Mapping,
        record: &mut RecordBuffer,
        after: u64,
        in_flight: InFlight,
    ) -> Result<(u64, Clean)> {
        let line_bytes = self.log.line_bytes;
        let len = record.sealed_len(line_bytes);
        let stamp = after.max(self.lane.stamp) + 1;
        if stamp > STAMP_MAX {
            // an image that says so: nobody makes so many changes
            let _ = pmem::fence(in_flight);
            let what = "the highest stamp is in use, and no change can follow".to_owned();
            return Err(Error::Damaged { slice: u32::from(self.log.slice), offset: 0, what });
        }
        let header = match self.reserve(mapping, len) {
            Ok(header) => header,
            Err(error) => {
                // the data already on its way stays in free blocks: it only has to be ordered
                let _ = pmem::fence(in_flight);
                return Err(error);
            }
        };
        let bytes = record.seal(stamp, self.lane.seed, line_bytes);
        debug_assert_eq!(bytes.len(), len);
        let written = mapping.write(self.lane.base + u64::from(self.lane.used), bytes);
        let clean = pmem::fence(in_flight.and(header).and(written));
        if mapping.broken() {
            return Err(Error::store_lost());
        }
        self.lane.used += len as u32;
        self.lane.stamp = stamp;
        self.lane.written += len as u64;
        Ok((stamp, clean))
    }
}
