//! A copy that shares its blocks, beside moving the bytes in memory.

use crate::clock;
use crate::error::Result;
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use crate::stats::{median, spread};
use std::time::Instant;

const BYTES: u64 = 1 << 30;
const QUICK_BYTES: u64 = 64 << 20;
const ROUNDS: usize = 7;
const PIECE_BYTES: usize = 2 << 20;

/// A file of 1 GiB.
pub fn copy_1g_shared(options: &Options) -> Result<Row> {
    let bytes = if options.quick { QUICK_BYTES } else { BYTES };
    let lab = Lab::new(options.dir(), Shape { bytes: bytes * 3 / 2, ..Shape::usual(options) })?;
    let source = lab.create("source")?;
    let piece = vec![0x5A; PIECE_BYTES];
    for offset in (0..bytes).step_by(PIECE_BYTES) {
        lab.fs.write(&source, offset, &piece)?;
    }
    // of so many bytes that no cache holds them
    let (from, mut to) = (vec![0x5A_u8; bytes as usize], vec![0x11_u8; bytes as usize]);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let copy = lab.create(&format!("copy-{round}"))?;
        lab.fs.checkpoint()?;
        clock::rest();
        let start = Instant::now();
        lab.fs.copy((&source, 0), (&copy, 0), bytes)?;
        ours.push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&to);
        theirs.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
    let rounds = spread(&ratios);
    let against = Against::Floor(median(&theirs));
    Ok(Row::new("copy_1g_shared", "ms", median(&ours), against)
        .ratio(rounds.median, rounds)
        .on(lab.domain(), &lab.medium())
        .note(format!("{} MiB; the floor is memcpy of as many bytes", bytes >> 20)))
}
