//! Where a block of the pool is: which slice, and which block of it.

use std::fmt;

/// Bits of the block's number; the slice's number is above them.
const BLOCK_BITS: u32 = 40;
/// Bits of the slice's number; the bits above are zero.
const SLICE_BITS: u32 = 8;

/// A block of the pool, in units of 4 KiB: `slice << 40 | block`.
///
/// 0 is no block: block 0 of slice 0 is a superblock, to which nothing points.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockAddr(u64);

impl BlockAddr {
    /// No block.
    pub const NONE: BlockAddr = BlockAddr(0);
    /// Blocks that a slice has at most: 2^40, which is 4 PiB.
    pub const BLOCKS_MAX: u64 = 1 << BLOCK_BITS;

    /// Block `block` of slice `slice`.
    ///
    /// # Panics
    /// If `block` is not below [`BlockAddr::BLOCKS_MAX`]; bytes from the medium go through
    /// [`BlockAddr::from_bits`].
    pub const fn new(slice: u8, block: u64) -> BlockAddr {
        assert!(block < BlockAddr::BLOCKS_MAX, "a slice has fewer blocks");
        BlockAddr((slice as u64) << BLOCK_BITS | block)
    }

    /// The address that `bits` from the medium say, None if no address has these bits.
    pub const fn from_bits(bits: u64) -> Option<BlockAddr> {
        if bits >> (BLOCK_BITS + SLICE_BITS) == 0 { Some(BlockAddr(bits)) } else { None }
    }

    /// The address as it is stored.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Number of the slice in the pool.
    pub const fn slice(self) -> u8 {
        (self.0 >> BLOCK_BITS) as u8
    }

    /// Number of the block in the slice.
    pub const fn block(self) -> u64 {
        self.0 & (BlockAddr::BLOCKS_MAX - 1)
    }

    /// Whether this is no block.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("no block");
        }
        write!(f, "slice {}, block {}", self.slice(), self.block())
    }
}

impl fmt::Debug for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::BlockAddr;

    #[test]
    fn slice_and_block_come_back() {
        let addr = BlockAddr::new(255, BlockAddr::BLOCKS_MAX - 1);
        assert_eq!((addr.slice(), addr.block()), (255, BlockAddr::BLOCKS_MAX - 1));
        assert_eq!(BlockAddr::from_bits(addr.bits()), Some(addr));
        assert!(BlockAddr::new(0, 0).is_none());
        assert!(!BlockAddr::new(1, 0).is_none());
    }

    #[test]
    fn bits_above_the_slice_are_refused() {
        assert_eq!(BlockAddr::from_bits(1 << 48), None);
        assert_eq!(BlockAddr::from_bits(u64::MAX), None);
    }
}
