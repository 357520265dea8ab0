//! A leaf as a value of the tree: `runs u8`, then `(first u8, count-1 u8, addr 48 bits)` each, then
//! the checksums of all blocks in order, 32 bits each. The highest bit of `count-1` says that the
//! run's blocks may have other places, too: then the references to them are counted.

use crate::bytes::Bytes;
use crate::item::Placed;
use crate::leaf::LEAF_BLOCKS;
use pool::BlockAddr;

/// Of a run: its blocks may have other places.
const SHARED: u8 = 0x80;

/// A block that a stored leaf names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// In which slot.
    pub slot: usize,
    /// The block.
    pub placed: Placed,
    /// Whether it may have other places.
    pub shared: bool,
}

/// The value of a leaf with these slots, of which some may have other places; `None`: it names no
/// block.
pub fn encode(slots: impl Iterator<Item = (Placed, bool)>) -> Option<Vec<u8>> {
    let mut runs: Vec<(u8, u8, u64)> = Vec::new();
    let mut crcs = Vec::new();
    for (index, (placed, shared)) in slots.enumerate() {
        let mark = if shared { SHARED } else { 0 };
        let addr = placed.addr.bits();
        if addr == 0 {
            continue;
        }
        crcs.extend_from_slice(&placed.crc.to_le_bytes());
        match runs.last_mut() {
            Some((first, more, start))
                if *more & SHARED == mark
                    && usize::from(*first) + usize::from(*more & !SHARED) + 1 == index
                    && *start + u64::from(*more & !SHARED) + 1 == addr =>
            {
                *more += 1;
            }
            _ => runs.push((index as u8, mark, addr)),
        }
    }
    if runs.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(1 + runs.len() * 8 + crcs.len());
    out.push(runs.len() as u8);
    for (first, more, addr) in runs {
        out.extend_from_slice(&[first, more]);
        out.extend_from_slice(&addr.to_le_bytes()[..6]);
    }
    out.extend_from_slice(&crcs);
    Some(out)
}

/// The blocks that a stored leaf names, by slot; `None` if it makes no sense.
pub fn decode(value: &[u8]) -> Option<Vec<Named>> {
    let mut bytes = Bytes(value);
    let runs = bytes.u8()?;
    let mut blocks: Vec<Named> = Vec::new();
    for _ in 0..runs {
        let (first, more) = (usize::from(bytes.u8()?), bytes.u8()?);
        let (shared, more) = (more & SHARED != 0, u64::from(more & !SHARED));
        let addr = BlockAddr::from_bits(word(bytes.take(6)?))?;
        let follows = blocks.last().is_none_or(|named| named.slot < first);
        if addr.is_none() || !follows || first as u64 + more >= LEAF_BLOCKS {
            return None;
        }
        for i in 0..=more {
            let placed = Placed { addr: BlockAddr::from_bits(addr.bits() + i)?, crc: 0 };
            blocks.push(Named { slot: first + i as usize, placed, shared });
        }
    }
    for named in &mut blocks {
        named.placed.crc = bytes.u32()?;
    }
    (bytes.is_empty() && !blocks.is_empty()).then_some(blocks)
}

fn word(values: &[u8]) -> u64 {
    values.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_sharing_part_runs_and_round_trip() {
        let slot = |index: u64| {
            let placed = Placed { addr: BlockAddr::new(1, 500 + index), crc: index as u32 };
            (placed, (3..100).contains(&index))
        };
        let value = encode((0..128).map(slot)).expect("has blocks");
        assert_eq!(value.len(), 1 + 3 * 8 + 128 * 4, "three runs");
        let named = decode(&value).expect("just encoded");
        let again = named.iter().map(|named| (named.placed, named.shared));
        assert!(again.eq((0..128).map(slot)));
    }

    #[test]
    fn bytes_that_no_leaf_wrote_are_refused() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0]), None);
        assert_eq!(decode(&[1, 127, 1, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(decode(&[255; 300]), None);
    }
}
