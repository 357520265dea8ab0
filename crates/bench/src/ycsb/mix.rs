//! A mix of reads and writes, and a turn of it.

use super::chooser::{Chooser, Wanted};
use super::stores::Store;
use crate::clock;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Of a hundred operations so many write.
pub const WRITE_PERCENTS: [u32; 5] = [95, 50, 30, 5, 0];

/// One mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// How often records are wanted.
    pub wanted: Wanted,
    /// Of a hundred operations so many write.
    pub write_percent: u32,
}

impl Mix {
    /// Each of them.
    pub fn all() -> impl Iterator<Item = Mix> {
        let of = |wanted| WRITE_PERCENTS.map(|write_percent| Mix { wanted, write_percent });
        [Wanted::Uniform, Wanted::Zipfian].into_iter().flat_map(of)
    }

    /// Its name, for people.
    pub fn name(self) -> String {
        let (writes, reads) = (self.write_percent, 100 - self.write_percent);
        format!("{writes}/{reads} writes/reads, {}", self.wanted.name())
    }

    /// A turn with so many records of so many bytes: its operations, and what they took. The
    /// background of this process rests when it returns.
    pub fn turn(
        self,
        store: &mut dyn Store,
        (records, bytes): (u32, usize),
        turn: Duration,
        seed: u64,
    ) -> Result<(u64, Duration)> {
        let mut chooser = Chooser::new(self.wanted, records, seed);
        let mut buffer = vec![seed as u8; bytes];
        let mut count = 0u64;
        let start = Instant::now();
        let mut took = Duration::ZERO;
        while took < turn {
            let record = chooser.next();
            if chooser.is_among(self.write_percent) {
                buffer[..4].copy_from_slice(&(count as u32).to_le_bytes());
                store.write(record, &buffer)?;
            } else {
                store.read(record, &mut buffer)?;
            }
            count += 1;
            took = start.elapsed();
        }
        clock::rest();
        Ok((count, took))
    }
}
