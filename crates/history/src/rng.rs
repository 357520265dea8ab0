//! Random numbers that a seed gives (SplitMix64).

/// A source of them.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// One for each list of numbers.
    pub fn new(seeds: &[u64]) -> Rng {
        let mut rng = Rng(0x6a09_e667_f3bc_c908);
        for seed in seeds {
            rng.0 ^= seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            rng.0 = rng.next();
        }
        rng
    }

    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Whether it is one in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
