//! Records that no chunk of the log holds: the payload lies in blocks of the slices, and the record
//! says where.
//!
//! ```text
//!  0  u64  bytes of the payload
//!  8  u32  levels: 1 = the places are the payload's; 2 = they are those of a table of its places
//! 12  u32  count
//! 16  ..   count x place (addr u64, blocks u32, crc u32 of all bytes of these blocks)
//! ```
//!
//! A table is places one behind the other; the last block is padded with zeros.
//!
//! What it keeps true:
//! - the blocks are written under the record's own fence: a record whose blocks do not match their
//!   checksums is torn, as one whose data does not;
//! - nobody else gets one of the blocks before a checkpoint that folded the record is complete: no
//!   tree names them, so that they are free then, and recovery withholds them until it has folded;
//! - between two checkpoints no more is spilled than `SPILLED_BYTES_MAX`, so that recovery knows
//!   how much it may have to read.

use crate::addr::{BlockAddr, Extent};
use crate::copies::Which;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::record::{FLAG_SPILLED, Record, RecordBuffer};
use crate::superblock::BLOCK_BYTES;
use parking_lot::Mutex;
use pmem::InFlight;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest payload of a record that is spilled, bytes.
pub const SPILLED_PAYLOAD_MAX: u64 = 128 << 20;
/// Bytes of the blocks of all records that no checkpoint has folded, at most.
pub const SPILLED_BYTES_MAX: u64 = 256 << 20;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Most blocks of a place.
const PLACE_BLOCKS_MAX: u64 = 16;
const PLACE_BYTES: usize = 16;
/// Bytes before the places.
const HEAD_BYTES: usize = 16;
/// Most places that a record names: they fit in the smallest chunk, and leave room in it.
const PLACES_MAX: usize = 240;
/// Most blocks of a table: enough where each block of the payload has a place of its own.
const TABLE_BLOCKS_MAX: u64 =
    (SPILLED_PAYLOAD_MAX / BLOCK_BYTES) * PLACE_BYTES as u64 / BLOCK_BYTES;

const _: () = assert!(HEAD_BYTES + PLACES_MAX * PLACE_BYTES <= crate::record::PAYLOAD_BYTES_MAX);
const _: () = assert!(TABLE_BLOCKS_MAX <= PLACES_MAX as u64 * PLACE_BLOCKS_MAX);

/// Blocks of a slice, one behind the other, that hold a part of a payload or of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    addr: BlockAddr,
    blocks: u32,
    crc: u32,
}

impl Place {
    fn blocks(&self) -> impl Iterator<Item = BlockAddr> + use<> {
        Extent { addr: self.addr, count: u64::from(self.blocks) }.blocks()
    }

    fn encode(&self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        bytes[..8].copy_from_slice(&self.addr.bits().to_le_bytes());
        bytes[8..12].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[12..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Place> {
        let addr = BlockAddr::from_bits(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?))?;
        let blocks = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
        let crc = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?);
        Some(Place { addr, blocks, crc })
    }
}

/// Blocks that hold a payload, on their way: the record's owner keeps them or gives them back.
#[derive(Debug, Default)]
#[must_use = "the blocks are kept or given back"]
pub struct Spilled {
    extents: Vec<Extent>,
    blocks: u64,
}

/// The blocks of all records that no checkpoint has folded.
#[derive(Debug, Default)]
pub(crate) struct SpilledBlocks {
    kept: Mutex<Vec<Extent>>,
    bytes: AtomicU64,
}

/// Where the payload of a record lies.
#[derive(Debug)]
struct Places {
    len: u64,
    table: Vec<Place>,
    payload: Vec<Place>,
}

impl Record {
    /// Whether its payload lies in blocks.
    pub fn is_spilled(&self) -> bool {
        self.flags == FLAG_SPILLED
    }

    /// Bytes that its payload has in blocks, as far as it says so itself.
    pub fn spilled_len(&self) -> u64 {
        let len = self.payload.get(..8).filter(|_| self.is_spilled());
        len.and_then(|len| len.try_into().ok()).map_or(0, u64::from_le_bytes)
    }

    fn senseless(&self) -> Error {
        let what = format!(
            "the log's record with stamp {} (lane {}) names places that make no sense",
            self.stamp, self.lane
        );
        Error::Damaged { slice: u32::from(self.slice), offset: 0, what }
    }
}

impl Pool {
    /// Puts the payload of `long` into blocks: the record that says where, what is on its way, and
    /// the blocks. `LogFull`: so much waits for a checkpoint that it is to come first.
    pub fn spill(&self, long: &RecordBuffer) -> Result<(RecordBuffer, InFlight, Spilled)> {
        let payload = long.payload();
        let len = payload.len() as u64;
        let blocks = len.div_ceil(BLOCK_BYTES);
        assert!(len <= SPILLED_PAYLOAD_MAX, "who made the record knows how long it may be");
        // at worst each block has a place of its own
        let most = blocks + (blocks * PLACE_BYTES as u64).div_ceil(BLOCK_BYTES);
        let mut spilled = Spilled { extents: Vec::new(), blocks: most };
        // ordering: it only counts
        let before = self.spilled.bytes.fetch_add(most * BLOCK_BYTES, Ordering::Relaxed);
        if before + most * BLOCK_BYTES > SPILLED_BYTES_MAX {
            self.unspill(spilled);
            return Err(Error::LogFull);
        }
        let mut in_flight = InFlight::none();
        match self.write_levels(payload, &mut spilled, &mut in_flight) {
            Ok((levels, places)) => {
                let mut record = RecordBuffer::spilled(long);
                record.push(&len.to_le_bytes());
                record.push(&levels.to_le_bytes());
                record.push(&((places.len() / PLACE_BYTES) as u32).to_le_bytes());
                record.push(&places);
                Ok((record, in_flight, spilled))
            }
            Err(error) => {
                let _ = pmem::fence(in_flight);
                self.unspill(spilled);
                Err(error)
            }
        }
    }

    fn write_levels(
        &self,
        payload: &[u8],
        spilled: &mut Spilled,
        in_flight: &mut InFlight,
    ) -> Result<(u32, Vec<u8>)> {
        let places = self.write_places(payload, spilled, in_flight)?;
        if places.len() <= PLACES_MAX * PLACE_BYTES {
            return Ok((1, places));
        }
        let table = self.write_places(&places, spilled, in_flight)?;
        if table.len() <= PLACES_MAX * PLACE_BYTES {
            return Ok((2, table));
        }
        // so little of what is free lies together that a table of that length has no place
        Err(Error::NoSpace)
    }

    /// Takes blocks for these bytes and sends them there; gives the places.
    fn write_places(
        &self,
        bytes: &[u8],
        spilled: &mut Spilled,
        in_flight: &mut InFlight,
    ) -> Result<Vec<u8>> {
        // apart from those of before, which it would give back if there are not enough
        let mut extents = Vec::new();
        let blocks = bytes.len().div_ceil(BLOCK) as u64;
        self.reclaim.allocate(blocks, self.near_slice(), &mut extents)?;
        spilled.extents.extend(&extents);
        let (mut places, mut rest) = (Vec::new(), bytes);
        for extent in &extents {
            for first in (0..extent.count).step_by(PLACE_BLOCKS_MAX as usize) {
                let count = (extent.count - first).min(PLACE_BLOCKS_MAX);
                let addr = BlockAddr::new(extent.addr.slice(), extent.addr.block() + first);
                let (part, more) = rest.split_at(rest.len().min(count as usize * BLOCK));
                rest = more;
                let padded = (part.len() < count as usize * BLOCK).then(|| {
                    let mut padded = part.to_vec();
                    padded.resize(count as usize * BLOCK, 0);
                    padded
                });
                let part = padded.as_deref().unwrap_or(part);
                let (slice, offset) = self.place(addr);
                let before = std::mem::replace(in_flight, InFlight::none());
                *in_flight = before.and(slice.mapping.write(offset, part));
                let place = Place { addr, blocks: count as u32, crc: pmem::crc32c(0, part) };
                places.extend_from_slice(&place.encode());
            }
        }
        Ok(places)
    }

    /// The record that names these blocks is in the log: they are nobody else's until a checkpoint
    /// has folded it. No checkpoint can cut the log between the two.
    pub fn keep_spilled(&self, spilled: Spilled) {
        self.spilled.kept.lock().extend(&spilled.extents);
        // what it was afraid to need and did not
        let kept: u64 = spilled.extents.iter().map(|extent| extent.count).sum();
        self.spilled.less(spilled.blocks - kept);
    }

    /// No record names these blocks, and nothing is on its way to them.
    pub fn unspill(&self, mut spilled: Spilled) {
        self.reclaim.give_extents(&mut spilled.extents);
        self.spilled.less(spilled.blocks);
    }

    /// The blocks of all records before a cut. No change is under way.
    pub(crate) fn take_spilled(&self) -> Vec<Extent> {
        std::mem::take(&mut *self.spilled.kept.lock())
    }

    /// Those records are folded: the blocks are free.
    pub(crate) fn give_spilled(&self, mut extents: Vec<Extent>) {
        let blocks = extents.iter().map(|extent| extent.count).sum();
        self.reclaim.give_extents(&mut extents);
        self.spilled.less(blocks);
    }

    /// Bytes of the blocks of all records that no checkpoint has folded.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled.bytes.load(Ordering::Relaxed)
    }

    /// The payload of a record that has it in blocks; `None` if they do not hold what was written.
    pub fn spilled_payload(&self, record: &Record) -> Result<Option<Vec<u8>>> {
        let Some(places) = self.places_of(record)? else { return Ok(None) };
        let mut payload = Vec::new();
        if !self.read_places(&places.payload, &mut payload) {
            return Ok(None);
        }
        payload.truncate(places.len as usize);
        Ok(Some(payload))
    }

    /// What the blocks of a record's payload hold, whether or not it is what was written.
    pub fn spilled_payload_as_is(&self, record: &Record) -> Result<Vec<u8>> {
        let Some(places) = self.places_of(record)? else { return Ok(Vec::new()) };
        let mut payload = Vec::new();
        for place in &places.payload {
            let from = payload.len();
            payload.resize(from + place.blocks as usize * BLOCK, 0);
            // zeros stay where the memory fails
            let _ = self.read_copy(place.addr, Which::First, &mut payload[from..]);
        }
        payload.truncate(places.len as usize);
        Ok(payload)
    }

    /// Calls `each` for all blocks that a record has its payload in, and the places of it.
    pub fn spilled_blocks(&self, record: &Record, each: &mut dyn FnMut(BlockAddr)) -> Result<()> {
        let Some(places) = self.places_of(record)? else { return Ok(()) };
        places.table.iter().chain(&places.payload).flat_map(Place::blocks).for_each(each);
        Ok(())
    }

    /// Takes the blocks of a record's payload, so that recovery puts nothing there before it has
    /// folded the record.
    pub fn withhold_spilled(&self, record: &Record) -> Result<()> {
        self.spilled_blocks(record, &mut |addr| {
            if let Some(slice) = self.slices.get(usize::from(addr.slice())) {
                slice.space.mark_used(addr.block());
            }
        })
    }

    /// Where a record has its payload; `None` if the table does not hold what was written.
    fn places_of(&self, record: &Record) -> Result<Option<Places>> {
        let senseless = || record.senseless();
        let word = |at: usize| record.payload.get(at..at + 4)?.try_into().ok();
        let len = record.spilled_len();
        let levels = word(8).map_or(0, u32::from_le_bytes);
        let count = word(12).map_or(0, u32::from_le_bytes) as usize;
        if len == 0 || len > SPILLED_PAYLOAD_MAX || count > PLACES_MAX {
            return Err(senseless());
        }
        let named = record.payload.get(HEAD_BYTES..HEAD_BYTES + count * PLACE_BYTES);
        let named = self.decode_places(named.unwrap_or_default()).ok_or_else(senseless)?;
        let blocks = |places: &[Place]| places.iter().map(|it| u64::from(it.blocks)).sum::<u64>();
        let (table, payload) = match levels {
            1 => (Vec::new(), named),
            2 if blocks(&named) <= TABLE_BLOCKS_MAX => {
                let mut bytes = Vec::new();
                if !self.read_places(&named, &mut bytes) {
                    return Ok(None);
                }
                let end = bytes.chunks_exact(PLACE_BYTES).position(|it| it.iter().all(|b| *b == 0));
                bytes.truncate(end.map_or(bytes.len(), |end| end * PLACE_BYTES));
                let payload = self.decode_places(&bytes).ok_or_else(senseless)?;
                (named, payload)
            }
            _ => return Err(senseless()),
        };
        let fits = blocks(&payload) == len.div_ceil(BLOCK_BYTES);
        if fits { Ok(Some(Places { len, table, payload })) } else { Err(senseless()) }
    }

    /// Places that the slices have; `None` if there is one that they have not.
    fn decode_places(&self, bytes: &[u8]) -> Option<Vec<Place>> {
        let place = |bytes: &[u8]| {
            let place = Place::decode(bytes)?;
            let few = (1..=PLACE_BLOCKS_MAX).contains(&u64::from(place.blocks));
            let inside = place.addr.device().is_none() && self.contains(place.addr);
            // only those behind a block of the pool have addresses for certain
            let last = (few && inside).then(|| place.blocks().last()).flatten()?;
            self.contains(last).then_some(place)
        };
        bytes.chunks_exact(PLACE_BYTES).map(place).collect()
    }

    /// Reads what lies at these places, of the copy that is as it was written; false if none is.
    fn read_places(&self, places: &[Place], bytes: &mut Vec<u8>) -> bool {
        places.iter().all(|place| {
            let from = bytes.len();
            bytes.resize(from + place.blocks as usize * BLOCK, 0);
            let part = &mut bytes[from..];
            Which::ALL.into_iter().any(|which| {
                let found = self.read_copy(place.addr, which, part);
                found.is_ok_and(|crc| pmem::crc_fits(crc, place.crc))
            })
        })
    }
}

impl SpilledBlocks {
    fn less(&self, blocks: u64) {
        self.bytes.fetch_sub(blocks * BLOCK_BYTES, Ordering::Relaxed);
    }
}
