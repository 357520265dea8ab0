//! The hash of inode numbers for the table in DRAM.
//!
//! One multiplication with a factor that is drawn when the table is made: numbers come from the
//! medium, and nobody who makes one shall be able to choose numbers that all fall together.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes the hash of one table.
#[derive(Clone, Debug)]
pub struct InodeHash {
    factor: u64,
}

impl InodeHash {
    /// A new one.
    pub fn new() -> InodeHash {
        InodeHash { factor: RandomState::new().hash_one(0u64) | 1 }
    }
}

impl BuildHasher for InodeHash {
    type Hasher = InodeHasher;

    #[inline]
    fn build_hasher(&self) -> InodeHasher {
        InodeHasher { factor: self.factor, hash: 0 }
    }
}

/// The hash of one number.
#[derive(Debug)]
pub struct InodeHasher {
    factor: u64,
    hash: u64,
}

impl Hasher for InodeHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        // both halves of the product, so that every bit of the number reaches every bit
        let product = u128::from(number ^ self.hash) * u128::from(self.factor);
        self.hash = product as u64 ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_finds_low_and_high_bits_spread() {
        // as hash tables use them: the low bits choose the place, the highest seven tell apart
        let hash = InodeHash { factor: 0x9E37_79B9_7F4A_7C15 };
        for shift in [0, 8, 20] {
            let (mut low, mut high) = ([0u32; 256], [0u32; 128]);
            for number in 0..16_384u64 {
                let sum = hash.hash_one(number << shift);
                low[(sum & 255) as usize] += 1;
                high[(sum >> 57) as usize] += 1;
            }
            assert!(low.iter().all(|count| (16..256).contains(count)), "{shift}: {low:?}");
            assert!(high.iter().all(|count| (32..512).contains(count)), "{shift}: {high:?}");
        }
    }
}
