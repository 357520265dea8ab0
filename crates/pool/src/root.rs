//! The root of a slice: one complete checkpoint of it.
//!
//! A checkpoint writes all new tree pages of all slices, fences, then writes one root per slice
//! into the slot that is not current, and fences. A crash between leaves some slices with the new
//! generation and some without: the highest generation that *all* slices have counts.

use crate::superblock::{BLOCK_BYTES, ROOT_BLOCKS, ROOT_COPY_BLOCKS};
use crate::tree::{ROOT_BYTES, Root, TreeError};
use pmem::Mapping;
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a root.
pub const ROOT_MAGIC: [u8; 8] = *b"NSROOT01";

/// Generations and sequence numbers are below this: nobody counts so far.
const NUMBER_MAX: u64 = 1 << 62;
/// A pool whose generations or sequence numbers are not below this is not opened: what is counted
/// on from there would reach [`NUMBER_MAX`].
pub const NUMBER_AT_OPEN_MAX: u64 = 1 << 60;
/// Counters of new inodes are below this when a pool is opened, for the same reason.
pub const INODE_COUNTER_MAX: u64 = 1 << 54;

/// The root's bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SliceRoot {
    /// [`ROOT_MAGIC`].
    pub magic: [u8; 8],
    /// Identity of the slice.
    pub slice_uuid: [u8; 16],
    /// The checkpoint's generation, from 1.
    pub generation: U64,
    /// Chunks of the log with a sequence number below this are folded.
    pub log_floor: U64,
    /// Next inode counter of this slice.
    pub inode_next: U64,
    /// Inodes of this slice.
    pub inodes: U64,
    /// Data blocks that are free in this generation (tree pages counted as used).
    pub blocks_free: U64,
    /// Highest stamp folded on this slice.
    pub stamp: U64,
    /// The main tree.
    pub tree: [u8; ROOT_BYTES],
    /// The free-space tree.
    pub space: [u8; ROOT_BYTES],
    /// Room.
    pub reserved: [u8; 112],
    /// CRC-32C of everything before.
    pub crc: U32,
    /// Room.
    pub tail: U32,
}

const _: () = assert!(size_of::<SliceRoot>() == 256);
// docs/FORMAT.md says these
const _: () = assert!(offset_of!(SliceRoot, log_floor) == 32);
const _: () = assert!(offset_of!(SliceRoot, tree) == 72);
const _: () = assert!(offset_of!(SliceRoot, crc) == 248);
const _: () = assert!(ROOT_BYTES == 32);

impl SliceRoot {
    /// An empty root.
    pub fn new(slice_uuid: [u8; 16]) -> SliceRoot {
        let mut root: SliceRoot = zerocopy::FromZeros::new_zeroed();
        root.magic = ROOT_MAGIC;
        root.slice_uuid = slice_uuid;
        root.set_trees(&Root::EMPTY, &Root::EMPTY);
        root
    }

    /// Sets the checksum.
    pub fn seal(mut self) -> SliceRoot {
        self.crc = U32::new(self.checksum());
        self
    }

    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        pmem::crc32c(0, bytes.get(..bytes.len() - 8).unwrap_or_default())
    }

    /// The root in a block of this copy of a slice, if there is one of the slice's.
    pub fn read(mapping: &Mapping, block: u64, slice_uuid: &[u8; 16]) -> Option<SliceRoot> {
        let mut bytes = [0; size_of::<SliceRoot>()];
        mapping.read_own(block * BLOCK_BYTES, &mut bytes).ok()?;
        SliceRoot::decode(&bytes, slice_uuid)
    }

    /// The root in these bytes, if it is whole and this slice's.
    pub fn decode(bytes: &[u8], slice_uuid: &[u8; 16]) -> Option<SliceRoot> {
        let (root, _) = SliceRoot::read_from_prefix(bytes).ok()?;
        let whole = root.magic == ROOT_MAGIC
            && root.slice_uuid == *slice_uuid
            && pmem::crc_fits(root.checksum(), root.crc.get())
            && (1..NUMBER_MAX).contains(&root.generation.get())
            && root.log_floor.get() < NUMBER_MAX
            && root.inode_next.get() < 1 << 55
            && root.inodes.get() < 1 << 55;
        whole.then_some(root)
    }

    /// The main tree and the free-space tree that it names.
    pub fn trees(&self) -> Result<(Root, Root), TreeError> {
        Ok((Root::decode(&self.tree)?, Root::decode(&self.space)?))
    }

    /// Names these trees.
    pub fn set_trees(&mut self, tree: &Root, space: &Root) {
        self.tree = tree.encode();
        self.space = space.encode();
    }
}

/// The blocks that hold a slot and its second copy.
pub fn blocks(slot: usize) -> [u64; 2] {
    [ROOT_BLOCKS[slot & 1], ROOT_COPY_BLOCKS[slot & 1]]
}

/// The slot contents of one slice: which generations it holds.
pub type Slots = [Option<SliceRoot>; 2];

/// The highest generation that every slice has in one of its slots, with the slot of each.
pub fn complete_generation(slices: &[Slots]) -> Option<(u64, Vec<usize>)> {
    let first = slices.first()?;
    let mut candidates: Vec<u64> = first.iter().flatten().map(|r| r.generation.get()).collect();
    candidates.sort_unstable_by(|a, b| b.cmp(a));
    candidates.into_iter().find_map(|generation| {
        let slots: Option<Vec<usize>> = slices
            .iter()
            .map(|slots| {
                slots
                    .iter()
                    .position(|r| r.as_ref().is_some_and(|r| r.generation.get() == generation))
            })
            .collect();
        slots.map(|slots| (generation, slots))
    })
}

/// The highest generation that any slot holds, complete or not.
pub fn highest_generation(slices: &[Slots]) -> u64 {
    slices.iter().flatten().flatten().map(|r| r.generation.get()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(generation: u64) -> Option<SliceRoot> {
        let mut root = SliceRoot::new([7; 16]);
        root.generation = U64::new(generation);
        Some(root.seal())
    }

    #[test]
    fn a_checkpoint_killed_between_two_roots_falls_back_to_the_one_before() {
        let slots = [[root(4), root(5)], [root(4), root(3)]];
        assert_eq!(complete_generation(&slots), Some((4, vec![0, 0])));
        assert_eq!(highest_generation(&slots), 5);
    }

    #[test]
    fn no_common_generation_is_no_root() {
        assert_eq!(complete_generation(&[[root(4), None], [root(3), root(2)]]), None);
    }

    #[test]
    fn a_root_survives_encoding_and_any_flipped_bit_is_refused() {
        let good = root(9).expect("made above");
        assert_eq!(SliceRoot::decode(good.as_bytes(), &[7; 16]), Some(good));
        assert_eq!(SliceRoot::decode(good.as_bytes(), &[8; 16]), None);
        for bit in 0..(256 - 4) * 8 {
            let mut bytes = [0u8; 256];
            bytes.copy_from_slice(good.as_bytes());
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SliceRoot::decode(&bytes, &[7; 16]), None, "bit {bit}");
        }
    }
}
