//! Where a block of the pool is: which slice, or which device of the capacity tier, and which
//! block of it.

use std::fmt;

/// Bits of the block's number; the slice's number is above them.
const BLOCK_BITS: u32 = 40;
/// Bits of the slice's number; the bits above are zero.
const SLICE_BITS: u32 = 8;

/// A block of the pool, in units of 4 KiB: `slice << 40 | block`. Devices of the capacity tier are
/// numbered on behind the slices that a pool can have.
///
/// 0 is no block: block 0 of slice 0 is a superblock, to which nothing points.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockAddr(u64);

impl BlockAddr {
    /// No block.
    pub const NONE: BlockAddr = BlockAddr(0);
    /// Blocks that a slice has at most: 2^40, which is 4 PiB.
    pub const BLOCKS_MAX: u64 = 1 << BLOCK_BITS;
    /// Slices that a pool has at most; the numbers above are those of devices.
    pub const SLICES_MAX: usize = 192;
    /// Devices that a capacity tier has at most. (One number is left for what is none of both.)
    pub const DEVICES_MAX: usize = 63;

    /// Block `block` of slice `slice`.
    ///
    /// # Panics
    /// If `block` is not below [`BlockAddr::BLOCKS_MAX`]; bytes from the medium go through
    /// [`BlockAddr::from_bits`].
    pub const fn new(slice: u8, block: u64) -> BlockAddr {
        assert!(block < BlockAddr::BLOCKS_MAX, "a slice has fewer blocks");
        BlockAddr((slice as u64) << BLOCK_BITS | block)
    }

    /// Block `block` of device `device` of the capacity tier.
    ///
    /// # Panics
    /// If there can be no such device, or no such block.
    pub const fn on_device(device: usize, block: u64) -> BlockAddr {
        assert!(device < BlockAddr::DEVICES_MAX, "a tier has fewer devices");
        BlockAddr::new((BlockAddr::SLICES_MAX + device) as u8, block)
    }

    /// The address that `bits` from the medium say, None if no address has these bits.
    pub const fn from_bits(bits: u64) -> Option<BlockAddr> {
        if bits >> (BLOCK_BITS + SLICE_BITS) == 0 { Some(BlockAddr(bits)) } else { None }
    }

    /// The address as it is stored.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Number of the slice in the pool; above those of slices, it is a device's.
    pub const fn slice(self) -> u8 {
        (self.0 >> BLOCK_BITS) as u8
    }

    /// The device of the capacity tier that it lies on, if it lies on one.
    #[inline]
    pub const fn device(self) -> Option<usize> {
        (self.slice() as usize).checked_sub(BlockAddr::SLICES_MAX)
    }

    /// The slice, in a pool of so many, whose trees say of the block whether it is free, and how
    /// many places it has: its own, or the one that its device is dealt to.
    pub const fn home(self, slices: usize) -> usize {
        match self.device() {
            Some(device) => device % slices,
            None => self.slice() as usize,
        }
    }

    /// Number of the block in the slice, or on the device.
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
        match self.device() {
            Some(device) => write!(f, "device {device}, block {}", self.block()),
            None => write!(f, "slice {}, block {}", self.slice(), self.block()),
        }
    }
}

impl fmt::Debug for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A run of blocks on one slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its first block.
    pub addr: BlockAddr,
    /// How many.
    pub count: u64,
}

impl Extent {
    /// The addresses of its blocks.
    pub fn blocks(&self) -> impl Iterator<Item = BlockAddr> + use<> {
        let (slice, first) = (self.addr.slice(), self.addr.block());
        (0..self.count).map(move |i| BlockAddr::new(slice, first + i))
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
    fn slices_and_devices_are_told_apart() {
        for device in 0..BlockAddr::DEVICES_MAX {
            let addr = BlockAddr::on_device(device, 77);
            assert_eq!((addr.device(), addr.block()), (Some(device), 77));
        }
        for slice in 0..BlockAddr::SLICES_MAX {
            assert_eq!(BlockAddr::new(slice as u8, 77).device(), None);
        }
    }

    #[test]
    fn bits_above_the_slice_are_refused() {
        assert_eq!(BlockAddr::from_bits(1 << 48), None);
        assert_eq!(BlockAddr::from_bits(u64::MAX), None);
    }
}
