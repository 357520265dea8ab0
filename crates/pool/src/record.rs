//! A record of the log: one atomic change, self-describing.
//!
//! ```text
//!  0  u32  CRC-32C of bytes 4..64*units, seeded by slice, lane and chunk (the lap)
//!  4  u16  units: length in 64-byte units, header and padding included
//!  6  u8   kind
//!  7  u8   flags: 1 = the payload lies in blocks (`spill.rs`)
//!  8  u64  stamp
//! 16  i64  time, ns since 1970
//! 24  ..   payload, padded with zeros
//! ```
//!
//! A record fills whole lines of its log (64 or 256 bytes), so that no write to the log makes the
//! medium read the rest of a line first. A lane starts a record only when its previous one has been
//! fenced, so only a lane's last record can be torn. Numbers are little-endian.

use std::cell::Cell;
use std::sync::Arc;

/// The length of a record is counted in units of this many bytes.
pub const UNIT_BYTES: usize = 64;
/// Bytes of a log's line: records begin at multiples of it and fill it. The CPU's, or Optane's.
pub const LINES_BYTES: [usize; 2] = [UNIT_BYTES, 256];
/// The longest of them.
pub const LINE_BYTES_MAX: usize = LINES_BYTES[1];
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 24;
/// Longest payload, bytes: the largest change that one record describes.
pub const PAYLOAD_BYTES_MAX: usize = 14 * 1024;

/// Highest stamp that makes sense: nobody makes so many changes.
pub const STAMP_MAX: u64 = 1 << 62;
/// Highest stamp that makes sense in a pool that is opened: as many changes can follow, and more.
/// No round number, as those are what a broken stamp says.
pub const STAMP_AT_OPEN_MAX: u64 = STAMP_MAX / 8 * 3;

/// A change to the file system.
pub const KIND_CHANGE: u8 = 1;
/// Closes an epoch of the `sync` domain: lists the lanes' tails.
pub const KIND_EPOCH: u8 = 2;

/// The payload lies in blocks of the slices; the record says where: see `spill.rs`.
pub const FLAG_SPILLED: u8 = 1;

/// Bytes of a buffer that a thread keeps, at most.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// Bytes of a record that are kept where it is built, without a buffer of the thread's.
const SHORT_BYTES: usize = 3 * UNIT_BYTES;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A record being built. A short one lies on the stack; the buffer of a longer one is the thread's,
/// lent: no allocation in steady state.
#[derive(Debug)]
pub struct RecordBuffer {
    short: [u8; SHORT_BYTES],
    /// Bytes so far.
    len: usize,
    /// All of them, once they are more than `short` holds.
    long: Vec<u8>,
}

impl RecordBuffer {
    /// An empty record of this kind, for a change made at `time_ns`.
    #[inline]
    pub fn new(kind: u8, time_ns: i64) -> RecordBuffer {
        let mut short = [0; SHORT_BYTES];
        short[6] = kind;
        short[16..24].copy_from_slice(&time_ns.to_le_bytes());
        RecordBuffer { short, len: HEADER_BYTES, long: Vec::new() }
    }

    /// An empty record that says where the payload of `long` lies.
    pub(crate) fn spilled(long: &RecordBuffer) -> RecordBuffer {
        let from = if long.len <= SHORT_BYTES { &long.short[..] } else { &long.long[..] };
        let mut short = [0; SHORT_BYTES];
        short[6] = from[6];
        short[7] = FLAG_SPILLED;
        short[16..24].copy_from_slice(&from[16..24]);
        RecordBuffer { short, len: HEADER_BYTES, long: Vec::new() }
    }

    /// The payload so far.
    pub(crate) fn payload(&self) -> &[u8] {
        let bytes = if self.len <= SHORT_BYTES { &self.short[..] } else { &self.long[..] };
        bytes.get(HEADER_BYTES..self.len).unwrap_or_default()
    }

    /// Adds to the payload.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end <= SHORT_BYTES {
            self.short[self.len..end].copy_from_slice(bytes);
        } else {
            self.push_long(bytes);
        }
        self.len = end;
    }

    #[cold]
    fn push_long(&mut self, bytes: &[u8]) {
        self.lengthen();
        self.long.extend_from_slice(bytes);
    }

    /// Pads with zeros to `len`, which is more than `short` holds.
    #[cold]
    fn pad_long(&mut self, len: usize) {
        self.lengthen();
        self.long.resize(len, 0);
    }

    /// Takes the thread's buffer, unless that has been done.
    fn lengthen(&mut self) {
        if self.len <= SHORT_BYTES {
            self.long = SPARE.take();
            self.long.clear();
            self.long.extend_from_slice(&self.short[..self.len]);
        }
    }

    /// Pads the payload with zeros to a multiple of 8 bytes.
    #[inline]
    pub fn align(&mut self) {
        let end = self.len.next_multiple_of(8);
        if end > SHORT_BYTES {
            self.push_long(&[0; 8][..end - self.len]);
        }
        // a short one is zeros behind what was pushed
        self.len = end;
    }

    /// Bytes of payload so far.
    pub fn payload_len(&self) -> usize {
        self.len - HEADER_BYTES
    }

    /// Bytes that the record will take in a log of lines of so many bytes, a power of two.
    #[inline]
    pub fn sealed_len(&self, line_bytes: usize) -> usize {
        debug_assert!(line_bytes.is_power_of_two());
        // `next_multiple_of` would divide
        (self.len + line_bytes - 1) & !(line_bytes - 1)
    }

    /// Completes the header and gives the record's bytes: whole lines.
    #[inline]
    pub fn seal(&mut self, stamp: u64, seed: u32, line_bytes: usize) -> &[u8] {
        let len = self.sealed_len(line_bytes);
        let bytes = if len <= SHORT_BYTES {
            // padded with the zeros that it began with
            &mut self.short[..len]
        } else {
            self.pad_long(len);
            &mut self.long[..]
        };
        let units = (len / UNIT_BYTES) as u16;
        bytes[4..6].copy_from_slice(&units.to_le_bytes());
        bytes[8..16].copy_from_slice(&stamp.to_le_bytes());
        let crc = pmem::crc32c(seed, &bytes[4..]);
        bytes[0..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

impl Drop for RecordBuffer {
    #[inline]
    fn drop(&mut self) {
        if self.long.capacity() > 0 {
            give_back(std::mem::take(&mut self.long));
        }
    }
}

/// The buffer of a long record is the thread's again.
#[cold]
fn give_back(long: Vec<u8>) {
    if long.capacity() <= SPARE_BYTES_MAX {
        SPARE.set(long);
    }
}

/// A whole record found in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Slice whose log holds it.
    pub slice: u8,
    /// Lane that holds it.
    pub lane: u16,
    /// Sequence number of its chunk.
    pub chunk: u64,
    /// Where it starts in its chunk, bytes.
    pub position: u32,
    /// Where it ends in its chunk, bytes.
    pub end: u32,
    /// [`KIND_CHANGE`] or another.
    pub kind: u8,
    /// 0, or [`FLAG_SPILLED`].
    pub flags: u8,
    /// Its stamp.
    pub stamp: u64,
    /// When the change was made, ns since 1970.
    pub time_ns: i64,
    /// No later record of its lane proves that its fence completed.
    pub unsealed: bool,
    /// The payload, padding included.
    pub payload: Payload,
}

/// A record's payload: a part of the chunk that was read, which all its records share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    chunk: Arc<Vec<u8>>,
    from: u32,
    to: u32,
}

impl Payload {
    pub(crate) fn new(chunk: &Arc<Vec<u8>>, from: usize, to: usize) -> Payload {
        Payload { chunk: chunk.clone(), from: from as u32, to: to as u32 }
    }
}

impl std::ops::Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.chunk.get(self.from as usize..self.to as usize).unwrap_or_default()
    }
}

/// The header fields of the record at the start of `bytes`, if it is whole under `seed` and fills
/// lines of so many bytes: kind, stamp, time and length in bytes.
pub fn parse(bytes: &[u8], seed: u32, line_bytes: usize) -> Option<(u8, u64, i64, usize)> {
    let field = |at: usize, n: usize| bytes.get(at..at + n);
    let units = u16::from_le_bytes(field(4, 2)?.try_into().ok()?);
    let len = usize::from(units) * UNIT_BYTES;
    // a mask: `is_multiple_of` would divide, for each record of a full log
    if units == 0 || len > bytes.len() || len & (line_bytes - 1) != 0 {
        return None;
    }
    let crc = u32::from_le_bytes(field(0, 4)?.try_into().ok()?);
    if !pmem::crc_fits(pmem::crc32c(seed, field(4, len - 4)?), crc) {
        return None;
    }
    let kind = *bytes.get(6)?;
    let stamp = u64::from_le_bytes(field(8, 8)?.try_into().ok()?);
    let time = i64::from_le_bytes(field(16, 8)?.try_into().ok()?);
    Some((kind, stamp, time, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_round_trips_and_is_bound_to_its_seed() {
        for line in LINES_BYTES {
            let mut buffer = RecordBuffer::new(KIND_CHANGE, -5);
            buffer.push(b"payload");
            buffer.align();
            let bytes = buffer.seal(77, 1234, line).to_vec();
            assert_eq!(bytes.len(), line);
            assert_eq!(parse(&bytes, 1234, line), Some((KIND_CHANGE, 77, -5, line)));
            assert_eq!(parse(&bytes, 1235, line), None, "another lap's seed");
            for bit in 0..bytes.len() * 8 {
                let mut torn = bytes.clone();
                torn[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(parse(&torn, 1234, line), None, "bit {bit}");
            }
        }
    }

    /// A record is the same bytes however it was put together, short or long, and but for the
    /// padding in lines of whichever length.
    #[test]
    fn short_and_long_records_are_alike() {
        for (len, line) in (0..600usize).flat_map(|len| LINES_BYTES.map(|line| (len, line))) {
            let payload: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
            let mut whole = RecordBuffer::new(KIND_CHANGE, 9);
            whole.push(&payload);
            let mut pieces = RecordBuffer::new(KIND_CHANGE, 9);
            payload.chunks(7).for_each(|piece| pieces.push(piece));
            assert_eq!(pieces.payload_len(), len);
            pieces.align();
            let sealed = pieces.seal(3, 5, line).to_vec();
            assert_eq!(sealed, whole.seal(3, 5, line), "{len} bytes");
            assert_eq!(sealed, pieces.seal(3, 5, line), "{len} bytes, sealed twice");
            assert_eq!(sealed.len(), (HEADER_BYTES + len).next_multiple_of(line));
            assert_eq!(sealed.len(), whole.sealed_len(line));
            assert_eq!(&sealed[HEADER_BYTES..HEADER_BYTES + len], &payload[..]);
            assert!(sealed[HEADER_BYTES + len..].iter().all(|byte| *byte == 0), "padding");
            assert_eq!(parse(&sealed, 5, line), Some((KIND_CHANGE, 3, 9, sealed.len())));
        }
    }

    #[test]
    fn a_record_that_ends_within_a_line_is_none() {
        let mut buffer = RecordBuffer::new(KIND_CHANGE, 0);
        for len in (UNIT_BYTES..=600).step_by(UNIT_BYTES) {
            let sealed = buffer.seal(1, 2, UNIT_BYTES).to_vec();
            assert_eq!(sealed.len(), len);
            assert!(parse(&sealed, 2, UNIT_BYTES).is_some(), "{len} bytes");
            let fills = len == 256 || len == 512;
            assert_eq!(parse(&sealed, 2, LINE_BYTES_MAX).is_some(), fills, "{len} bytes");
            buffer.push(&[7; UNIT_BYTES]);
        }
    }

    #[test]
    fn zeros_and_truncated_bytes_are_no_record() {
        for line in LINES_BYTES {
            assert_eq!(parse(&[0; 512], 0, line), None);
            assert_eq!(parse(&[1; 10], 0, line), None);
            assert_eq!(parse(&[], 0, line), None);
        }
    }
}
