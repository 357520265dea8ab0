//! Random durable overwrites of a file, beside non-temporal stores and a fence.

use crate::clock::Turn;
use crate::dice::{Dice, Sources};
use crate::duel::Duel;
use crate::error::Result;
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Fill, Row};
use fs::Handle;
use pmem::Mapping;
use std::sync::Arc;

/// Share of the log that one turn writes at least: a checkpoint begins at half of it.
const TURN_LOG_SHARE: f64 = 0.6;
/// Operations from which the bytes of log that one takes are told.
const PROBE_COUNT: u64 = 256;

/// 4 KiB.
pub fn overwrite_4k(options: &Options) -> Result<Row> {
    overwrite(options, "overwrite_4k", 4096, 0.85)
}

/// 2 MiB: the largest atomic write.
pub fn overwrite_2m(options: &Options) -> Result<Row> {
    overwrite(options, "overwrite_2m", 2 << 20, 0.95)
}

/// 64 bytes.
pub fn overwrite_64b(options: &Options) -> Result<Row> {
    overwrite(options, "overwrite_64b", 64, 0.4)
}

/// Both sides of one overwrite row.
struct Sides<'l> {
    lab: &'l Lab,
    file: Arc<Handle>,
    floor: &'l Mapping,
    /// Units in the file.
    units: u64,
    unit: u64,
    dice: [Dice; 2],
    sources: [Sources; 2],
}

impl Sides<'_> {
    fn ours(&mut self, count: u64) -> Result<Turn> {
        let (dice, sources) = (&mut self.dice[0], &mut self.sources[0]);
        let (fs, file) = (&self.lab.fs, &self.file);
        Turn::time(count, || {
            for _ in 0..count {
                fs.write(file, dice.below(self.units) * self.unit, sources.turn())?;
            }
            Ok(())
        })
    }

    fn floor(&mut self, count: u64) -> Result<Turn> {
        let (dice, sources) = (&mut self.dice[1], &mut self.sources[1]);
        Turn::time(count, || {
            for _ in 0..count {
                let place = dice.below(self.units) * self.unit;
                let _ = pmem::fence(self.floor.write(place, sources.turn()));
            }
            Ok(())
        })
    }
}

fn overwrite(options: &Options, name: &'static str, unit: u64, target: f64) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let floor = lab.floor()?;
    let (file, bytes) = lab.fill("file", 50)?;
    assert!(bytes >= 8 * lab.log_bytes(), "the file is at least 8 times the log");
    let mut sides = Sides {
        lab: &lab,
        file,
        floor: &floor,
        units: bytes / unit,
        unit,
        dice: [Dice::new(1), Dice::new(1)],
        sources: [Sources::new(unit as usize), Sources::new(unit as usize)],
    };
    let mut fills = vec![at_fill(options, &mut sides, 50)?];
    let _filler = lab.fill("filler", 90)?;
    fills.push(at_fill(options, &mut sides, 90)?);
    Ok(of_fills(name, "ns", fills).target(target).on(lab.domain(), &lab.medium()))
}

fn at_fill(options: &Options, sides: &mut Sides<'_>, full_percent: u32) -> Result<Fill> {
    let lab = sides.lab;
    let before = lab.fs.log_bytes_written();
    sides.ours(PROBE_COUNT)?;
    let record = (lab.fs.log_bytes_written() - before) as f64 / PROBE_COUNT as f64;
    let count = (TURN_LOG_SHARE * lab.log_bytes() as f64 / record) as u64;
    // a 2 MiB overwrite takes long enough that a third of the rounds still wraps the log 3 times
    let rounds = options.rounds();
    let sides = std::cell::RefCell::new(sides);
    measure_fill(
        lab,
        full_percent,
        rounds,
        || sides.borrow_mut().ours(count),
        || sides.borrow_mut().floor(count),
    )
}

/// Runs the rounds at one fill, and counts what the log and the checkpoints took.
pub fn measure_fill(
    lab: &Lab,
    full_percent: u32,
    rounds: usize,
    mut ours: impl FnMut() -> Result<Turn>,
    theirs: impl FnMut() -> Result<Turn>,
) -> Result<Fill> {
    let count = std::cell::Cell::new(0);
    let counted = || {
        let turn = ours()?;
        count.set(count.get() + turn.count);
        Ok(turn)
    };
    let (log, (checkpoints, bytes)) = (lab.fs.log_bytes_written(), lab.fs.checkpoint_cost());
    let duel = Duel::run(rounds, counted, theirs)?;
    let log = (lab.fs.log_bytes_written() - log) as f64;
    let (checkpoints_after, bytes_after) = lab.fs.checkpoint_cost();
    let operations = count.get() as f64;
    let spread = duel.ratios(Turn::whole_ns);
    Ok(Fill {
        full_percent,
        caller_ns: duel.ours(Turn::caller_ns),
        background_ns: duel.ours(Turn::background_ns),
        floor_ns: duel.theirs(Turn::whole_ns),
        ratio: spread.median,
        caller_ratio: duel.ratios(Turn::caller_ns).median,
        cpu_ratio: duel.ratios(Turn::cpu_ns).median,
        spread,
        log_laps: log / lab.log_bytes() as f64,
        checkpoints: checkpoints_after - checkpoints,
        checkpoint_bytes: (bytes_after - bytes) as f64 / operations,
        log_bytes: log / operations,
    })
}

/// The row of several fills: the figures of the worst.
pub fn of_fills(name: &'static str, unit: &'static str, fills: Vec<Fill>) -> Row {
    let worst = fills.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio)).cloned();
    let (ours, floor, ratio, spread) = worst.map_or_else(Default::default, |fill| {
        (fill.caller_ns + fill.background_ns, fill.floor_ns, fill.ratio, fill.spread)
    });
    let mut row = Row::new(name, unit, ours, Against::Floor(floor)).ratio(ratio, spread);
    row.fills = fills;
    row
}
