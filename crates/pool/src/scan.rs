//! Reading the log back: all whole records of a slice that no checkpoint has folded.
//!
//! A lane is the chain of its chunks in the order of their sequence numbers. A record is torn only
//! if it is the last of its lane; a bad record with a good one of the same lap behind it is damage
//! and is reported, never cut off. Stamps ascend along a lane: a whole record that does not is
//! another one's, at a place where it was not written. Records fill whole lines of the log, as long
//! as the superblock says: what begins or ends within one is none.

use crate::error::Result;
use crate::log::{CHUNK_HEADER_BYTES, ChunkHeader, SliceLog, record_seed, records_start};
use crate::record::{HEADER_BYTES, KIND_EPOCH, Payload, Record, UNIT_BYTES, parse};
use crate::superblock::{BLOCK_BYTES, Superblock};
use pmem::Mapping;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Sequence numbers that recovery leaves out above the highest it saw: more than the chunks whose
/// headers a crash can have torn (one per lane).
pub const SEQUENCE_GAP: u64 = 1 << 16;

/// Sequence numbers are below this: nobody counts so far.
pub const SEQUENCE_MAX: u64 = 1 << 62;

/// A place in the log where something should be and is not.
#[derive(Clone, Debug)]
pub struct Damage {
    /// The slice.
    pub slice: u8,
    /// Byte offset in the slice.
    pub offset: u64,
    /// The lane.
    pub lane: u16,
    /// Sequence number of the chunk.
    pub chunk: u64,
    /// Where in the chunk, bytes.
    pub position: u32,
    /// What is wrong.
    pub what: String,
}

/// A part of the log that nothing can be read of: records were there, or may have been.
#[derive(Clone, Debug)]
pub struct LostStretch {
    /// The slice.
    pub slice: u8,
    /// Byte offset in the slice.
    pub offset: u64,
    /// Its lane, the sequence number of its chunk, and where it begins in that.
    pub place: (u16, u64, u32),
    /// Bytes that are there now; none where a whole chunk is missing.
    pub bytes: Vec<u8>,
    /// Bytes of a line of the log: records began at multiples of it.
    pub line_bytes: usize,
    /// Stamp and time, ns since 1970 (0: unknown), of the lane's record before, if there is one.
    pub after: Option<(u64, i64)>,
    /// The same of the lane's record behind.
    pub before: Option<(u64, i64)>,
    /// It is the lane's last record: a kill may have cut it off before it counted.
    pub is_last: bool,
}

/// A record of which flipped bits were turned back.
#[derive(Clone, Debug)]
pub struct CorrectedRecord {
    /// The slice.
    pub slice: u8,
    /// Byte offset in the slice.
    pub offset: u64,
    /// When the change was made, ns since 1970.
    pub time_ns: i64,
    /// How many bits they were.
    pub bits: usize,
}

/// What the log of one slice holds.
#[derive(Debug, Default)]
pub struct Scan {
    /// Its records, by lane in order.
    pub records: Vec<Record>,
    /// Damage: where it is in which lane, and what is wrong.
    pub damage: Vec<Damage>,
    /// Records of epochs in chunks that are damaged before them.
    pub epochs_behind_damage: Vec<Record>,
    /// Chunks that cannot be read at all: whether they hold records of interest nobody knows.
    pub unreadable: Vec<Damage>,
    /// For a repair: what cannot be read of the lanes.
    pub lost: Vec<LostStretch>,
    /// For a repair: records of which flipped bits were turned back.
    pub corrected: Vec<CorrectedRecord>,
    /// Highest sequence number of a chunk, 0 if there is none.
    pub sequence_max: u64,
    /// Highest generation that a chunk says was complete when it was taken.
    pub generation_max: u64,
}

/// Reads the log of slice `slice` from sequence number `floor` on.
pub fn scan(slice: u8, mapping: &Mapping, superblock: &Superblock, floor: u64) -> Result<Scan> {
    let chunk_bytes = superblock.chunk_bytes.get();
    let chunks = (superblock.log_bytes.get() / u64::from(chunk_bytes)) as u32;
    let uuid = superblock.slice_uuid;
    let mut lanes: BTreeMap<u16, BTreeMap<u64, (u32, ChunkHeader)>> = BTreeMap::new();
    let mut scan = Scan::default();
    for index in 0..chunks {
        let mut header = [0u8; CHUNK_HEADER_BYTES];
        let offset = SliceLog::chunk_offset(index, chunk_bytes);
        if let Err(error) = mapping.read_own(offset, &mut header) {
            let what = format!("a chunk of the log cannot be read: {error}");
            let (lane, chunk, position) = (0, 0, 0);
            scan.unreadable.push(Damage { slice, offset, lane, chunk, position, what });
            continue;
        }
        let whole = ChunkHeader::decode(&header, &uuid);
        let Some(header) = whole.or_else(|| ChunkHeader::corrected(&header, &uuid)) else {
            continue;
        };
        if header.sequence.get() >= SEQUENCE_MAX {
            continue;
        }
        scan.generation_max = scan.generation_max.max(header.generation.get());
        scan.sequence_max = scan.sequence_max.max(header.sequence.get());
        if header.sequence.get() >= floor {
            let lane = lanes.entry(header.lane.get()).or_default();
            lane.insert(header.sequence.get(), (index, header));
        }
    }
    for (lane, chain) in &lanes {
        let line_bytes = superblock.log_line();
        let mut reader =
            LaneReader { slice, lane: *lane, line_bytes, scan: &mut scan, floor, stamp: 0 };
        let mut iter = chain.iter().peekable();
        let mut before = 0u64;
        while let Some((&sequence, &(index, header))) = iter.next() {
            let offset = SliceLog::chunk_offset(index, chunk_bytes);
            reader.check_link(offset, before, &header);
            before = sequence;
            let (bytes, holes) = read_pages(mapping, offset, chunk_bytes as usize);
            let bytes = Arc::new(bytes);
            let next = iter.peek().map(|(_, (_, header))| header);
            let used = next.filter(|h| h.previous.get() == sequence).map(|h| h.previous_len.get());
            let seed = record_seed(&uuid, *lane, sequence);
            let at = reader.read_chunk(offset, &bytes, seed, sequence, used);
            // the next record would have begun there, or reached into there
            let reached = at..at + record_len(&bytes, at).max(line_bytes);
            if let Some(hole) = holes.into_iter().find(|hole| overlap(hole, &reached)) {
                let what = format!("the log's lane {lane} cannot be read: the memory fails there");
                reader.damaged(offset + hole.start as u64, sequence, hole.start as u32, what);
            }
        }
        if let Some(last) = scan.records.last_mut().filter(|r| r.lane == *lane) {
            last.unsealed = true;
        }
    }
    Ok(scan)
}

impl Scan {
    /// What both copies of a log have: of each lane the copy with more records, and of two with as
    /// many the one without damage. What they differ in was under way, or one of them lost it.
    pub fn with(self, other: Scan) -> Scan {
        let sequence_max = self.sequence_max.max(other.sequence_max);
        let generation_max = self.generation_max.max(other.generation_max);
        let unreadable = match other.unreadable.is_empty() {
            true => Vec::new(),
            false => self.unreadable.clone(),
        };
        let mut lanes: BTreeMap<u16, [Lane; 2]> = BTreeMap::new();
        let mut epochs = Vec::new();
        for (copy, scan) in [self, other].into_iter().enumerate() {
            epochs.extend(scan.epochs_behind_damage);
            for record in scan.records {
                lanes.entry(record.lane).or_default()[copy].0.push(record);
            }
            for damage in scan.damage {
                lanes.entry(damage.lane).or_default()[copy].1.push(damage);
            }
        }
        let mut both = Scan { unreadable, sequence_max, generation_max, ..Scan::default() };
        both.epochs_behind_damage = epochs;
        for [first, second] in lanes.into_values() {
            let rank = |lane: &Lane| (lane.0.len(), lane.1.is_empty());
            let (records, damage) = if rank(&second) > rank(&first) { second } else { first };
            both.records.extend(records);
            both.damage.extend(damage);
        }
        both
    }
}

/// The records of a lane, and what is damaged there.
type Lane = (Vec<Record>, Vec<Damage>);

struct LaneReader<'s> {
    slice: u8,
    lane: u16,
    /// Bytes of a line of the log.
    line_bytes: usize,
    scan: &'s mut Scan,
    floor: u64,
    /// The last record's.
    stamp: u64,
}

impl LaneReader<'_> {
    fn check_link(&mut self, offset: u64, before: u64, header: &ChunkHeader) {
        let previous = header.previous.get();
        if previous >= self.floor && previous != before {
            let what = format!("the log's lane {} lost the chunk {previous}", self.lane);
            self.damaged(offset, previous, 0, what);
        }
    }

    fn damaged(&mut self, offset: u64, chunk: u64, position: u32, what: String) {
        let (slice, lane) = (self.slice, self.lane);
        self.scan.damage.push(Damage { slice, offset, lane, chunk, position, what });
    }

    /// Reads the records of one chunk, and gives where they end in it; `used` is where they should,
    /// if the lane's next chunk says so.
    fn read_chunk(
        &mut self,
        offset: u64,
        bytes: &Arc<Vec<u8>>,
        seed: u32,
        chunk: u64,
        used: Option<u32>,
    ) -> usize {
        let end = used.map_or(bytes.len(), |used| bytes.len().min(used as usize));
        let line_bytes = self.line_bytes;
        let mut at = records_start(line_bytes);
        let mut what = None;
        while at + line_bytes <= end {
            let Some(record) = self.record(bytes, at..end, seed, chunk) else { break };
            if record.stamp <= self.stamp {
                what = Some("is not in its place");
                break;
            }
            self.stamp = record.stamp;
            at = record.end as usize;
            self.scan.records.push(record);
        }
        let is_damaged = || match used {
            Some(used) => at < used as usize,
            None => a_record_follows(bytes, at, seed, line_bytes),
        };
        if what.is_none() && is_damaged() {
            what = Some("is damaged");
        }
        if let Some(what) = what {
            let what = format!("a record of the log's lane {} {what}", self.lane);
            self.damaged(offset + at as u64, chunk, at as u32, what);
            self.add_epochs_behind(bytes, at..end, seed, chunk);
        }
        at
    }

    /// Adds the records of epochs behind the damaged record that begins there.
    fn add_epochs_behind(&mut self, bytes: &Arc<Vec<u8>>, at: Range<usize>, seed: u32, chunk: u64) {
        for start in at.clone().step_by(self.line_bytes).skip(1) {
            let record = self.record(bytes, start..at.end, seed, chunk);
            let epoch = record.filter(|record| record.kind == KIND_EPOCH);
            self.scan.epochs_behind_damage.extend(epoch);
        }
    }

    /// The whole record there.
    fn record(
        &self,
        bytes: &Arc<Vec<u8>>,
        at: Range<usize>,
        seed: u32,
        chunk: u64,
    ) -> Option<Record> {
        let place = LogPlace { slice: self.slice, lane: self.lane, chunk, position: at.start };
        record_in(bytes, at, place, (seed, self.line_bytes))
    }
}

/// A place in a lane.
#[derive(Clone, Copy, Debug)]
pub struct LogPlace {
    /// The slice.
    pub slice: u8,
    /// The lane.
    pub lane: u16,
    /// Sequence number of the chunk.
    pub chunk: u64,
    /// Where in the chunk, bytes.
    pub position: usize,
}

/// The whole record that begins in these bytes, and lies there in the log; of the log's seed for
/// its chunk, and its lines.
pub fn record_in(
    bytes: &Arc<Vec<u8>>,
    range: Range<usize>,
    place: LogPlace,
    (seed, line_bytes): (u32, usize),
) -> Option<Record> {
    let (kind, stamp, time_ns, len) = parse(bytes.get(range.clone())?, seed, line_bytes)?;
    let LogPlace { slice, lane, chunk, position } = place;
    Some(Record {
        slice,
        lane,
        chunk,
        position: position as u32,
        end: (position + len) as u32,
        kind,
        flags: bytes.get(range.start + 7).copied().unwrap_or_default(),
        stamp,
        time_ns,
        unsealed: false,
        payload: Payload::new(bytes, range.start + HEADER_BYTES, range.start + len),
    })
}

/// What can be read of a chunk, and where it cannot.
pub fn read_pages(mapping: &Mapping, offset: u64, len: usize) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut bytes = vec![0; len];
    if mapping.read_own(offset, &mut bytes).is_ok() {
        return (bytes, Vec::new());
    }
    let mut holes = Vec::new();
    for at in (0..len).step_by(BLOCK_BYTES as usize) {
        let page = at..len.min(at + BLOCK_BYTES as usize);
        if mapping.read_own(offset + at as u64, &mut bytes[page.clone()]).is_err() {
            bytes[page.clone()].fill(0);
            holes.push(page);
        }
    }
    (bytes, holes)
}

/// Bytes of what says that it is a record.
pub fn record_len(bytes: &[u8], at: usize) -> usize {
    let units = bytes.get(at + 4..at + 6).and_then(|units| units.try_into().ok());
    units.map_or(0, |units| usize::from(u16::from_le_bytes(units)) * UNIT_BYTES)
}

pub fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Whether a whole record of the same lap lies behind the one at `at` that is not.
fn a_record_follows(bytes: &[u8], at: usize, seed: u32, line_bytes: usize) -> bool {
    let starts = (at + line_bytes..bytes.len()).step_by(line_bytes);
    let record = |start| parse(bytes.get(start..)?, seed, line_bytes);
    starts.into_iter().any(|start| record(start).is_some())
}
