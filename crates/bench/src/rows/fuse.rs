//! Large calls through the mount, beside a server with nothing behind it (`bare`).
//!
//! Both sides are mounted by the same code: the same library, session, threads and settings of the
//! kernel, and the same caller, who reads and writes with O_DIRECT, so that every call of 1 MiB
//! is one request and the page cache answers none. The caller waits while the server serves, so
//! the server's time is in the caller's; added to it is the CPU time of checkpoints.

use super::overwrite::{measure_fill, of_fills};
use crate::bare::{Bare, FILE_NAME, Reads};
use crate::clock::{Turn, named_ns, others_ns, rest};
use crate::door::{CALL_BYTES, Calls, Door, apart, missing, options as mount_options};
use crate::duel::Duel;
use crate::error::{Error, Result, io};
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use nearside_fuse::{mount, mount_server};
use std::cell::RefCell;
use std::path::PathBuf;

const UNIT: u64 = CALL_BYTES as u64;
/// Bytes that one turn reads.
const READ_TURN_BYTES: u64 = 256 << 20;
/// Share of the log that one turn writes at least: a checkpoint begins at half of it.
const TURN_LOG_SHARE: f64 = 0.6;
/// Writes from which the bytes of log that one takes are told.
const PROBE_COUNT: u64 = 32;
/// The thread that makes checkpoints.
const BACKGROUND: &str = "ns-checkpoint";

/// Reads.
pub fn fuse_read_1m(options: &Options) -> Result<Row> {
    measured("fuse_read_1m", options, read)
}

/// Writes in place.
pub fn fuse_write_1m(options: &Options) -> Result<Row> {
    measured("fuse_write_1m", options, write)
}

fn measured(
    name: &'static str,
    options: &Options,
    measure: fn(&'static str, &Options) -> Result<Row>,
) -> Result<Row> {
    match missing() {
        Some(why) => Ok(Row::skipped(name, why)),
        None => apart(|| measure(name, options)),
    }
}

/// One side: a file behind a mount.
struct Side {
    door: Door,
    units: u64,
}

impl Side {
    fn ours(lab: &Lab, bytes: u64) -> Result<Side> {
        let mount = mount(lab.fs.clone(), &mount_point(lab, "ours")?, &mount_options())?;
        Ok(Side { door: Door::open(mount, FILE_NAME)?, units: bytes / UNIT })
    }

    fn bare(lab: &Lab, bytes: u64, reads: Reads) -> Result<Side> {
        let dir = mount_point(lab, if reads == Reads::Lent { "lent" } else { "bare" })?;
        let mount = mount_server(Bare::new(bytes, reads), &dir, &mount_options())?;
        Ok(Side { door: Door::open(mount, FILE_NAME)?, units: bytes / UNIT })
    }

    /// A turn whose background is that of the checkpoints only: the threads that serve have their
    /// time in the caller's, and count as its own.
    fn turn(&mut self, calls: Calls, count: u64) -> Result<Turn> {
        let (others, background) = (others_ns(), named_ns(BACKGROUND)?);
        let took = self.door.call(calls, count, self.units)?;
        rest();
        let background = named_ns(BACKGROUND)?.saturating_sub(background);
        let serving = others_ns().saturating_sub(others + background);
        Ok(Turn {
            count,
            wall_ns: took.wall_ns,
            own_cpu_ns: took.cpu_ns + serving,
            others_ns: background,
        })
    }

    fn reads(&mut self, count: u64) -> Result<Turn> {
        self.turn(Calls::Read, count)
    }

    fn writes(&mut self, count: u64) -> Result<Turn> {
        self.turn(Calls::Write, count)
    }
}

fn mount_point(lab: &Lab, name: &str) -> Result<PathBuf> {
    let dir = lab.dir().join(name);
    std::fs::create_dir(&dir).map_err(io(&dir))?;
    Ok(dir)
}

fn read(name: &'static str, options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let (file, bytes) = lab.fill(FILE_NAME, 50)?;
    // all of it: blocks are verified by their first read
    let mut piece = vec![0; CALL_BYTES];
    for unit in 0..bytes / UNIT {
        lab.fs.read(&file, unit * UNIT, &mut piece)?;
    }
    drop(file);
    let mut ours = Side::ours(&lab, bytes)?;
    let mut bare = Side::bare(&lab, bytes, Reads::Copied)?;
    let count = READ_TURN_BYTES / UNIT;
    let duel = Duel::run(options.short_rounds(), || ours.reads(count), || bare.reads(count))?;
    bare.door.close()?;
    let mut lent = Side::bare(&lab, bytes, Reads::Lent)?;
    let short = Duel::run(options.rounds(), || ours.reads(count), || lent.reads(count))?;
    lent.door.close()?;
    ours.door.close()?;
    let (spread, lent) = (duel.ratios(Turn::whole_ns), short.ratios(Turn::whole_ns));
    let us = |ns: f64| ns / 1000.0;
    let against = Against::Peer(us(duel.theirs(Turn::whole_ns)));
    let row = Row::new(name, "us", us(duel.ours(Turn::whole_ns)), against);
    Ok(row.ratio(spread.median, spread).on(lab.domain(), &lab.medium()).note(format!(
        "O_DIRECT, 50 % full, all verified before; peer: a bare FUSE server that copies out of \
         memory; CPU time {:.2}; beside one that lends its memory to the reply: {:.2} ({:.2} to \
         {:.2})",
        duel.ratios(Turn::cpu_ns).median,
        lent.median,
        lent.min,
        lent.max,
    )))
}

fn write(name: &'static str, options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let (file, bytes) = lab.fill(FILE_NAME, 50)?;
    drop(file);
    assert!(bytes >= 8 * lab.log_bytes(), "the file is at least 8 times the log");
    let ours = RefCell::new(Side::ours(&lab, bytes)?);
    let bare = RefCell::new(Side::bare(&lab, bytes, Reads::Copied)?);
    let at_fill = |full_percent: u32| {
        let before = lab.fs.log_bytes_written();
        ours.borrow_mut().writes(PROBE_COUNT)?;
        let record = (lab.fs.log_bytes_written() - before) as f64 / PROBE_COUNT as f64;
        let count = (TURN_LOG_SHARE * lab.log_bytes() as f64 / record) as u64;
        measure_fill(
            &lab,
            full_percent,
            options.rounds(),
            || ours.borrow_mut().writes(count),
            || bare.borrow_mut().writes(count),
        )
    };
    let mut fills = vec![at_fill(50)?];
    let _filler = lab.fill("filler", 90)?;
    fills.push(at_fill(90)?);
    for side in [bare, ours] {
        side.into_inner().door.close()?;
    }
    let mut row = of_fills(name, "ns", fills).on(lab.domain(), &lab.medium());
    row.against = Against::Peer(row.against.value());
    let peer = "O_DIRECT; peer: a bare FUSE server that copies into memory";
    Ok::<Row, Error>(row.note(peer.to_owned()))
}
