//! What the second copies of tree pages cost: the same work in a pool without them.

use crate::clock;
use crate::error::Result;
use crate::lab::{Lab, OWNER, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use crate::stats::{median, spread};
use fs::{Ino, NewNode};
use std::time::Instant;

const FILES: usize = 20_000;
const ROUNDS: usize = 9;
/// Bytes of a file: small ones have the most metadata for their data.
const FILE_BYTES: usize = 16 << 10;
/// A checkpoint after so many files, as the background makes one now and then.
const FILES_BETWEEN: usize = 5_000;

/// Files of 16 KiB made and removed again, and checkpoints between: the seconds, and the blocks
/// that were in use at most.
fn work(options: &Options, single_pages: bool) -> Result<(f64, u64)> {
    let files = if options.quick { FILES / 10 } else { FILES };
    let shape = Shape { background: false, single_pages, ..Shape::usual(options) };
    let lab = Lab::new(options.dir(), shape)?;
    let free = lab.fs.statfs().blocks_free;
    let data = vec![0x5A; FILE_BYTES];
    clock::rest();
    let start = Instant::now();
    for file in 0..files {
        let name = format!("file-{file}");
        let ino = lab.fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, OWNER)?.ino;
        lab.fs.write(&*lab.fs.open(ino)?, 0, &data)?;
        if file % FILES_BETWEEN == FILES_BETWEEN - 1 {
            lab.fs.checkpoint()?;
        }
    }
    lab.fs.checkpoint()?;
    let used = free.saturating_sub(lab.fs.statfs().blocks_free);
    for file in (0..files).step_by(2) {
        lab.fs.unlink(Ino::ROOT, format!("file-{file}").as_bytes())?;
    }
    lab.fs.checkpoint()?;
    Ok((start.elapsed().as_secs_f64() * 1e3, used))
}

/// Metadata-heavy work with and without second copies, in turns.
pub fn page_copies(options: &Options) -> Result<Row> {
    let (mut ours, mut theirs, mut space) = (Vec::new(), Vec::new(), (0, 0));
    for round in 0..ROUNDS {
        for single in [round % 2 == 0, round % 2 != 0] {
            let (time, used) = work(options, single)?;
            match single {
                true => (theirs.push(time), space.1 = used),
                false => (ours.push(time), space.0 = used),
            };
        }
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
    let rounds = spread(&ratios);
    let more = (space.0 as f64 / space.1.max(1) as f64 - 1.0) * 100.0;
    Ok(Row::new("page_copies", "ms", median(&ours), Against::Floor(median(&theirs)))
        .ratio(rounds.median, rounds)
        .target(0.9)
        .note(format!(
            "small files made, checkpoints, half of them removed; the floor is the same without \
             second copies, whose pool had {more:.1} % less in use"
        )))
}
