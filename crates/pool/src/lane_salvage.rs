//! Reading a damaged log for a repair: past damage, with all that each record says for itself.
//!
//! Where a record is damaged, the mirror's copy of it takes its place, or its checksum turns back
//! one or two flipped bits. What stays unreadable is a [`LostStretch`] of its lane. The lane goes
//! on behind it with the next whole record: each has a checksum of its own, which is seeded by its
//! lane and chunk, and a stamp above all before it.
//!
//! What is damaged behind the last whole record of a lane cannot be told from a record that a kill
//! cut off. Where its head still says that it is the lane's next one, it is a stretch, too.

use crate::log::{
    CHUNK_HEADER_BYTES, CHUNK_MAGIC, ChunkHeader, SliceLog, record_seed, records_start,
};
use crate::record::{FLAG_SPILLED, KIND_CHANGE, KIND_EPOCH, Record, parse};
use crate::record_correction::{RecordPlace, RecordProbe, corrected_header};
use crate::scan::{
    CorrectedRecord, Damage, LogPlace, LostStretch, SEQUENCE_MAX, Scan, overlap, read_pages,
    record_in, record_len,
};
use crate::superblock::Superblock;
use pmem::Mapping;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U64};

/// Bits of a header's magic number, and of lane and sequence number together, that may be damaged.
const MAGIC_FLIPS_MAX: u32 = 3;
/// Bits of the sequence number that are looked at for that.
const SEQUENCE_BITS: u32 = 40;
/// Bytes of a chunk that its first record lies in.
const FIRST_RECORD_BYTES: usize = 16 * 1024;

/// How far the stamp and the time of a lane's next record are from those of its last, at most.
const NEXT_STAMPS_MAX: u64 = 1 << 24;
const NEXT_TIME_NS_MAX: u64 = 24 * 3600 * 1_000_000_000;

/// The copies of a slice's log.
type Copies<'m> = Vec<&'m Mapping>;

/// Reads what can be read of the log of slice `slice` from sequence number `floor` on.
pub fn salvage_scan(
    slice: u8,
    mapping: &Mapping,
    superblock: &Superblock,
    (floor, probe): (u64, RecordProbe),
) -> Scan {
    let copies: Copies<'_> = std::iter::once(mapping).chain(mapping.mirror()).collect();
    let chunk_bytes = superblock.chunk_bytes.get();
    let uuid = superblock.slice_uuid;
    let mut scan = Scan::default();
    let lanes = chunks_of_lanes(slice, &copies, superblock, floor, &mut scan);
    for (lane, chain) in &lanes {
        let line_bytes = superblock.log_line();
        let mut reader = SalvageReader {
            slice,
            lane: *lane,
            line_bytes,
            scan: &mut scan,
            last: None,
            open: None,
            probe,
        };
        let mut iter = chain.iter().peekable();
        let mut before = 0u64;
        while let Some((&sequence, &(index, header))) = iter.next() {
            let offset = SliceLog::chunk_offset(index, chunk_bytes);
            let previous = header.previous.get();
            if previous >= floor && previous != before {
                let what = format!("the log's lane {lane} lost the chunk {previous}");
                reader.lost((offset, previous, 0), Vec::new(), what);
            }
            before = sequence;
            let next = iter.peek().map(|(_, (_, header))| header);
            let used = next.filter(|h| h.previous.get() == sequence).map(|h| h.previous_len.get());
            let chunk = ChunkCopies::read(&copies, offset, chunk_bytes as usize, sequence);
            reader.read_chunk(&chunk, record_seed(&uuid, *lane, sequence), used);
        }
        if let Some(last) = scan.records.last_mut().filter(|r| r.lane == *lane) {
            last.unsealed = true;
        }
    }
    scan
}

/// The chunks of each lane in the order of their sequence numbers: index and header.
type LaneChunks = BTreeMap<u16, BTreeMap<u64, (u32, ChunkHeader)>>;

fn chunks_of_lanes(
    slice: u8,
    copies: &Copies<'_>,
    superblock: &Superblock,
    floor: u64,
    scan: &mut Scan,
) -> LaneChunks {
    let chunk_bytes = superblock.chunk_bytes.get();
    let line_bytes = superblock.log_line();
    let mut lanes = LaneChunks::new();
    for index in 0..(superblock.log_bytes.get() / u64::from(chunk_bytes)) as u32 {
        let offset = SliceLog::chunk_offset(index, chunk_bytes);
        let header = match chunk_header(copies, offset, (&superblock.slice_uuid, line_bytes)) {
            FoundHeader::Whole(header) if header.sequence.get() < SEQUENCE_MAX => header,
            FoundHeader::Unused | FoundHeader::Whole(_) => continue,
            FoundHeader::Damaged(what) => {
                let (lane, chunk, position) = (0, 0, 0);
                scan.unreadable.push(Damage { slice, offset, lane, chunk, position, what });
                let (after, before, bytes) = (None, None, Vec::new());
                let is_last = false;
                let place = (lane, chunk, position);
                let lost =
                    LostStretch { slice, offset, place, bytes, line_bytes, after, before, is_last };
                scan.lost.push(lost);
                continue;
            }
        };
        scan.generation_max = scan.generation_max.max(header.generation.get());
        scan.sequence_max = scan.sequence_max.max(header.sequence.get());
        if header.sequence.get() >= floor {
            let lane = lanes.entry(header.lane.get()).or_default();
            lane.insert(header.sequence.get(), (index, header));
        }
    }
    lanes
}

enum FoundHeader {
    Whole(ChunkHeader),
    Unused,
    Damaged(String),
}

/// The header of a chunk, from the copy of it that is whole, or is but for two bits.
fn chunk_header(
    copies: &Copies<'_>,
    offset: u64,
    (uuid, line_bytes): (&[u8; 16], usize),
) -> FoundHeader {
    let mut unreadable = None;
    for copy in copies {
        let mut bytes = [0u8; CHUNK_HEADER_BYTES];
        if let Err(error) = copy.read_own(offset, &mut bytes) {
            unreadable = Some(format!("a chunk of the log cannot be read: {error}"));
            continue;
        }
        let whole = ChunkHeader::decode(&bytes, uuid);
        if let Some(header) = whole.or_else(|| corrected_header(&bytes, uuid)) {
            return FoundHeader::Whole(header);
        }
        if let Some(header) = header_by_record(copy, offset, &bytes, (uuid, line_bytes)) {
            return FoundHeader::Whole(header);
        }
    }
    unreadable.map_or(FoundHeader::Unused, FoundHeader::Damaged)
}

/// The header of a chunk whose first record says by its checksum which lane and sequence number it
/// has: those of the damaged header, but for two bits. Without a record nothing tells the header
/// from what another use of the memory left there.
fn header_by_record(
    copy: &Mapping,
    offset: u64,
    bytes: &[u8; CHUNK_HEADER_BYTES],
    (uuid, line_bytes): (&[u8; 16], usize),
) -> Option<ChunkHeader> {
    let magic = bytes.iter().zip(CHUNK_MAGIC).map(|(one, other)| (one ^ other).count_ones());
    let (mut header, _) = ChunkHeader::read_from_prefix(bytes).ok()?;
    if magic.sum::<u32>() > MAGIC_FLIPS_MAX {
        return None;
    }
    let mut first = vec![0; FIRST_RECORD_BYTES - records_start(line_bytes)];
    copy.read_own(offset + records_start(line_bytes) as u64, &mut first).ok()?;
    let (lane, sequence) = (header.lane.get(), header.sequence.get());
    // the lane's bits behind those of the sequence number
    let flipped = |bit: u32| match bit.checked_sub(SEQUENCE_BITS) {
        None => (0, 1u64 << bit),
        Some(bit) => (1u16 << bit, 0),
    };
    let all = SEQUENCE_BITS + u16::BITS;
    let pairs = (0..all).flat_map(|one| (0..=one).map(move |two| (one, two)));
    let masks = pairs.map(|(one, two)| match one == two {
        true => flipped(one),
        false => (flipped(one).0 ^ flipped(two).0, flipped(one).1 ^ flipped(two).1),
    });
    let fits = |(of_lane, of_sequence): &(u16, u64)| {
        let seed = record_seed(uuid, lane ^ of_lane, sequence ^ of_sequence);
        parse(&first, seed, line_bytes).is_some()
    };
    let (of_lane, of_sequence) = std::iter::once((0, 0)).chain(masks).find(fits)?;
    header.lane = U16::new(lane ^ of_lane);
    header.sequence = U64::new(sequence ^ of_sequence);
    Some(header)
}

/// The bytes of a chunk in all copies, and where none of them can be read.
struct ChunkCopies {
    offset: u64,
    sequence: u64,
    copies: Vec<Arc<Vec<u8>>>,
    holes: Vec<Range<usize>>,
}

impl ChunkCopies {
    fn read(copies: &Copies<'_>, offset: u64, len: usize, sequence: u64) -> ChunkCopies {
        let (mut all, mut holes) = (Vec::new(), None);
        for copy in copies {
            let (bytes, found) = read_pages(copy, offset, len);
            all.push(Arc::new(bytes));
            let both = |hole: &Range<usize>| found.contains(hole);
            let known = holes.take();
            holes = Some(known.map_or_else(
                || found.clone(),
                |known: Vec<Range<usize>>| known.into_iter().filter(both).collect(),
            ));
        }
        ChunkCopies { offset, sequence, copies: all, holes: holes.unwrap_or_default() }
    }

    fn len(&self) -> usize {
        self.copies.first().map_or(0, |bytes| bytes.len())
    }
}

/// Reads one lane.
struct SalvageReader<'s> {
    slice: u8,
    lane: u16,
    line_bytes: usize,
    scan: &'s mut Scan,
    /// Stamp and time of the last record.
    last: Option<(u64, i64)>,
    /// The first stretch in `scan` of which the record behind is not known yet.
    open: Option<usize>,
    probe: RecordProbe,
}

impl SalvageReader<'_> {
    /// Notes that a stretch at this offset, chunk and position cannot be read.
    fn lost(
        &mut self,
        (offset, chunk, position): (u64, u64, usize),
        bytes: Vec<u8>,
        what: impl Into<String>,
    ) {
        let (slice, lane, position) = (self.slice, self.lane, position as u32);
        self.scan.damage.push(Damage { slice, offset, lane, chunk, position, what: what.into() });
        self.open.get_or_insert(self.scan.lost.len());
        let (after, before, line_bytes) = (self.last, None, self.line_bytes);
        let is_last = false;
        let place = (lane, chunk, position);
        let lost = LostStretch { slice, offset, place, bytes, line_bytes, after, before, is_last };
        self.scan.lost.push(lost);
    }

    /// Notes the record behind the lane's last whole one, if it has a head of its own.
    fn lost_last(&mut self, chunk: &ChunkCopies, at: usize) {
        let next = |copy: &&Arc<Vec<u8>>| self.is_next_head(copy.get(at..).unwrap_or_default());
        let Some(copy) = chunk.copies.iter().find(next) else { return };
        let bytes = copy[at..at + record_len(copy, at)].to_vec();
        let what =
            format!("the last record of the log's lane {} is damaged, or cut off", self.lane);
        self.lost((chunk.offset + at as u64, chunk.sequence, at), bytes, what);
        if let Some(lost) = self.scan.lost.last_mut() {
            lost.is_last = true;
        }
    }

    /// Whether this is the head of a record that can follow the lane's last one.
    fn is_next_head(&self, bytes: &[u8]) -> bool {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let (Some(head), Some(stamp), Some(time)) = (word(0), word(8), word(16)) else {
            return false;
        };
        let (kind, flags) = ((head >> 48) as u8, (head >> 56) as u8);
        let (last, last_time) = self.last.unwrap_or((0, time as i64));
        let len = record_len(bytes, 0);
        let is_later = stamp > last && stamp - last < NEXT_STAMPS_MAX;
        let is_near = (time as i64).abs_diff(last_time) < NEXT_TIME_NS_MAX;
        let fits = len > 0 && len <= bytes.len() && len & (self.line_bytes - 1) == 0;
        kind == KIND_CHANGE && flags <= FLAG_SPILLED && is_later && is_near && fits
    }

    /// Reads the records of a chunk; `used` is where they end, if the next chunk says so.
    fn read_chunk(&mut self, chunk: &ChunkCopies, seed: u32, used: Option<u32>) {
        let end = used.map_or(chunk.len(), |used| chunk.len().min(used as usize));
        let mut at = records_start(self.line_bytes);
        while at + self.line_bytes <= end {
            if let Some(len) = self.record_at(chunk, at..end, seed) {
                at += len;
                continue;
            }
            let what = format!("a record of the log's lane {} is damaged", self.lane);
            let next = self.next_record(chunk, at..end, seed);
            let Some(next) = next.or(used.map(|_| end)) else {
                self.lost_last(chunk, at);
                break;
            };
            let bytes = chunk.copies[0].get(at..next).unwrap_or_default().to_vec();
            self.lost((chunk.offset + at as u64, chunk.sequence, at), bytes, what);
            at = next;
        }
        // the next record would have begun there, or reached into there
        let first = chunk.copies.first();
        let len = first.map_or(0, |bytes| record_len(bytes, at)).max(self.line_bytes);
        let hole = chunk.holes.iter().find(|hole| overlap(hole, &(at..at + len)));
        if let Some(hole) = hole.filter(|_| used.is_none()) {
            let what =
                format!("the log's lane {} cannot be read: the memory fails there", self.lane);
            let place = (chunk.offset + hole.start as u64, chunk.sequence, hole.start);
            self.lost(place, Vec::new(), what);
        }
    }

    /// Takes the record there, of whichever copy has it, or has it but for a few bits; gives its
    /// length.
    fn record_at(&mut self, chunk: &ChunkCopies, at: Range<usize>, seed: u32) -> Option<usize> {
        let stamp = self.last.map_or(0, |(stamp, _)| stamp);
        let place = LogPlace {
            slice: self.slice,
            lane: self.lane,
            chunk: chunk.sequence,
            position: at.start,
        };
        for copy in &chunk.copies {
            let found = record_in(copy, at.clone(), place, (seed, self.line_bytes));
            if let Some(record) = found.filter(|record| record.stamp > stamp) {
                return Some(self.take(record));
            }
        }
        let probe = self.probe;
        let correction = RecordPlace { seed, line_bytes: self.line_bytes, stamp, probe };
        let corrected = |copy: &Arc<Vec<u8>>| correction.corrected(copy.get(at.clone())?);
        let (bytes, bits) = chunk.copies.iter().find_map(corrected)?;
        let bytes = Arc::new(bytes);
        let record = record_in(&bytes, 0..bytes.len(), place, (seed, self.line_bytes))?;
        let len = self.take(record);
        let time_ns = self.last.map_or(0, |(_, time)| time);
        let offset = chunk.offset + at.start as u64;
        let corrected = CorrectedRecord { slice: self.slice, offset, time_ns, bits };
        self.scan.corrected.push(corrected);
        Some(len)
    }

    /// Takes the lane's next record; gives its length.
    fn take(&mut self, record: Record) -> usize {
        // an epoch has no time
        let before = self.last.map_or(0, |(_, time)| time);
        let is_epoch = record.kind == KIND_EPOCH;
        self.last = Some((record.stamp, if is_epoch { before } else { record.time_ns }));
        if let Some(open) = self.open.take() {
            for stretch in &mut self.scan.lost[open..] {
                stretch.before = Some((record.stamp, if is_epoch { 0 } else { record.time_ns }));
            }
        }
        let len = (record.end - record.position) as usize;
        self.scan.records.push(record);
        len
    }

    /// Where the next record begins that is whole and belongs behind the lane's last one: behind
    /// the length that the damaged one says, or at the next line where there is one.
    fn next_record(&self, chunk: &ChunkCopies, at: Range<usize>, seed: u32) -> Option<usize> {
        let stamp = self.last.map_or(0, |(stamp, _)| stamp);
        let is_record = |start: usize| {
            chunk.copies.iter().any(|copy| {
                let rest = copy.get(start..at.end).unwrap_or_default();
                parse(rest, seed, self.line_bytes).is_some_and(|(_, found, ..)| found > stamp)
            })
        };
        let said = chunk.copies.iter().map(|copy| record_len(copy, at.start));
        let said = said.filter(|len| *len > 0 && len & (self.line_bytes - 1) == 0);
        let mut said = said.map(|len| at.start + len).filter(|start| *start < at.end);
        said.find(|start| is_record(*start)).or_else(|| {
            (at.start + self.line_bytes..at.end).step_by(self.line_bytes).find(|at| is_record(*at))
        })
    }
}
