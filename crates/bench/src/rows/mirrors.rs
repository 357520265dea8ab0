//! What a second copy of everything costs: the same writes to a pool with one.

use crate::clock::{self, Turn};
use crate::dice::{Dice, Sources};
use crate::error::Result;
use crate::lab::OWNER;
use crate::options::Options;
use crate::row::{Against, Row};
use crate::scratch::Scratch;
use crate::stats::{median, spread};
use fs::{FileSystem, Handle, Ino, NewNode};
use pool::{FormatOptions, OpenOptions, SliceSpec};
use std::sync::Arc;

/// Bytes of a slice, and of the file in the pool.
const SLICE_BYTES: u64 = 256 << 20;
const FILE_BYTES: u64 = 96 << 20;
const UNIT: u64 = 4096;
const COUNT: u64 = 20_000;

/// A pool of two slices, and a file in it.
struct Side {
    fs: FileSystem,
    file: Arc<Handle>,
    dice: Dice,
    sources: Sources,
    _scratch: Scratch,
}

impl Side {
    fn new(options: &Options, data_copies: u32) -> Result<Side> {
        let scratch = Scratch::new(options.dir())?;
        let dir = scratch.path().join("pool");
        let format = FormatOptions {
            slices: vec![SliceSpec::default(); 2],
            slice_bytes: SLICE_BYTES * u64::from(data_copies),
            process: true,
            data_copies,
            ..FormatOptions::default()
        };
        fs::format(&dir, &format)?;
        let fs = FileSystem::open_pool(&dir, &OpenOptions::default())?;
        let ino = fs.create(Ino::ROOT, b"file", NewNode::File, OWNER)?.ino;
        let file = fs.open(ino)?;
        let piece = vec![0x5A; 1 << 20];
        for at in (0..FILE_BYTES).step_by(piece.len()) {
            fs.write(&file, at, &piece)?;
        }
        let (dice, sources) = (Dice::new(7), Sources::new(UNIT as usize));
        let mut side = Side { fs, file, dice, sources, _scratch: scratch };
        // once over all free blocks: no page fault is left for the measurement
        for _ in 0..4 * SLICE_BYTES / FILE_BYTES {
            for at in (0..FILE_BYTES).step_by(UNIT as usize) {
                side.fs.write(&side.file, at, side.sources.turn())?;
            }
        }
        clock::rest();
        Ok(side)
    }

    fn overwrite(&mut self) -> Result<f64> {
        let turn = Turn::time(COUNT, || {
            for _ in 0..COUNT {
                let at = self.dice.below(FILE_BYTES / UNIT) * UNIT;
                self.fs.write(&self.file, at, self.sources.turn())?;
            }
            fs::Result::Ok(())
        })?;
        Ok(turn.wall_ns as f64 / COUNT as f64)
    }
}

/// 4 KiB overwritten at random in a mirrored pool, and in one that is not, in turns.
pub fn mirrored_overwrite_4k(options: &Options) -> Result<Row> {
    let (mut twice, mut once) = (Side::new(options, 2)?, Side::new(options, 1)?);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds() {
        ours.push(twice.overwrite()?);
        theirs.push(once.overwrite()?);
    }
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
    let rounds = spread(&ratios);
    Ok(Row::new("mirrored_overwrite_4k", "ns", median(&ours), Against::Floor(median(&theirs)))
        .ratio(rounds.median, rounds)
        .target(0.5)
        .note("two copies of everything; the floor is the same pool with one".to_owned()))
}
