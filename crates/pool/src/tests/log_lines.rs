//! A log with lines of each length, written and read back. Apart from `log.rs` and `scan.rs`, which
//! a model includes.

use crate::log::{CHUNK_HEADER_BYTES, SliceLog, record_seed};
use crate::record::{KIND_CHANGE, LINES_BYTES, Record, RecordBuffer, UNIT_BYTES};
use crate::scan::{Scan, scan};
use crate::superblock::{CHUNK_BYTES_MIN, LOG_BLOCK, Superblock};
use crate::{BLOCK_BYTES, Error, Result};
use pmem::{Domain, InFlight, Mapping};
use zerocopy::FromZeros;

const CHUNKS: u64 = 4;
const LOG_START: u64 = LOG_BLOCK * BLOCK_BYTES;
const LONG: usize = 256;

struct World {
    superblock: Superblock,
    mapping: Mapping,
    log: SliceLog,
}

impl World {
    fn new(line_bytes: usize) -> World {
        let mut superblock = Superblock::new_zeroed();
        superblock.chunk_bytes.set(CHUNK_BYTES_MIN as u32);
        superblock.log_bytes.set(CHUNKS * CHUNK_BYTES_MIN);
        superblock.log_line_bytes.set(line_bytes as u32);
        let len = LOG_START + CHUNKS * CHUNK_BYTES_MIN;
        let mapping = Mapping::memory(len as usize, Domain::Process).unwrap();
        World { log: SliceLog::new(&superblock, 1, 1, 1), superblock, mapping }
    }

    /// Appends a record with these bytes.
    fn append(&self, payload: &[u8]) -> Result<u64> {
        let mut record = RecordBuffer::new(KIND_CHANGE, 0);
        record.push(payload);
        let appended = self.log.lane(0).append(&self.mapping, &mut record, 0, InFlight::none());
        appended.map(|(stamp, _)| stamp)
    }

    fn scan(&self) -> Scan {
        scan(0, &self.mapping, &self.superblock, 1).unwrap()
    }

    /// Puts bytes into the first chunk that was taken.
    fn put(&self, at: usize, bytes: &[u8]) {
        let _ = pmem::fence(self.mapping.write(LOG_START + at as u64, bytes));
    }

    /// A byte of the first chunk changes.
    fn damage(&self, at: usize) {
        let mut byte = [0];
        self.mapping.read(LOG_START + at as u64, &mut byte).unwrap();
        self.put(at, &[byte[0] ^ 1]);
    }

    /// A record of the first chunk that the engine would write in a log of other lines.
    fn sealed(&self, stamp: u64, line_bytes: usize) -> Vec<u8> {
        let seed = record_seed(&self.superblock.slice_uuid, 0, 1);
        RecordBuffer::new(KIND_CHANGE, 0).seal(stamp, seed, line_bytes).to_vec()
    }
}

fn payload(number: usize) -> Vec<u8> {
    (0..number * 53 % 1500).map(|at| (at ^ number) as u8 | 1).collect()
}

#[test]
fn records_begin_and_end_at_lines_and_come_back_as_they_were() {
    for line in LINES_BYTES {
        let world = World::new(line);
        let mut stamps = Vec::new();
        for number in 0.. {
            match world.append(&payload(number)) {
                Ok(stamp) => stamps.push(stamp),
                Err(Error::LogFull) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let found = world.scan();
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        let chunks = found.records.iter().map(|record| record.chunk).max();
        assert_eq!(chunks, Some(CHUNKS), "all chunks have records");
        let bytes: u64 = found.records.iter().map(|r| u64::from(r.end - r.position)).sum();
        assert_eq!(bytes, world.log.bytes_written());
        assert!(stamps.iter().copied().eq(found.records.iter().map(|record| record.stamp)));
        for (number, record) in found.records.iter().enumerate() {
            let (from, to) = (record.position as usize, record.end as usize);
            assert!(from.is_multiple_of(line) && to.is_multiple_of(line), "{from} to {to}");
            assert!(from >= line.max(CHUNK_HEADER_BYTES));
            let (content, padding) = record.payload.split_at(payload(number).len());
            assert_eq!(content, payload(number));
            assert!(padding.len() < line && padding.iter().all(|byte| *byte == 0));
        }
    }
}

/// The padding counts: half a line that did not arrive is half a record.
#[test]
fn any_byte_of_the_last_record_tears_it_and_any_of_one_before_is_damage() {
    for line in LINES_BYTES {
        for byte in (0..line).step_by(5) {
            for number in 0..3 {
                let world = World::new(line);
                (0..3).for_each(|_| assert!(world.append(b"few bytes").is_ok()));
                world.damage((1 + number) * line + byte);
                let found = world.scan();
                assert_eq!(found.records.len(), number, "line {line}, byte {byte}");
                let damaged: Vec<u32> = found.damage.iter().map(|d| d.position).collect();
                let expected = if number < 2 { vec![((1 + number) * line) as u32] } else { vec![] };
                assert_eq!(damaged, expected, "line {line}, byte {byte}");
            }
        }
    }
}

/// Bytes that would be a record in a log of shorter lines, on from a line and from within one, are
/// neither a record nor a sign that one before them is damaged.
#[test]
fn what_does_not_fill_whole_lines_is_no_record() {
    let world = World::new(LONG);
    world.append(b"one").unwrap();
    let end = 2 * LONG;
    let short = world.sealed(9, UNIT_BYTES);
    assert_eq!(short.len(), UNIT_BYTES);
    world.put(end, &short);
    world.put(end + 3 * LONG, &short);
    let long = world.sealed(9, LONG);
    for within in [UNIT_BYTES, 2 * UNIT_BYTES, 3 * UNIT_BYTES] {
        world.put(end + 6 * LONG + within, &long);
        let found = world.scan();
        assert_eq!(found.records.len(), 1);
        assert!(found.damage.is_empty(), "{:?}", found.damage);
    }
    world.put(end + 9 * LONG, &long);
    assert_eq!(world.scan().damage.len(), 1, "one that does is");
}

/// The end of a chunk, to the last line: a record that takes it is found there, and what does not
/// fit goes to the next chunk, with the data's place in it reserved before.
#[test]
fn a_reservation_of_a_unit_is_enough_for_a_record_of_a_line() {
    let world = World::new(LONG);
    let lines = CHUNK_BYTES_MIN as usize / LONG;
    for number in 1..2 * (lines - 1) {
        let mut lane = world.log.lane(0);
        let reserved = lane.reserve(&world.mapping, UNIT_BYTES).unwrap();
        let chunks = world.log.chunks_free().0;
        let mut record = RecordBuffer::new(KIND_CHANGE, 0);
        lane.append(&world.mapping, &mut record, 0, reserved).unwrap();
        assert_eq!(world.log.chunks_free().0, chunks, "the append took none");
        let taken = CHUNKS as usize - chunks;
        assert_eq!(taken, number.div_ceil(lines - 1), "after {number} records");
    }
    let found = world.scan();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    let last = |record: &&Record| record.end == CHUNK_BYTES_MIN as u32;
    assert_eq!(found.records.iter().filter(last).count(), 1);
}

#[test]
fn the_longest_payload_fills_a_chunk_and_comes_back() {
    for line in LINES_BYTES {
        let world = World::new(line);
        let longest = vec![7; world.superblock.payload_bytes_max()];
        world.append(&longest).unwrap();
        world.append(&longest).unwrap();
        let found = world.scan();
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        assert_eq!(found.records.len(), 2);
        for record in &found.records {
            assert_eq!(record.end, CHUNK_BYTES_MIN as u32);
            assert_eq!(&record.payload[..], longest);
        }
    }
}
