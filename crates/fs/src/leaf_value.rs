//! A leaf as a value of the tree: `runs u8`, then `(first u8, count-1 u8, addr 48 bits)` each, then
//! the checksums of all blocks that are written, in order, 32 bits each. The highest bit of
//! `count-1` says that the run's blocks may have other places, too: then the references to them are
//! counted. That of `first` says that they are reserved: not written, and read as zeros. Then zeros
//! follow, so that the value takes as much as it will when they are written one by one: what is
//! reserved is written without a look at how much is free, and no tree grows by it.

use crate::bytes::Bytes;
use crate::item::Placed;
use crate::leaf::LEAF_BLOCKS;
use pool::BlockAddr;

/// Of a run, in its count: its blocks may have other places.
const SHARED: u8 = 0x80;
/// Of a run, in its first slot: its blocks are reserved.
const RESERVED: u8 = 0x80;

/// A block that a leaf names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// In which slot.
    pub slot: usize,
    /// The block.
    pub placed: Placed,
    /// What it is to the leaf.
    pub part: Part,
}

/// Bytes of a run, and of a checksum.
const RUN_BYTES: usize = 8;
const CRC_BYTES: usize = 4;

/// What a block is to the leaf that names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Its own.
    Own,
    /// One that may have other places, too.
    Shared,
    /// Its own, but not written: it has no checksum, and zeros are read in its place.
    Reserved,
}

impl Part {
    fn marks(self) -> (u8, u8) {
        match self {
            Part::Own => (0, 0),
            Part::Shared => (0, SHARED),
            Part::Reserved => (RESERVED, 0),
        }
    }
}

/// The value of a leaf that names these blocks, in the order of their slots; `None`: there are
/// none.
pub fn encode(blocks: impl Iterator<Item = Named>) -> Option<Vec<u8>> {
    let mut runs: Vec<(Named, u8)> = Vec::new();
    let mut crcs = Vec::new();
    for named in blocks {
        if named.part != Part::Reserved {
            crcs.extend_from_slice(&named.placed.crc.to_le_bytes());
        }
        match runs.last_mut() {
            Some((first, more))
                if first.part == named.part
                    && first.slot + usize::from(*more) + 1 == named.slot
                    && first.placed.addr.bits() + u64::from(*more) + 1
                        == named.placed.addr.bits() =>
            {
                *more += 1;
            }
            _ => runs.push((named, 0)),
        }
    }
    if runs.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(1 + runs.len() * 8 + crcs.len());
    out.push(runs.len() as u8);
    for (first, more) in &runs {
        let (reserved, shared) = first.part.marks();
        out.extend_from_slice(&[first.slot as u8 | reserved, *more | shared]);
        out.extend_from_slice(&first.placed.addr.bits().to_le_bytes()[..6]);
    }
    out.extend_from_slice(&crcs);
    let written = bytes_when_written(&runs);
    out.resize(written.max(out.len()), 0);
    Some(out)
}

/// Most bytes of a value with these runs once any of what is reserved is written; none where
/// nothing is reserved.
fn bytes_when_written(runs: &[(Named, u8)]) -> usize {
    let blocks = |(_, more): &(Named, u8)| usize::from(*more) + 1;
    let is_reserved = |run: &&(Named, u8)| run.0.part == Part::Reserved;
    let reserved: usize = runs.iter().filter(is_reserved).map(blocks).sum();
    if reserved == 0 {
        return 0;
    }
    let others = runs.iter().filter(|run| !is_reserved(run)).count();
    1 + (others + reserved) * RUN_BYTES + runs.iter().map(blocks).sum::<usize>() * CRC_BYTES
}

/// The blocks that a stored leaf names, by slot; `None` if it makes no sense.
pub fn decode(value: &[u8]) -> Option<Vec<Named>> {
    let mut bytes = Bytes(value);
    let runs = bytes.u8()?;
    let mut blocks: Vec<Named> = Vec::new();
    for _ in 0..runs {
        let (first, more) = (bytes.u8()?, bytes.u8()?);
        let part = match (first & RESERVED != 0, more & SHARED != 0) {
            (false, false) => Part::Own,
            (false, true) => Part::Shared,
            (true, false) => Part::Reserved,
            (true, true) => return None,
        };
        let (first, more) = (usize::from(first & !RESERVED), u64::from(more & !SHARED));
        let addr = BlockAddr::from_bits(word(bytes.take(6)?))?;
        let follows = blocks.last().is_none_or(|named| named.slot < first);
        if addr.is_none() || !follows || first as u64 + more >= LEAF_BLOCKS {
            return None;
        }
        for i in 0..=more {
            let placed = Placed { addr: BlockAddr::from_bits(addr.bits() + i)?, crc: 0 };
            blocks.push(Named { slot: first + i as usize, placed, part });
        }
    }
    for named in blocks.iter_mut().filter(|named| named.part != Part::Reserved) {
        named.placed.crc = bytes.u32()?;
    }
    let reserves = blocks.iter().any(|named| named.part == Part::Reserved);
    let ends = bytes.is_empty() || reserves && bytes.0.iter().all(|byte| *byte == 0);
    (ends && !blocks.is_empty()).then_some(blocks)
}

fn word(values: &[u8]) -> u64 {
    values.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_sharing_and_reservation_part_runs_and_round_trip() {
        let slot = |slot: usize| {
            let part = match slot {
                3..100 => Part::Shared,
                110..128 => Part::Reserved,
                _ => Part::Own,
            };
            let crc = if part == Part::Reserved { 0 } else { slot as u32 };
            let placed = Placed { addr: BlockAddr::new(1, 500 + slot as u64), crc };
            Named { slot, placed, part }
        };
        let value = encode((0..128).map(slot)).expect("has blocks");
        // three runs, and those that each block of the fourth may become
        assert_eq!(value.len(), 1 + (3 + 18) * 8 + 128 * 4);
        let named = decode(&value).expect("just encoded");
        assert!(named.into_iter().eq((0..128).map(slot)));
    }

    /// However the blocks are written, one by one: the value never takes more than at first.
    #[test]
    fn a_value_does_not_grow_when_what_it_reserves_is_written() {
        let mut part = [Part::Reserved; 128];
        (40..50).for_each(|slot| part[slot] = Part::Own);
        let value = |part: &[Part; 128]| {
            let named = |(slot, part): (usize, &Part)| {
                let placed = Placed { addr: BlockAddr::new(0, 9 + slot as u64), crc: 7 };
                Named { slot, placed, part: *part }
            };
            encode(part.iter().enumerate().map(named)).expect("has blocks")
        };
        let first = value(&part).len();
        for step in [2, 3, 1] {
            for slot in (0..128).step_by(step) {
                part[slot] = Part::Own;
                let value = value(&part);
                assert!(value.len() <= first, "{} bytes, {first} at first", value.len());
                assert_eq!(decode(&value).map(|named| named.len()), Some(128));
            }
        }
        assert_eq!(value(&part).len(), 1 + 8 + 128 * 4);
    }

    #[test]
    fn bytes_that_no_leaf_wrote_are_refused() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0]), None);
        assert_eq!(decode(&[1, 127, 1, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(decode(&[255; 300]), None);
        assert_eq!(
            decode(&[1, 3, 0, 9, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0]),
            None,
            "it reserves nothing"
        );
        let reserved = [1, 0x83, 1, 9, 0, 0, 0, 0, 0];
        assert_eq!(decode(&reserved).map(|named| named.len()), Some(2));
        assert_eq!(decode(&[1, 0x83, 1, 9, 0, 0, 0, 0, 0, 0, 7]), None, "that is no room");
        let both = [1, 0x83, 0x81, 9, 0, 0, 0, 0, 0];
        assert_eq!(decode(&both), None, "nothing is shared that is not written");
    }
}
