//! The superblock: what a slice is, written twice (first and last block) at format and never
//! changed after, but for a repair of one copy from the other.
//!
//! ```text
//! block 0            superblock
//! block 1, 2         root slots (the checkpoint writes the one that is not current)
//! block 3            state (which boot wrote here last)
//! block 4, 5         second copies of the roots
//! block 6            of a mirrored pool: whose files have everything
//! block 7            what was measured of the machine
//! block 8            of a pool with a capacity tier: its devices
//! block 16 ..        log: chunks
//! after the log ..   data blocks and tree pages
//! last block         superblock, second copy
//! ```
//!
//! With two copies of the data a file has two halves: that of its own slice, and the same of the
//! slice before it (the last one before the first).

use crate::log::{payload_bytes_max, records_start};
use crate::record::{LINE_BYTES_MAX, LINES_BYTES, PAYLOAD_BYTES_MAX, UNIT_BYTES};
use crate::tree::PAGE_BYTES;
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4096;
const _: () = assert!(BLOCK_BYTES as usize == PAGE_BYTES);
/// First bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"NEARSIDE";
/// Version of the format that this code writes.
pub const FORMAT_VERSION: u32 = 1;
/// Block of the first superblock.
pub const SUPERBLOCK_BLOCK: u64 = 0;
/// Blocks of the two root slots.
pub const ROOT_BLOCKS: [u64; 2] = [1, 2];
/// Blocks of the second copies of what these hold.
pub const ROOT_COPY_BLOCKS: [u64; 2] = [4, 5];
/// Block that says which boot wrote here last.
pub const STATE_BLOCK: u64 = 3;
/// First block of the log.
pub const LOG_BLOCK: u64 = 16;
/// Most slices of a pool.
pub const SLICES_MAX: usize = crate::addr::BlockAddr::SLICES_MAX;
/// Most virtual nodes, as many as `topology` deals CPUs to.
pub const VIRTUAL_NODES_MAX: u32 = 1024;
/// Most copies of a slice.
pub const COPIES_MAX: u32 = 2;
/// Blocks of a stripe where nothing else is asked for (256 KiB).
pub const STRIPE_BLOCKS: u32 = 64;
/// Most blocks of a stripe (1 GiB).
pub const STRIPE_BLOCKS_MAX: u32 = 1 << 18;
/// Smallest slice, bytes.
pub const SLICE_BYTES_MIN: u64 = 1 << 20;

/// Smallest chunk of a log, bytes.
pub const CHUNK_BYTES_MIN: u64 = 16 << 10;
// chunks begin at a line, whichever it is, are whole lines, and hold the longest record
const _: () = assert!(BLOCK_BYTES.is_multiple_of(LINE_BYTES_MAX as u64));
const _: () = assert!(CHUNK_BYTES_MIN.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(records_start(LINE_BYTES_MAX) == LINE_BYTES_MAX);
const _: () =
    assert!(PAYLOAD_BYTES_MAX <= payload_bytes_max(CHUNK_BYTES_MIN as usize, LINE_BYTES_MAX));

/// A feature: the log's lines are longer than a unit. Who does not know it would look for records
/// where there are none, and take the log for empty.
pub const FEATURE_LOG_LINES: u64 = 1;
/// A feature: each slice has a mirror in the file of the next one. Who does not know it would
/// change one copy only.
pub const FEATURE_MIRRORS: u64 = 2;
/// A feature: the pool has a capacity tier. Who does not know it would take the addresses of blocks
/// there for damage.
pub const FEATURE_CAPACITY: u64 = 4;
const FEATURES: u64 = FEATURE_LOG_LINES | FEATURE_MIRRORS | FEATURE_CAPACITY;

/// The superblock's bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
    pub version: U32,
    /// Which slice of the pool this is, from 0.
    pub index: U32,
    /// Identity of the pool.
    pub pool_uuid: [u8; 16],
    /// Identity of the slice.
    pub slice_uuid: [u8; 16],
    /// Slices in the pool.
    pub slices: U32,
    /// Bytes of a block.
    pub block_bytes: U32,
    /// Blocks of the slice, this one included; half of the file's in a mirrored pool.
    pub blocks: U64,
    /// Bytes of the log.
    pub log_bytes: U64,
    /// Bytes of a chunk of the log.
    pub chunk_bytes: U32,
    /// The durability domain at format (`pmem::Domain`).
    pub domain: u8,
    /// Room.
    pub reserved_domain: [u8; 3],
    /// Virtual nodes that the pool is spread over; 0 = the machine's own.
    pub virtual_nodes: U32,
    /// NUMA node of the slice at format; `u32::MAX` = unknown.
    pub node: U32,
    /// Copies of the slices: 1, or 2 in a mirrored pool.
    pub data_copies: U32,
    /// Blocks of a stripe: how much of a large file lies on one slice before the next one comes. A
    /// power of two; 0 = [`STRIPE_BLOCKS`], from before there were others.
    pub stripe_blocks: U32,
    /// Features that a reader must know: [`FEATURE_LOG_LINES`], [`FEATURE_MIRRORS`],
    /// [`FEATURE_CAPACITY`].
    pub features: U64,
    /// Bytes of a line of the log, 64 or 256; 0 = 64, from before there were others.
    pub log_line_bytes: U32,
    /// Room.
    pub reserved: [u8; 396],
    /// CRC-32C of everything before.
    pub crc: U32,
    /// Room.
    pub tail: U32,
}

const _: () = assert!(size_of::<Superblock>() == 512);
// docs/FORMAT.md says these
const _: () = assert!(offset_of!(Superblock, slices) == 48);
const _: () = assert!(offset_of!(Superblock, chunk_bytes) == 72);
const _: () = assert!(offset_of!(Superblock, virtual_nodes) == 80);
const _: () = assert!(offset_of!(Superblock, features) == 96);
const _: () = assert!(offset_of!(Superblock, log_line_bytes) == 104);
const _: () = assert!(offset_of!(Superblock, crc) == 504);

/// Why a superblock is not one.
#[derive(Debug, PartialEq, Eq)]
pub enum Flaw {
    /// No magic: nothing of ours.
    Foreign,
    /// The checksum does not fit.
    Checksum,
    /// Made by a newer version.
    Version(u32),
    /// A field makes no sense.
    Field(&'static str),
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Flaw::Foreign => write!(f, "no Nearside superblock there"),
            Flaw::Checksum => write!(f, "its checksum does not fit"),
            Flaw::Version(version) => write!(f, "format version {version} is newer than this one"),
            Flaw::Field(name) => write!(f, "its field {name} makes no sense"),
        }
    }
}

/// What a reader of a log with lines of so many bytes, and of so many copies, must know, with a
/// capacity tier or not.
pub fn features(line_bytes: usize, copies: u32, has_capacity: bool) -> u64 {
    let lines = if line_bytes > UNIT_BYTES { FEATURE_LOG_LINES } else { 0 };
    let mirrors = if copies > 1 { FEATURE_MIRRORS } else { 0 };
    let capacity = if has_capacity { FEATURE_CAPACITY } else { 0 };
    lines | mirrors | capacity
}

impl Superblock {
    /// Sets the checksum.
    pub fn seal(mut self) -> Superblock {
        self.crc = U32::new(self.checksum());
        self
    }

    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        pmem::crc32c(0, bytes.get(..bytes.len() - 8).unwrap_or_default())
    }

    /// The superblock in these bytes, if it is whole and makes sense for a slice of `bytes_max`.
    pub fn decode(bytes: &[u8], bytes_max: u64) -> Result<Superblock, Flaw> {
        let (superblock, _) = Superblock::read_from_prefix(bytes).map_err(|_| Flaw::Foreign)?;
        if superblock.magic != MAGIC {
            return Err(Flaw::Foreign);
        }
        if !pmem::crc_fits(superblock.checksum(), superblock.crc.get()) {
            return Err(Flaw::Checksum);
        }
        let unknown = superblock.features.get() & !FEATURES;
        if superblock.version.get() > FORMAT_VERSION || unknown != 0 {
            return Err(Flaw::Version(superblock.version.get()));
        }
        superblock.validate(bytes_max)?;
        Ok(superblock)
    }

    fn validate(&self, bytes_max: u64) -> Result<(), Flaw> {
        let slices = self.slices.get();
        let chunk = u64::from(self.chunk_bytes.get());
        let log = self.log_bytes.get();
        let blocks = self.blocks.get();
        let check = |fine: bool, name| if fine { Ok(()) } else { Err(Flaw::Field(name)) };
        check(slices >= 1 && slices as usize <= SLICES_MAX, "slices")?;
        check(self.index.get() < slices, "index")?;
        check(u64::from(self.block_bytes.get()) == BLOCK_BYTES, "block_bytes")?;
        check(blocks >= SLICE_BYTES_MIN / BLOCK_BYTES, "blocks")?;
        let copies = self.data_copies.get();
        check(copies == 1 || copies == COPIES_MAX && slices > 1, "data_copies")?;
        check(blocks <= bytes_max / BLOCK_BYTES / u64::from(copies), "blocks")?;
        check((CHUNK_BYTES_MIN..=1 << 20).contains(&chunk), "chunk_bytes")?;
        check(chunk.is_power_of_two(), "chunk_bytes")?;
        check(log >= 4 * chunk && log.is_multiple_of(chunk), "log_bytes")?;
        check(log / BLOCK_BYTES < blocks.saturating_sub(LOG_BLOCK + 2), "log_bytes")?;
        check(LINES_BYTES.contains(&self.log_line()), "log_line_bytes")?;
        let features = features(self.log_line(), copies, self.has_capacity());
        check(self.features.get() == features, "features")?;
        check(!(self.has_capacity() && self.is_mirrored()), "features")?;
        check(self.virtual_nodes.get() <= VIRTUAL_NODES_MAX, "virtual_nodes")?;
        let stripe = self.stripe_blocks.get();
        check(stripe <= STRIPE_BLOCKS_MAX && stripe.count_ones() <= 1, "stripe_blocks")?;
        check((1..=4).contains(&self.domain), "domain")
    }

    /// Whether each slice has a mirror in the file of the next one.
    pub fn is_mirrored(&self) -> bool {
        self.data_copies.get() == COPIES_MAX
    }

    /// Whether the pool has a capacity tier.
    pub fn has_capacity(&self) -> bool {
        self.features.get() & FEATURE_CAPACITY != 0
    }

    /// Bytes of the slice: the first half of the file of a mirrored one.
    pub fn bytes(&self) -> u64 {
        self.blocks.get() * BLOCK_BYTES
    }

    /// Bytes of a line of the log.
    pub fn log_line(&self) -> usize {
        match self.log_line_bytes.get() {
            0 => UNIT_BYTES,
            bytes => bytes as usize,
        }
    }

    /// Blocks of a stripe.
    pub fn stripe(&self) -> u32 {
        match self.stripe_blocks.get() {
            0 => STRIPE_BLOCKS,
            blocks => blocks,
        }
    }

    /// Longest payload of a record that the log takes, bytes.
    pub fn payload_bytes_max(&self) -> usize {
        payload_bytes_max(self.chunk_bytes.get() as usize, self.log_line())
    }

    /// First block after the log.
    pub fn data_block_first(&self) -> u64 {
        LOG_BLOCK + self.log_bytes.get() / BLOCK_BYTES
    }

    /// First block after the data (the second superblock's).
    pub fn data_block_end(&self) -> u64 {
        self.blocks.get() - 1
    }

    /// Data blocks of the slice.
    pub fn data_blocks(&self) -> u64 {
        self.data_block_end() - self.data_block_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        let mut superblock = Superblock::new_zeroed_for_test();
        superblock.magic = MAGIC;
        superblock.version = U32::new(FORMAT_VERSION);
        superblock.slices = U32::new(1);
        superblock.block_bytes = U32::new(4096);
        superblock.blocks = U64::new(4096);
        superblock.log_bytes = U64::new(1 << 20);
        superblock.chunk_bytes = U32::new(65536);
        superblock.data_copies = U32::new(1);
        superblock.domain = 1;
        superblock.seal()
    }

    impl Superblock {
        fn new_zeroed_for_test() -> Superblock {
            zerocopy::FromZeros::new_zeroed()
        }
    }

    #[test]
    fn round_trip() {
        let superblock = sample();
        assert_eq!(Superblock::decode(superblock.as_bytes(), 16 << 20), Ok(superblock));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let good = sample();
        for bit in 0..(512 - 4) * 8 {
            let mut bytes = [0u8; 512];
            bytes.copy_from_slice(good.as_bytes());
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bytes, 16 << 20).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_slice_shorter_than_its_superblock_says_is_refused() {
        let good = sample();
        assert_eq!(Superblock::decode(good.as_bytes(), 8 << 20), Err(Flaw::Field("blocks")));
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut newer = sample();
        newer.version = U32::new(FORMAT_VERSION + 1);
        let newer = newer.seal();
        assert_eq!(Superblock::decode(newer.as_bytes(), 16 << 20), Err(Flaw::Version(2)));
    }

    #[test]
    fn a_feature_that_is_not_known_is_one_of_a_newer_version() {
        let mut newer = sample();
        newer.features = U64::new(8);
        assert_eq!(Superblock::decode(newer.seal().as_bytes(), 16 << 20), Err(Flaw::Version(1)));
    }

    /// A superblock from before there were lines of another length says 0.
    #[test]
    fn the_logs_lines_have_64_or_256_bytes() {
        let line = |bytes: u32, features: u64| {
            let mut superblock = sample();
            superblock.log_line_bytes = U32::new(bytes);
            superblock.features = U64::new(features);
            Superblock::decode(superblock.seal().as_bytes(), 16 << 20).map(|s| s.log_line())
        };
        assert_eq!([line(0, 0), line(64, 0), line(256, 1)], [Ok(64), Ok(64), Ok(256)]);
        for bytes in [1, 32, 63, 65, 128, 255, 257, 320, 512, 4096, 1 << 31, u32::MAX] {
            assert_eq!(line(bytes, 0), Err(Flaw::Field("log_line_bytes")), "{bytes}");
            assert_eq!(line(bytes, 1), Err(Flaw::Field("log_line_bytes")), "{bytes}");
        }
        // who does not know the feature would misread the log: it goes with the length
        for (bytes, features) in [(0, 1), (64, 1), (256, 0)] {
            assert_eq!(line(bytes, features), Err(Flaw::Field("features")), "{bytes}");
        }
    }

    /// With two copies a slice has half of its file, and another slice is there for its mirror.
    #[test]
    fn a_slice_has_a_mirror_or_none() {
        let copies = |copies: u32, slices: u32, features: u64| {
            let mut superblock = sample();
            superblock.data_copies = U32::new(copies);
            superblock.slices = U32::new(slices);
            superblock.features = U64::new(features);
            let superblock = superblock.seal();
            assert!(Superblock::decode(superblock.as_bytes(), 16 << 20).is_err() || copies == 1);
            Superblock::decode(superblock.as_bytes(), 32 << 20).map(|it| it.is_mirrored())
        };
        assert_eq!([copies(1, 2, 0), copies(2, 2, FEATURE_MIRRORS)], [Ok(false), Ok(true)]);
        for (many, slices) in [(0, 1), (2, 1), (3, 3), (u32::MAX, 4)] {
            assert_eq!(copies(many, slices, 2), Err(Flaw::Field("data_copies")), "{many}");
        }
        assert_eq!(copies(2, 2, 0), Err(Flaw::Field("features")));
        assert_eq!(copies(1, 2, 2), Err(Flaw::Field("features")));
    }

    /// A superblock from before there were stripes says 0.
    #[test]
    fn a_stripe_is_a_power_of_two_of_blocks() {
        let stripe = |blocks: u32| {
            let mut superblock = sample();
            superblock.stripe_blocks = U32::new(blocks);
            Superblock::decode(superblock.seal().as_bytes(), 16 << 20).map(|s| s.stripe())
        };
        assert_eq!([stripe(0), stripe(1), stripe(STRIPE_BLOCKS_MAX)], [Ok(64), Ok(1), Ok(1 << 18)]);
        for blocks in [3, 63, 65, STRIPE_BLOCKS_MAX * 2, u32::MAX] {
            assert_eq!(stripe(blocks), Err(Flaw::Field("stripe_blocks")), "{blocks}");
        }
    }

    #[test]
    fn a_chunk_that_cannot_hold_the_longest_record_is_refused() {
        let mut small = sample();
        small.chunk_bytes = U32::new(8192);
        let flaw = Superblock::decode(small.seal().as_bytes(), 16 << 20);
        assert_eq!(flaw, Err(Flaw::Field("chunk_bytes")));
    }
}
