//! How long it takes to open a pool: after a clean close, and with a full log.

use crate::dice::{Dice, Sources};
use crate::error::Result;
use crate::lab::{Lab, OWNER, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use crate::scratch::Scratch;
use crate::stats::{median, spread};
use fs::{FileSystem, Ino, NewNode};
use pool::OpenOptions;
use std::time::Instant;

const FILES: u64 = 1_000_000;
const QUICK_FILES: u64 = 50_000;
const FILES_PER_DIR: u64 = 1000;
/// Openings that are timed.
const OPENINGS: usize = 5;
/// Openings with a full log that are timed.
const OPENINGS_AFTER_KILL: u64 = 3;
/// Largest log that a pool chooses by itself.
const LOG_BYTES: u64 = 256 << 20;
const UNIT: u64 = 4096;

fn row(name: &'static str, times_s: &[f64], limit_s: f64) -> Row {
    let ratios: Vec<f64> = times_s.iter().map(|time| limit_s / time).collect();
    let rounds = spread(&ratios);
    Row::new(name, "s", median(times_s), Against::Limit(limit_s)).ratio(rounds.median, rounds)
}

fn timed_open(scratch: &Scratch) -> Result<(FileSystem, f64)> {
    let start = Instant::now();
    let fs = FileSystem::open_pool(&scratch.path().join("pool"), &OpenOptions::default())?;
    Ok((fs, start.elapsed().as_secs_f64()))
}

/// A million files, closed.
pub fn open_1m_files(options: &Options) -> Result<Row> {
    let files = if options.quick { QUICK_FILES } else { FILES };
    let lab = Lab::new(options.dir(), Shape { bytes: 2 << 30, ..Shape::usual(options) })?;
    let start = Instant::now();
    for number in 0..files / FILES_PER_DIR {
        let name = format!("dir-{number}");
        let dir = lab.fs.create(Ino::ROOT, name.as_bytes(), NewNode::Directory, OWNER)?.ino;
        for file in 0..FILES_PER_DIR {
            lab.fs.create(dir, format!("file-{file}").as_bytes(), NewNode::File, OWNER)?;
        }
    }
    let made_s = start.elapsed().as_secs_f64();
    lab.fs.close()?;
    let (domain, medium) = (lab.domain(), lab.medium());
    let scratch = lab.into_scratch();
    let (mut times, mut looked_up) = (Vec::new(), Vec::new());
    for _ in 0..OPENINGS {
        let (fs, time_s) = timed_open(&scratch)?;
        let start = Instant::now();
        let dir = fs.lookup(Ino::ROOT, b"dir-7")?.ino;
        fs.lookup(dir, b"file-77")?;
        looked_up.push(start.elapsed().as_secs_f64() * 1e3);
        fs.close()?;
        times.push(time_s);
    }
    Ok(row("open_1m_files", &times, 0.5).on(domain, &medium).note(format!(
        "{files} files, made in {made_s:.1} s; the first lookup of two names after it: {:.2} ms",
        median(&looked_up)
    )))
}

/// A log of the largest usual size, nearly full, and no checkpoint since.
pub fn recovery_full_log(options: &Options) -> Result<Row> {
    let bytes = if options.quick { 512 << 20 } else { 3 << 30 };
    let log_bytes = if options.quick { 32 << 20 } else { LOG_BYTES };
    let shape =
        Shape { bytes, log_bytes: Some(log_bytes), background: false, ..Shape::usual(options) };
    let mut lab = Lab::new(options.dir(), shape)?;
    let (file, size) = lab.fill("file", 70)?;
    let ino = file.ino();
    drop(file);
    let (mut times, mut note) = (Vec::new(), String::new());
    let (domain, medium) = (lab.domain(), lab.medium());
    for round in 0..OPENINGS_AFTER_KILL {
        let used = fill_log(&lab, ino, size, round)?;
        let scratch = lab.into_scratch();
        let (fs, time_s) = timed_open(&scratch)?;
        times.push(time_s);
        let records = fs.replayed();
        note = format!("{} MiB of log, {records} records of 4 KiB overwrites", used >> 20);
        fs.close()?;
        drop(fs);
        lab = Lab::open_in(scratch, shape)?;
    }
    Ok(row("recovery_full_log", &times, 2.0).on(domain, &medium).note(note))
}

/// Overwrites until the log is as good as full; gives its bytes in use.
fn fill_log(lab: &Lab, ino: Ino, size: u64, seed: u64) -> Result<u64> {
    let file = lab.fs.open(ino)?;
    let (mut dice, mut sources) = (Dice::new(10 + seed), Sources::new(UNIT as usize));
    let full = lab.log_bytes() - lab.log_bytes() / 64;
    while lab.fs.info().log_used_bytes < full {
        for _ in 0..64 {
            lab.fs.write(&file, dice.below(size / UNIT) * UNIT, sources.turn())?;
        }
    }
    Ok(lab.fs.info().log_used_bytes)
}
