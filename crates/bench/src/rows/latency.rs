//! The slowest calls while a checkpoint runs.
//!
//! A thread makes a checkpoint whenever half of the log is in use, as the engine's own does, and
//! says when it runs: each call that begins or ends meanwhile counts as one under a checkpoint.

use crate::clock;
use crate::dice::{Dice, Sources};
use crate::error::{Error, Result};
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Row, Spread};
use crate::stats::{median, quantile, spread};
use fs::{FileSystem, Handle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const UNIT: u64 = 4096;
/// Between two looks at how full the log is.
const LOOK: Duration = Duration::from_micros(500);

/// Times of single calls, ns.
#[derive(Default)]
struct Samples {
    quiet_ns: Vec<f64>,
    checkpoint_ns: Vec<f64>,
}

/// p99.9 under a checkpoint by p50.
pub fn overwrite_4k_p999(options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape { background: false, ..Shape::usual(options) })?;
    let floor = lab.floor()?;
    let (file, bytes) = lab.fill("file", 50)?;
    let (units, count) = (bytes / UNIT, lab.log_bytes() / 64);
    let (mut ratios, mut floor_ratios) = (Vec::new(), Vec::new());
    let (mut p50s, mut p999s, mut under) = (Vec::new(), Vec::new(), 0);
    let mut dice = Dice::new(5);
    for _ in 0..options.rounds() {
        let samples = with_checkpoints(&lab, &file, &mut dice, units, count)?;
        let mut all = samples.quiet_ns;
        under += samples.checkpoint_ns.len();
        let p999 = quantile(&samples.checkpoint_ns, 0.999);
        all.extend(samples.checkpoint_ns);
        let p50 = median(&all);
        ratios.push(p999 / p50);
        p50s.push(p50);
        p999s.push(p999);
        clock::rest();
        let times = floor_times(&floor, &mut dice, units, count);
        floor_ratios.push(quantile(&times, 0.999) / median(&times));
    }
    let limit = 5.0;
    let of_limit: Vec<f64> = ratios.iter().map(|ratio| limit / ratio).collect();
    let rounds: Spread = spread(&of_limit);
    let row = Row::new("overwrite_4k_p999", "p99.9/p50", median(&ratios), Against::Limit(limit));
    Ok(row.ratio(rounds.median, rounds).on(lab.domain(), &lab.medium()).note(format!(
        "p50 {:.0} ns, p99.9 under a checkpoint {:.0} ns ({under} calls under one); the bare \
         store's own p99.9/p50 in the same rounds, nothing beside it: {:.2} (the machine's noise)",
        median(&p50s),
        median(&p999s),
        median(&floor_ratios),
    )))
}

fn with_checkpoints(
    lab: &Lab,
    file: &Handle,
    dice: &mut Dice,
    units: u64,
    count: u64,
) -> Result<Samples> {
    let (running, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let checkpoints = scope.spawn(|| checkpoints(lab, &running, &stop));
        let samples = calls(&lab.fs, file, dice, units, count, &running);
        stop.store(true, Ordering::Relaxed);
        checkpoints.join().map_err(|_| Error::Panicked)??;
        samples
    })
}

fn checkpoints(lab: &Lab, running: &AtomicBool, stop: &AtomicBool) -> Result<()> {
    let half = lab.log_bytes() / 2;
    while !stop.load(Ordering::Relaxed) {
        if lab.fs.info().log_used_bytes < half {
            std::thread::sleep(LOOK);
            continue;
        }
        running.store(true, Ordering::SeqCst);
        lab.fs.checkpoint()?;
        running.store(false, Ordering::SeqCst);
    }
    Ok(())
}

fn calls(
    fs: &FileSystem,
    file: &Handle,
    dice: &mut Dice,
    units: u64,
    count: u64,
    running: &AtomicBool,
) -> Result<Samples> {
    let mut sources = Sources::new(UNIT as usize);
    let mut samples = Samples::default();
    samples.quiet_ns.reserve(count as usize);
    samples.checkpoint_ns.reserve(count as usize);
    for _ in 0..count {
        let place = dice.below(units) * UNIT;
        let before = running.load(Ordering::Relaxed);
        let start = Instant::now();
        fs.write(file, place, sources.turn())?;
        let ns = start.elapsed().as_nanos() as f64;
        let under = before || running.load(Ordering::Relaxed);
        let times = if under { &mut samples.checkpoint_ns } else { &mut samples.quiet_ns };
        times.push(ns);
    }
    Ok(samples)
}

fn floor_times(floor: &pmem::Mapping, dice: &mut Dice, units: u64, count: u64) -> Vec<f64> {
    let mut sources = Sources::new(UNIT as usize);
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let place = dice.below(units) * UNIT;
        let start = Instant::now();
        let _ = pmem::fence(floor.write(place, sources.turn()));
        times.push(start.elapsed().as_nanos() as f64);
    }
    times
}
