//! Records of a lane.
//!
//! ```text
//! 0   bytes of the record, u32: a multiple of 64      4   CRC-32C of the rest of the head, u32
//! 8   number of the request, u64                      16  pieces, u64
//! 24  of each piece: +0 offset in the file, u64  +8 generation, u64  +16 bytes, u32
//!                    +20 slot, u32  +24 CRC-32C of its bytes, u32, and four zeros
//!     zeros up to a multiple of 64: the end of the head
//!     the bytes of each piece, and zeros up to a multiple of 64
//! ```
//!
//! All little-endian. The head's checksum begins with what is the connection's alone, and then has
//! the record's position and its length: a record of another lap, connection or pool is none. The
//! bytes of a piece are stored, and summed, in one pass from where the caller has them.

use std::ops::{Range, RangeInclusive};

use pool::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::{LANE_BYTES, SLOTS};

/// Most pieces of a record.
pub const PIECES_MAX: usize = 8;
/// Most bytes of all pieces of a record.
pub const BYTES_MAX: usize = 64 << 10;

/// A record begins at a multiple of so many bytes.
pub(crate) const ALIGN: usize = 64;
const HEAD: usize = 24;
const PIECE: usize = 32;
/// The longest record.
pub(crate) const RECORD_MAX: usize = head_of(PIECES_MAX) + BYTES_MAX + PIECES_MAX * ALIGN;

const fn head_of(pieces: usize) -> usize {
    (HEAD + pieces * PIECE).next_multiple_of(ALIGN)
}

/// Bytes for a place of a file that is leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'d> {
    /// The lease's slot.
    pub slot: u8,
    /// Its generation.
    pub generation: u64,
    /// Where in the file.
    pub offset: u64,
    /// The bytes.
    pub data: &'d [u8],
}

/// A record, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'r> {
    /// Its request.
    pub number: u64,
    /// Its pieces.
    pub pieces: SmallVec<[Piece<'r>; 2]>,
    /// Its length in the lane.
    pub len: usize,
}

impl Record<'_> {
    /// Where in the lane the bytes of each piece are, the record being at `at`.
    pub(crate) fn places(&self, at: u64) -> impl Iterator<Item = Range<u64>> {
        let mut next = at + head_of(self.pieces.len()) as u64;
        self.pieces.iter().map(move |piece| {
            let (from, len) = (next, piece.data.len());
            next += len.next_multiple_of(ALIGN) as u64;
            from..from + len as u64
        })
    }
}

/// Bytes of a record of these pieces; `None`: they are too many.
pub(crate) fn len_of(pieces: &[Piece<'_>]) -> Option<usize> {
    let bytes: usize = pieces.iter().map(|piece| piece.data.len()).sum();
    let fits = (1..=PIECES_MAX).contains(&pieces.len()) && bytes <= BYTES_MAX;
    let lines = pieces.iter().map(|piece| piece.data.len().next_multiple_of(ALIGN));
    fits.then(|| head_of(pieces.len()) + lines.sum::<usize>())
}

/// The blocks of a file that `len` bytes from `offset` on lie in.
pub fn blocks_of(offset: u64, len: usize) -> RangeInclusive<u64> {
    let last = offset.saturating_add(len as u64).saturating_sub(1).max(offset);
    offset / BLOCK_BYTES..=last / BLOCK_BYTES
}

impl Piece<'_> {
    /// The blocks that its bytes lie in.
    pub(crate) fn blocks(&self) -> RangeInclusive<u64> {
        blocks_of(self.offset, self.data.len())
    }
}

/// Where a record of `len` bytes goes whose lane has come to `position`: there, or at the beginning
/// of the next lap, where it does not fit in before.
pub(crate) fn place(position: u64, len: usize) -> u64 {
    match position % LANE_BYTES + len as u64 <= LANE_BYTES {
        true => position,
        false => position.next_multiple_of(LANE_BYTES),
    }
}

fn seeded(seed: u32, position: u64, len: usize) -> u32 {
    let mut place = [0; 12];
    place[..8].copy_from_slice(&position.to_le_bytes());
    place[8..].copy_from_slice(&(len as u32).to_le_bytes());
    pmem::crc32c(seed, &place)
}

/// Makes the head of a record for `position`, in `buffer`. `store` stores a piece's bytes, at so
/// many bytes from the record's beginning, and gives their checksum.
pub(crate) fn encode(
    buffer: &mut Vec<u8>,
    (seed, position): (u32, u64),
    number: u64,
    (pieces, len): (&[Piece<'_>], usize),
    mut store: impl FnMut(usize, &[u8]) -> u32,
) {
    buffer.clear();
    buffer.extend_from_slice(&(len as u32).to_le_bytes());
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&number.to_le_bytes());
    buffer.extend_from_slice(&(pieces.len() as u64).to_le_bytes());
    let mut at = head_of(pieces.len());
    for piece in pieces {
        let crc = store(at, piece.data);
        at += piece.data.len().next_multiple_of(ALIGN);
        buffer.extend_from_slice(&piece.offset.to_le_bytes());
        buffer.extend_from_slice(&piece.generation.to_le_bytes());
        buffer.extend_from_slice(&(piece.data.len() as u32).to_le_bytes());
        buffer.extend_from_slice(&u32::from(piece.slot).to_le_bytes());
        buffer.extend_from_slice(&u64::from(crc).to_le_bytes());
    }
    buffer.resize(head_of(pieces.len()), 0);
    let crc = pmem::crc32c(seeded(seed, position, len), &buffer[8..]);
    buffer[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// The number at `at`, if the bytes go so far.
pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn short(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes))
}

/// How long the record is that these bytes begin with, by what they say; `None`: it is none.
pub(crate) fn len_said(bytes: &[u8]) -> Option<usize> {
    let len = short(bytes, 0)? as usize;
    (len >= ALIGN && len.is_multiple_of(ALIGN) && len <= RECORD_MAX).then_some(len)
}

/// The record of `position` that these bytes begin with; `None`: it is not whole, or none.
pub(crate) fn decode(bytes: &[u8], seed: u32, position: u64) -> Option<Record<'_>> {
    let len = len_said(bytes)?;
    let bytes = bytes.get(..len)?;
    let count = usize::try_from(number(bytes, 16)?).ok().filter(|it| *it <= PIECES_MAX)?;
    let (head, mut data) = bytes.split_at_checked(head_of(count))?;
    if !pmem::crc_fits(pmem::crc32c(seeded(seed, position, len), &head[8..]), short(head, 4)?) {
        return None;
    }
    // whoever stored it may have stored anything
    let mut pieces = SmallVec::new();
    for at in (HEAD..).step_by(PIECE).take(count) {
        let slot = u8::try_from(short(head, at + 20)?).ok();
        let slot = slot.filter(|slot| usize::from(*slot) < SLOTS)?;
        let bytes = short(head, at + 16)? as usize;
        let (lines, rest) = data.split_at_checked(bytes.checked_next_multiple_of(ALIGN)?)?;
        data = rest;
        let own = &lines[..bytes];
        if !pmem::crc_fits(pmem::crc32c(0, own), short(head, at + 24)?) {
            return None;
        }
        let (offset, generation) = (number(head, at)?, number(head, at + 8)?);
        pieces.push(Piece { slot, generation, offset, data: own });
    }
    Some(Record { number: number(head, 8)?, pieces, len })
}

/// All bytes of a record of these pieces for `position`; `None`: they are too many.
pub(crate) fn whole(place: (u32, u64), number: u64, pieces: &[Piece<'_>]) -> Option<Vec<u8>> {
    let len = len_of(pieces)?;
    let (mut head, mut bytes) = (Vec::new(), vec![0; len]);
    encode(&mut head, place, number, (pieces, len), |at, data| {
        bytes[at..at + data.len()].copy_from_slice(data);
        pmem::crc32c(0, data)
    });
    bytes[..head.len()].copy_from_slice(&head);
    Some(bytes)
}

/// Makes the checksums fit of what may have been a record, as far as that has any.
pub(crate) fn seal((seed, position): (u32, u64), bytes: &mut [u8]) -> Option<()> {
    let bytes = bytes.get_mut(..len_said(bytes)?)?;
    let len = bytes.len();
    let count = usize::try_from(number(bytes, 16)?).ok().filter(|it| *it <= PIECES_MAX)?;
    let mut from = head_of(count);
    for at in (HEAD..).step_by(PIECE).take(count) {
        let own = short(bytes, at + 16)? as usize;
        let Some(data) = bytes.get(from..from.checked_add(own)?) else { break };
        let crc = pmem::crc32c(0, data);
        bytes.get_mut(at + 24..at + 28)?.copy_from_slice(&crc.to_le_bytes());
        from += own.next_multiple_of(ALIGN);
    }
    let crc = pmem::crc32c(seeded(seed, position, len), bytes.get(8..head_of(count))?);
    bytes.get_mut(4..8)?.copy_from_slice(&crc.to_le_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_record_is_read_as_it_was_made_and_nowhere_else() {
        let pieces = [
            Piece { slot: 3, generation: 9, offset: 4096, data: b"some bytes" },
            Piece { slot: 31, generation: 1, offset: 7, data: &[5; 4096] },
        ];
        let len = len_of(&pieces).unwrap();
        let bytes = whole((7, 640), 12, &pieces).unwrap();
        assert_eq!(bytes.len(), len);
        let record = decode(&bytes, 7, 640).unwrap();
        assert_eq!((record.number, record.len, &record.pieces[..]), (12, len, &pieces[..]));
        for (place, piece) in record.places(640).zip(&pieces) {
            let place = place.start as usize - 640..place.end as usize - 640;
            assert_eq!(&bytes[place], piece.data);
        }
        assert_eq!(decode(&bytes, 7, 640 + LANE_BYTES), None, "of another lap");
        assert_eq!(decode(&bytes, 8, 640), None, "of another connection");
        // zeros behind bytes are nobody's
        let counts = |at: &usize| *at < 128 + 10 || *at >= 192;
        for at in (0..len).filter(counts) {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(decode(&torn, 7, 640), None, "byte {at}");
        }
    }

    #[test]
    fn no_record_goes_over_the_end_of_its_lap() {
        assert_eq!(place(LANE_BYTES - 128, 128), LANE_BYTES - 128);
        assert_eq!(place(LANE_BYTES - 128, 192), LANE_BYTES);
        assert_eq!(place(3 * LANE_BYTES, 192), 3 * LANE_BYTES);
    }

    #[test]
    fn what_is_too_much_is_no_record() {
        let piece = Piece { slot: 0, generation: 1, offset: 0, data: &[] };
        assert_eq!(len_of(&[]), None);
        assert_eq!(len_of(&[piece; PIECES_MAX + 1]), None);
        let long = std::vec![0; BYTES_MAX + 1];
        assert_eq!(len_of(&[Piece { data: &long, ..piece }]), None);
        assert_eq!(len_of(&[Piece { data: &long[1..], ..piece }; 1]), Some(64 + BYTES_MAX));
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_record_and_no_panic(bytes in vec(any::<u8>(), 0..512)) {
            prop_assert_eq!(decode(&bytes, 1, 0), None);
        }

        /// Whoever makes checksums that fit may say anything.
        #[test]
        fn whatever_a_hostile_record_says_is_inside(
            mut bytes in vec(any::<u8>(), 64..512),
            count in 0u8..12,
        ) {
            let len = bytes.len() / ALIGN * ALIGN;
            bytes.truncate(len);
            bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
            bytes[16..24].copy_from_slice(&u64::from(count).to_le_bytes());
            seal((1, 64), &mut bytes);
            if let Some(record) = decode(&bytes, 1, 64) {
                prop_assert!(record.pieces.iter().all(|piece| usize::from(piece.slot) < SLOTS));
                let all: usize = record.pieces.iter().map(|piece| piece.data.len()).sum();
                prop_assert!(all <= len);
            }
        }
    }
}
