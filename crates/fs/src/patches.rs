//! Bytes that overlay one block: small writes, until they are merged into a block of their own.
//!
//! Immutable: a write makes a new value, and readers keep the one that they found.

use crate::bytes::Bytes;
use pool::BLOCK_BYTES;

/// Most bytes of patches over one block; beyond that the block is written anew.
pub const PATCH_BYTES_MAX: usize = 512;
/// Most patches over one block.
pub const PATCHES_MAX: usize = 8;

/// Patches of one block: disjoint, in order, not touching each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    parts: Vec<(u16, Vec<u8>)>,
}

impl Patches {
    /// These patches with `data` written over them at `at`.
    pub fn with(&self, at: usize, data: &[u8]) -> Patches {
        let end = at + data.len();
        let mut parts = Vec::with_capacity(self.parts.len() + 1);
        let mut merged_at = at;
        let mut merged = data.to_vec();
        for (start, bytes) in &self.parts {
            let (start, stop) = (usize::from(*start), usize::from(*start) + bytes.len());
            if stop < at || start > end {
                parts.push((start as u16, bytes.clone()));
                continue;
            }
            if start < merged_at {
                let mut front = bytes[..merged_at - start].to_vec();
                front.append(&mut merged);
                merged = front;
                merged_at = start;
            }
            if stop > end {
                merged.extend_from_slice(&bytes[end - start..]);
            }
        }
        let place = parts.partition_point(|(start, _)| usize::from(*start) < merged_at);
        parts.insert(place, (merged_at as u16, merged));
        Patches { parts }
    }

    /// All of a block.
    pub fn whole(block: &[u8]) -> Patches {
        Patches { parts: vec![(0, block.to_vec())] }
    }

    /// Whether nothing of the block is seen.
    pub fn cover_all(&self) -> bool {
        matches!(&self.parts[..], [(0, bytes)] if bytes.len() == BLOCK_BYTES as usize)
    }

    /// Whether they have grown past what an overlay may be.
    pub fn too_large(&self) -> bool {
        let bytes: usize = self.parts.iter().map(|(_, bytes)| bytes.len()).sum();
        bytes > PATCH_BYTES_MAX || self.parts.len() > PATCHES_MAX
    }

    /// Puts them over `buffer`, which holds the block's bytes from `from` on.
    pub fn apply(&self, from: usize, buffer: &mut [u8]) {
        let to = from + buffer.len();
        for (start, bytes) in &self.parts {
            let start = usize::from(*start);
            let (low, high) = (start.max(from), (start + bytes.len()).min(to));
            if low < high {
                buffer[low - from..high - from].copy_from_slice(&bytes[low - start..high - start]);
            }
        }
    }

    /// Checksum of a block of zeros with them over it.
    pub fn crc_over_zeros(&self) -> u32 {
        let mut block = [0; BLOCK_BYTES as usize];
        self.apply(0, &mut block);
        pmem::crc32c(0, &block)
    }

    /// Each patch: where it lies in the block, and its bytes.
    pub fn parts(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.parts.iter().map(|(at, bytes)| (usize::from(*at), bytes.as_slice()))
    }

    /// As a value of the tree: `(at u16, len u16, bytes)` each.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (start, bytes) in &self.parts {
            out.extend_from_slice(&start.to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        out
    }

    /// The patches that a value says, if it makes sense.
    pub fn decode(value: &[u8]) -> Option<Patches> {
        let mut bytes = Bytes(value);
        let mut parts = Vec::new();
        let mut last = 0usize;
        while !bytes.is_empty() {
            let start = bytes.u16()?;
            let len = usize::from(bytes.u16()?);
            let data = bytes.take(len)?;
            let fine = usize::from(start) >= last && len > 0 && usize::from(start) + len <= 4096;
            if !fine {
                return None;
            }
            last = usize::from(start) + len;
            parts.push((start, data.to_vec()));
        }
        Some(Patches { parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn patches_behave_as_writes_to_a_buffer(
            writes in prop::collection::vec((0usize..4096, 1usize..300, any::<u8>()), 1..20),
        ) {
            let mut model = vec![0u8; 4096];
            let mut patches = Patches::default();
            for (at, len, byte) in writes {
                let data = vec![byte; len.min(4096 - at)];
                model[at..at + data.len()].copy_from_slice(&data);
                patches = patches.with(at, &data);
                prop_assert_eq!(Patches::decode(&patches.encode()), Some(patches.clone()));
            }
            let mut seen = vec![0u8; 4096];
            patches.apply(0, &mut seen);
            prop_assert_eq!(&seen, &model);
            let mut part = vec![0u8; 100];
            patches.apply(1000, &mut part);
            prop_assert_eq!(&part[..], &model[1000..1100]);
        }
    }

    #[test]
    fn the_same_place_written_again_does_not_grow() {
        let mut patches = Patches::default();
        for round in 0..16u8 {
            patches = patches.with(128, &[round; 64]);
        }
        assert_eq!(patches.encode().len(), 4 + 64);
    }
}
