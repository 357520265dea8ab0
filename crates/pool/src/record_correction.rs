//! Correction of a log record, or of a chunk's header, of which one or two bits were flipped.
//!
//! The record's checksum says which bits they can be. A correction counts only if it is the only
//! one, the record's head then fits its place in the lane, and the payload makes sense to the file
//! system. Two flips in a record so long that its checksum does not tell for certain need the proof
//! of the payload's own checksums.

use crate::crc_correction::{FlippedBit, MESSAGE_BITS_MAX, TWO_FLIPS_BITS_MAX, flips_of};
use crate::log::{CHUNK_HEADER_BYTES, CHUNK_MAGIC, ChunkHeader};
use crate::record::{FLAG_SPILLED, HEADER_BYTES, KIND_CHANGE, KIND_EPOCH, STAMP_AT_OPEN_MAX};
use crate::record::{UNIT_BYTES, parse};

/// Flipped bits of a record that are turned back, at most.
const FLIPS_MAX: usize = 2;
/// Bytes before what the checksum covers.
const CRC_BYTES: usize = 4;
/// Bits of the record's length, the first that the checksum covers.
const LENGTH_BITS: usize = 16;
/// Longest record that is corrected, bytes.
const RECORD_BYTES_MAX: usize = MESSAGE_BITS_MAX / 8;

/// Whether a payload that was corrected makes sense: the record's kind, its flags, the payload, and
/// whether only checksums in the payload can prove it.
pub type RecordProbe = fn(u8, u8, &[u8], bool) -> bool;

/// What is known of the place where a record is to be.
#[derive(Clone, Copy)]
pub struct RecordPlace {
    /// Seed of the checksums in its chunk.
    pub seed: u32,
    /// Bytes of a line of the log.
    pub line_bytes: usize,
    /// The stamp of the lane's record before.
    pub stamp: u64,
    /// Says whether a payload makes sense.
    pub probe: RecordProbe,
}

impl RecordPlace {
    /// The record at the start of `bytes` with its flipped bits turned back, and how many they are.
    pub fn corrected(&self, bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
        let mut found: Option<(Vec<u8>, usize)> = None;
        let length = bytes.get(4..6).and_then(|units| units.try_into().ok())?;
        let length = u16::from_le_bytes(length);
        let masks = (0..LENGTH_BITS).flat_map(|one| (0..=one).map(move |two| (one, two)));
        // 0: the length is as it was written
        let masks = masks.map(|(one, two)| 1u16 << one | 1 << two).chain([0]);
        for mask in masks {
            let len = usize::from(length ^ mask) * UNIT_BYTES;
            let fits = len <= bytes.len() && len <= RECORD_BYTES_MAX;
            if len == 0 || !fits || len & (self.line_bytes - 1) != 0 {
                continue;
            }
            let mut record = bytes[..len].to_vec();
            record[4..6].copy_from_slice(&(length ^ mask).to_le_bytes());
            for record in self.with_flips(&record, mask.count_ones() as usize) {
                // two that fit: nothing says which it was
                if found.as_ref().is_some_and(|(other, _)| *other != record.0) {
                    return None;
                }
                found = Some(record);
            }
        }
        found
    }

    /// All records that fit and differ from this one, whose length was corrected in so many bits,
    /// in no more than what is left of [`FLIPS_MAX`].
    fn with_flips(&self, record: &[u8], already: usize) -> Vec<(Vec<u8>, usize)> {
        let covered = &record[CRC_BYTES..];
        let stored = u32::from_le_bytes(record[..4].try_into().unwrap_or_default());
        let syndrome = pmem::crc32c(self.seed, covered) ^ stored;
        let bits = covered.len() * 8;
        let mut found = Vec::new();
        for more in 0..=FLIPS_MAX.saturating_sub(already) {
            let choices = match (more, syndrome) {
                (0, 0) => vec![Vec::new()],
                (0, _) => Vec::new(),
                (more, syndrome) => flips_of(bits, syndrome, more),
            };
            let is_weak = already + more == FLIPS_MAX && bits > TWO_FLIPS_BITS_MAX;
            for flips in choices {
                let Some(corrected) = turned_back(record, &flips) else { continue };
                if self.makes_sense(&corrected, is_weak) {
                    found.push((corrected, already + more));
                }
            }
        }
        found
    }

    fn makes_sense(&self, record: &[u8], is_weak: bool) -> bool {
        let Some((kind, stamp, _, len)) = parse(record, self.seed, self.line_bytes) else {
            return false;
        };
        let flags = record.get(7).copied().unwrap_or(u8::MAX);
        let known = [KIND_CHANGE, KIND_EPOCH].contains(&kind) && flags <= FLAG_SPILLED;
        let payload = record.get(HEADER_BYTES..).unwrap_or_default();
        len == record.len()
            && known
            && (self.stamp + 1..=STAMP_AT_OPEN_MAX).contains(&stamp)
            && (self.probe)(kind, flags, payload, is_weak)
    }
}

/// The header of a chunk that these bytes were before two bits of them were lost.
pub fn corrected_header(
    bytes: &[u8; CHUNK_HEADER_BYTES],
    slice_uuid: &[u8; 16],
) -> Option<ChunkHeader> {
    if let Some(header) = ChunkHeader::corrected(bytes, slice_uuid) {
        return Some(header);
    }
    let mut header = *bytes;
    header[..4].copy_from_slice(&CHUNK_MAGIC);
    let stored = u32::from_le_bytes(header[4..8].try_into().ok()?);
    let seed = pmem::crc32c(0, slice_uuid);
    let syndrome = pmem::crc32c(seed, &header[8..]) ^ stored;
    let in_magic: u32 = bytes.iter().zip(CHUNK_MAGIC).map(|(a, b)| (a ^ b).count_ones()).sum();
    let flips = FLIPS_MAX.checked_sub(in_magic as usize)?;
    let bits = (CHUNK_HEADER_BYTES - 8) * 8;
    let found = if flips == 0 { vec![Vec::new()] } else { flips_of(bits, syndrome, flips) };
    let [only] = &found[..] else { return None };
    for flip in only {
        let bit = match *flip {
            FlippedBit::Checksum(bit) => 4 * 8 + bit as usize,
            FlippedBit::Message(bit) => 8 * 8 + bit,
        };
        header[bit / 8] ^= 1 << (bit % 8);
    }
    ChunkHeader::decode(&header, slice_uuid)
}

/// The record with these bits turned back; none if one of them is of the length, which was looked
/// at before.
fn turned_back(record: &[u8], flips: &[FlippedBit]) -> Option<Vec<u8>> {
    let mut record = record.to_vec();
    for flip in flips {
        let bit = match *flip {
            FlippedBit::Checksum(bit) => bit as usize,
            FlippedBit::Message(bit) if bit < LENGTH_BITS => return None,
            FlippedBit::Message(bit) => CRC_BYTES * 8 + bit,
        };
        record[bit / 8] ^= 1 << (bit % 8);
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordBuffer;

    fn sealed(payload: usize) -> Vec<u8> {
        let mut buffer = RecordBuffer::new(KIND_CHANGE, 1_700_000_000_000_000_000);
        (0..payload).for_each(|at| buffer.push(&[(at * 37 % 251) as u8 | 1]));
        let mut bytes = buffer.seal(100, 5, UNIT_BYTES).to_vec();
        // what an earlier lap left behind it
        bytes.extend([0x5A; 640]);
        bytes
    }

    fn place(probe: RecordProbe) -> RecordPlace {
        RecordPlace { seed: 5, line_bytes: UNIT_BYTES, stamp: 99, probe }
    }

    #[test]
    fn any_two_bits_of_a_short_record_are_turned_back() {
        let whole = sealed(90);
        let len = 128;
        // a longer one would have other bytes in its padding
        let place = place(|_, _, payload, _| payload[90..].iter().all(|byte| *byte == 0));
        let bits = len * 8;
        for first in (0..bits).step_by(11) {
            for second in [first, (first + 1) % bits, (first + 300) % bits, 35, 700] {
                let mut damaged = whole.clone();
                damaged[first / 8] ^= 1 << (first % 8);
                damaged[second / 8] ^= 1 << (second % 8);
                let expected = usize::from(first != second) * 2;
                let found = place.corrected(&damaged);
                assert_eq!(found, Some((whole[..len].to_vec(), expected)), "{first} {second}");
            }
        }
    }

    #[test]
    fn two_bits_of_a_long_record_need_a_proof_by_the_payload() {
        let whole = sealed(4000);
        let len = 4032;
        let mut damaged = whole.clone();
        damaged[1000] ^= 4;
        let single = place(|_, _, _, is_weak| !is_weak).corrected(&damaged);
        assert_eq!(single, Some((whole[..len].to_vec(), 1)));
        damaged[3000] ^= 64;
        assert_eq!(place(|_, _, _, is_weak| !is_weak).corrected(&damaged), None);
        let proof: RecordProbe = |_, _, payload, _| {
            payload[..4000].iter().enumerate().all(|(at, byte)| *byte == (at * 37 % 251) as u8 | 1)
        };
        assert_eq!(place(proof).corrected(&damaged), Some((whole[..len].to_vec(), 2)));
    }

    #[test]
    fn what_was_no_record_of_this_place_stays_none() {
        let whole = sealed(90);
        let place = place(|_, _, _, _| true);
        // one of an earlier lap, zeros, and one whose stamp is not above the lane's
        assert_eq!(RecordPlace { seed: 6, ..place }.corrected(&whole), None);
        assert_eq!(place.corrected(&[0; 640]), None);
        assert_eq!(RecordPlace { stamp: 100, ..place }.corrected(&whole), None);
        let mut damaged = whole.clone();
        [3, 40, 77, 500].iter().for_each(|bit| damaged[bit / 8] ^= 1 << (bit % 8));
        assert_eq!(place.corrected(&damaged), None, "four bits");
    }
}
