//! Places to access, in an order that no prefetcher guesses, the same on every run.

/// Xorshift: cheap beside what it is for.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of their own for each use.
    pub fn new(seed: u64) -> Dice {
        Dice(0x9E37_79B9_7F4A_7C15 ^ seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    /// A number below `end`.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // the high half of a product: no division
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

/// What is written: many buffers in turn, so that neither side's source stays in one set of the
/// cache while the other's does not.
#[derive(Debug)]
pub struct Sources {
    bytes: Vec<u8>,
    len: usize,
    at: usize,
}

/// Bytes of all sources of one side: more than the L1 cache, well within the L2.
const SOURCES_BYTES: usize = 128 << 10;

impl Sources {
    /// Buffers of `len` bytes each.
    pub fn new(len: usize) -> Sources {
        let total = SOURCES_BYTES.max(2 * len);
        let bytes = (0..total).map(|at| (at ^ (at >> 8).wrapping_mul(31)) as u8).collect();
        Sources { bytes, len, at: 0 }
    }

    /// The next one.
    #[inline]
    pub fn turn(&mut self) -> &[u8] {
        let at = self.at;
        self.at += self.len;
        if self.at + self.len > self.bytes.len() {
            self.at = 0;
        }
        &self.bytes[at..at + self.len]
    }
}
