//! Appends of 4 KiB, beside sequential non-temporal stores and a fence.
//!
//! The file is made anew when it has taken a 64th of the pool; that is not counted for the caller,
//! but its checkpoints are.

use super::overwrite::{measure_fill, of_fills};
use crate::clock::{Turn, others_ns, rest};
use crate::dice::Sources;
use crate::error::Result;
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Fill, Row};
use fs::Ino;
use pmem::Mapping;

const UNIT: u64 = 4096;
/// Files that one turn appends to, one after the other.
const FILES: u64 = 48;

/// 4 KiB.
pub fn append_4k(options: &Options) -> Result<Row> {
    let shape = Shape::usual(options);
    let lab = Lab::new(options.dir(), shape)?;
    let floor = lab.floor()?;
    let _base = lab.fill("file", 50)?;
    let count = shape.bytes / 64 / UNIT;
    let mut fills = vec![at_fill(options, &lab, &floor, count, 50)?];
    // room for the file that grows
    let _filler = lab.fill("filler", 88)?;
    fills.push(at_fill(options, &lab, &floor, count, 90)?);
    Ok(of_fills("append_4k", "ns", fills).target(0.7).on(lab.domain(), &lab.medium()))
}

fn at_fill(
    options: &Options,
    lab: &Lab,
    floor: &Mapping,
    count: u64,
    percent: u32,
) -> Result<Fill> {
    let mut sources = [Sources::new(UNIT as usize), Sources::new(UNIT as usize)];
    let [our_sources, their_sources] = &mut sources;
    let ours = || {
        let mut whole = Turn::default();
        let others = others_ns();
        for _ in 0..FILES {
            let file = lab.create("grows")?;
            let turn = Turn::time(count, || {
                for _ in 0..count {
                    lab.fs.append(&file, our_sources.turn())?;
                }
                Ok::<(), crate::Error>(())
            })?;
            whole = whole.and(turn);
            drop(file);
            lab.fs.unlink(Ino::ROOT, b"grows")?;
        }
        rest();
        whole.others_ns = others_ns().saturating_sub(others);
        Ok(whole)
    };
    let theirs = || {
        Turn::time(FILES * count, || {
            for at in 0..FILES * count {
                let place = at * UNIT % floor.len();
                let _ = pmem::fence(floor.write(place, their_sources.turn()));
            }
            Ok(())
        })
    };
    measure_fill(lab, percent, options.rounds(), ours, theirs)
}
