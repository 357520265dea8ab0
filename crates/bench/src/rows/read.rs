//! Random reads of a file, `verify=first`, beside memcpy out of a mapping.
//!
//! Everything was verified by the first read, which is made before the measurement.

use crate::clock::Turn;
use crate::dice::Dice;
use crate::duel::Duel;
use crate::error::Result;
use crate::lab::{Lab, PIECE_BYTES, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use std::hint::black_box;

/// Bytes that one turn reads.
const TURN_BYTES: u64 = 128 << 20;

/// 4 KiB.
pub fn read_4k(options: &Options) -> Result<Row> {
    read(options, "read_4k", 4096, 0.8)
}

/// 2 MiB.
pub fn read_2m(options: &Options) -> Result<Row> {
    read(options, "read_2m", 2 << 20, 0.95)
}

fn read(options: &Options, name: &'static str, unit: u64, target: f64) -> Result<Row> {
    let shape = Shape::usual(options);
    let lab = Lab::new(options.dir(), shape)?;
    let (file, bytes) = lab.fill("file", 50)?;
    let ino = file.ino();
    drop(file);
    lab.fs.close()?;
    let lab = lab.reopened(shape)?;
    let floor = lab.floor()?;
    let file = lab.fs.open(ino)?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    for at in (0..bytes).step_by(piece.len()) {
        lab.fs.read(&file, at, &mut piece)?;
    }
    let (units, count) = (bytes / unit, TURN_BYTES / unit);
    let mut dice = [Dice::new(2), Dice::new(2)];
    let mut buffers = [vec![0; unit as usize], vec![0; unit as usize]];
    let [our_dice, their_dice] = &mut dice;
    let [our_buffer, their_buffer] = &mut buffers;
    let ours = || {
        Turn::time(count, || {
            for _ in 0..count {
                black_box(lab.fs.read(&file, our_dice.below(units) * unit, our_buffer)?);
            }
            Ok(())
        })
    };
    let theirs = || {
        Turn::time(count, || {
            for _ in 0..count {
                floor.read(their_dice.below(units) * unit, their_buffer)?;
                black_box(&their_buffer);
            }
            Ok(())
        })
    };
    let duel = Duel::run(options.short_rounds(), ours, theirs)?;
    let spread = duel.ratios(Turn::whole_ns);
    let row = Row::new(
        name,
        "ns",
        duel.ours(Turn::whole_ns),
        Against::Floor(duel.theirs(Turn::whole_ns)),
    );
    let cpu = duel.ratios(Turn::cpu_ns).median;
    Ok(row
        .ratio(spread.median, spread)
        .target(target)
        .on(lab.domain(), &lab.medium())
        .note(format!("50 % full, verify=first, all verified before; CPU time {cpu:.2}")))
}
