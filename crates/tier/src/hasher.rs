//! Hashes of addresses, for tables that only this process fills: it takes no hash that is safe
//! against keys which somebody chose, and each read of a device makes several.

use pool::BlockAddr;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table of addresses, and of numbers that were dealt out.
pub type AddrMap<K, V> = HashMap<K, V, BuildHasherDefault<AddrHasher>>;

/// Mixes all bits of numbers into all of a hash.
#[derive(Clone, Copy, Default, Debug)]
pub struct AddrHasher(u64);

impl Hasher for AddrHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        let mixed = self.0.rotate_left(32) ^ number ^ 0x243F_6A88_85A3_08D3;
        let product = u128::from(mixed) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The hash of an address.
#[inline]
pub fn hash(addr: BlockAddr) -> u64 {
    let mut hasher = AddrHasher::default();
    hasher.write_u64(addr.bits());
    hasher.finish()
}
