//! A leaf as a value of the tree: `runs u8`, then `(first u8, count-1 u8, addr 48 bits)` each, then
//! the checksums of all blocks in order, 32 bits each.

use crate::bytes::Bytes;
use crate::item::Placed;
use crate::leaf::LEAF_BLOCKS;
use pool::BlockAddr;

/// The value of a leaf with these slots; `None`: it names no block.
pub fn encode(slots: impl Iterator<Item = Placed>) -> Option<Vec<u8>> {
    let mut runs: Vec<(u8, u8, u64)> = Vec::new();
    let mut crcs = Vec::new();
    for (index, placed) in slots.enumerate() {
        let addr = placed.addr.bits();
        if addr == 0 {
            continue;
        }
        crcs.extend_from_slice(&placed.crc.to_le_bytes());
        match runs.last_mut() {
            Some((first, more, start))
                if usize::from(*first) + usize::from(*more) + 1 == index
                    && *start + u64::from(*more) + 1 == addr =>
            {
                *more += 1;
            }
            _ => runs.push((index as u8, 0, addr)),
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
pub fn decode(value: &[u8]) -> Option<Vec<(usize, Placed)>> {
    let mut bytes = Bytes(value);
    let runs = bytes.u8()?;
    let mut blocks: Vec<(usize, Placed)> = Vec::new();
    for _ in 0..runs {
        let (first, more) = (usize::from(bytes.u8()?), u64::from(bytes.u8()?));
        let addr = BlockAddr::from_bits(word(bytes.take(6)?))?;
        let follows = blocks.last().is_none_or(|(slot, _)| *slot < first);
        if addr.is_none() || !follows || first as u64 + more >= LEAF_BLOCKS {
            return None;
        }
        for i in 0..=more {
            let addr = BlockAddr::from_bits(addr.bits() + i)?;
            blocks.push((first + i as usize, Placed { addr, crc: 0 }));
        }
    }
    for (_, placed) in &mut blocks {
        placed.crc = bytes.u32()?;
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
    fn bytes_that_no_leaf_wrote_are_refused() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0]), None);
        assert_eq!(decode(&[1, 127, 1, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(decode(&[255; 300]), None);
    }
}
