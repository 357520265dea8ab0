//! Reads and writes through the mount, beside a server with nothing behind it (`bare`).
//!
//! Both sides are mounted by the same code: the same library, session, threads and settings of the
//! kernel, and the same caller, who reads and writes with O_DIRECT, so that every call is one
//! request and the page cache answers none. The caller waits while the server serves, so the
//! server's time is in the caller's; added to it is the CPU time of checkpoints. Beside both
//! stands tmpfs, called the same way, without a mount of ours.

use super::overwrite::{measure_fill, of_fills};
use crate::bare::{Bare, FILE_NAME, Reads};
use crate::caller::{Order, Took, Verb};
use crate::clock::{Turn, named_ns, others_ns, rest};
use crate::door::{Door, apart, missing, options as mount_options};
use crate::duel::Duel;
use crate::error::{Result, io};
use crate::lab::{Lab, Shape};
use crate::options::Options;
use crate::row::{Against, Row};
use crate::stats::median;
use nearside_fuse::{mount, mount_server};
use std::cell::RefCell;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Bytes that files are read through once, so that all blocks are verified.
const PIECE_BYTES: usize = 1 << 20;
/// Share of the log that one turn writes at least: a checkpoint begins at half of it.
const TURN_LOG_SHARE: f64 = 0.6;
/// Writes from which the bytes of log that one takes are told.
const PROBE_COUNT: u64 = 32;
/// The thread that makes checkpoints.
const BACKGROUND: &str = "ns-checkpoint";

/// One row: the calls' size, how many a turn reads, the log that is written, what is asked.
#[derive(Clone, Copy)]
struct Calls {
    name: &'static str,
    bytes: usize,
    read_count: u64,
    /// Small calls wrap the log of a small pool in the time that there is.
    written_pool_bytes: u64,
    target: f64,
}

const LARGE: Calls =
    Calls { name: "", bytes: 1 << 20, read_count: 256, written_pool_bytes: 1 << 30, target: 0.6 };
const SMALL: Calls =
    Calls { name: "", bytes: 4096, read_count: 8192, written_pool_bytes: 256 << 20, target: 0.7 };

/// Reads of 1 MiB.
pub fn fuse_read_1m(options: &Options) -> Result<Row> {
    measured(Calls { name: "fuse_read_1m", ..LARGE }, options, read)
}

/// Writes of 1 MiB in place.
pub fn fuse_write_1m(options: &Options) -> Result<Row> {
    measured(Calls { name: "fuse_write_1m", ..LARGE }, options, write)
}

/// Random reads of 4 KiB.
pub fn fuse_read_4k(options: &Options) -> Result<Row> {
    measured(Calls { name: "fuse_read_4k", ..SMALL }, options, read)
}

/// Random writes of 4 KiB in place.
pub fn fuse_write_4k(options: &Options) -> Result<Row> {
    measured(Calls { name: "fuse_write_4k", ..SMALL }, options, write)
}

fn measured(
    calls: Calls,
    options: &Options,
    measure: fn(Calls, &Options) -> Result<Row>,
) -> Result<Row> {
    match missing() {
        Some(why) => Ok(Row::skipped(calls.name, why)),
        None => apart(|| measure(calls, options)),
    }
}

/// One side: a file or directory, mostly behind a mount, and what its calls took.
pub struct Side {
    door: Door,
    units: u64,
    bytes: usize,
    /// p50 and p99 of each turn, ns.
    latencies: Vec<(f64, f64)>,
}

impl Side {
    /// The side behind `door`, whose file has so many bytes and is called `call` bytes at a time.
    pub fn new(door: Door, file_bytes: u64, call: usize) -> Side {
        Side { door, units: file_bytes / call.max(1) as u64, bytes: call, latencies: Vec::new() }
    }

    fn ours(lab: &Lab, bytes: u64, call: usize) -> Result<Side> {
        let mount = mount(lab.fs.clone(), &mount_point(lab, "ours")?, &mount_options())?;
        Ok(Side::new(Door::open(mount, FILE_NAME)?, bytes, call))
    }

    fn bare(lab: &Lab, bytes: u64, call: usize, reads: Reads) -> Result<Side> {
        let dir = mount_point(lab, if reads == Reads::Lent { "lent" } else { "bare" })?;
        let mount = mount_server(Bare::new(bytes, reads), &dir, &mount_options())?;
        Ok(Side::new(Door::open(mount, FILE_NAME)?, bytes, call))
    }

    /// A file beside the pool; `None` where it cannot be called as the others are.
    fn plain(lab: &Lab, bytes: u64, call: usize) -> Result<Option<Side>> {
        let path = lab.dir().join("plain");
        let chunk = vec![0x5A; PIECE_BYTES];
        let mut file = std::fs::File::create(&path).map_err(io(&path))?;
        for _ in 0..bytes / PIECE_BYTES as u64 {
            std::io::Write::write_all(&mut file, &chunk).map_err(io(&path))?;
        }
        let direct = std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
        if direct.is_err() {
            return Ok(None);
        }
        Ok(Some(Side::new(Door::plain(&path)?, bytes, call)))
    }

    /// A turn whose background is that of the checkpoints only: the threads that serve have their
    /// time in the caller's, and count as its own.
    pub fn turn(&mut self, verb: Verb, count: u64) -> Result<Turn> {
        let (others, background) = (others_ns(), named_ns(BACKGROUND)?);
        let took = self.call(verb, count)?;
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

    /// Calls that are not a turn of a measurement.
    pub fn call(&mut self, verb: Verb, count: u64) -> Result<Took> {
        let (units, bytes) = (self.units, self.bytes);
        let took = self.door.call(Order { verb, count, units, bytes })?;
        self.latencies.push((took.p50_ns as f64, took.p99_ns as f64));
        Ok(took)
    }

    /// Forgets what the last turn's calls took.
    pub fn forget_last(&mut self) {
        self.latencies.pop();
    }

    /// Forgets what calls took so far.
    pub fn begin(&mut self) {
        self.latencies.clear();
    }

    /// Medians of the turns' p50 and p99.
    pub fn latency(&self) -> String {
        let of = |each: fn(&(f64, f64)) -> f64| {
            median(&self.latencies.iter().map(each).collect::<Vec<_>>()) / 1000.0
        };
        format!("p50 {:.1}, p99 {:.1} us", of(|turn| turn.0), of(|turn| turn.1))
    }

    /// Ends the caller and takes the mount away.
    pub fn close(self) -> Result<()> {
        self.door.close()
    }
}

/// A directory for a mount.
pub fn mount_point(lab: &Lab, name: &str) -> Result<PathBuf> {
    let dir = lab.dir().join(name);
    std::fs::create_dir(&dir).map_err(io(&dir))?;
    Ok(dir)
}

fn read(calls: Calls, options: &Options) -> Result<Row> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let (file, bytes) = lab.fill(FILE_NAME, 40)?;
    // all of it: blocks are verified by their first read
    let mut piece = vec![0; PIECE_BYTES];
    for at in (0..bytes).step_by(PIECE_BYTES) {
        lab.fs.read(&file, at, &mut piece)?;
    }
    drop(file);
    let mut ours = Side::ours(&lab, bytes, calls.bytes)?;
    let mut bare = Side::bare(&lab, bytes, calls.bytes, Reads::Copied)?;
    let count = calls.read_count;
    let mut ours_turn = || ours.turn(Verb::Read, count);
    let duel = Duel::run(options.short_rounds(), &mut ours_turn, || bare.turn(Verb::Read, count))?;
    let mut notes = vec![format!("ours {}; peer {}", ours.latency(), bare.latency())];
    bare.close()?;
    let mut lent = Side::bare(&lab, bytes, calls.bytes, Reads::Lent)?;
    let short = Duel::run(
        options.rounds(),
        || ours.turn(Verb::Read, count),
        || lent.turn(Verb::Read, count),
    )?;
    lent.close()?;
    notes.extend(beside_tmpfs(&lab, options, &mut ours, (Verb::Read, count, bytes))?);
    ours.close()?;
    let (spread, lent) = (duel.ratios(Turn::whole_ns), short.ratios(Turn::whole_ns));
    let us = |ns: f64| ns / 1000.0;
    let against = Against::Peer(us(duel.theirs(Turn::whole_ns)));
    let row = Row::new(calls.name, "us", us(duel.ours(Turn::whole_ns)), against);
    let row = row.ratio(spread.median, spread).target(calls.target);
    let row = row.on(lab.domain(), &lab.medium()).note(format!(
        "O_DIRECT, 40 % full, all verified before; peer: a bare FUSE server that copies out of \
         memory; CPU time {:.2}; beside one that lends its memory to the reply: {:.2} ({:.2} to \
         {:.2})",
        duel.ratios(Turn::cpu_ns).median,
        lent.median,
        lent.min,
        lent.max,
    ));
    Ok(notes.into_iter().fold(row, Row::note))
}

fn write(calls: Calls, options: &Options) -> Result<Row> {
    let usual = Shape::usual(options);
    let shape = Shape { bytes: calls.written_pool_bytes.min(usual.bytes), ..usual };
    let lab = Lab::new(options.dir(), shape)?;
    let (file, bytes) = lab.fill(FILE_NAME, 50)?;
    drop(file);
    assert!(bytes >= 8 * lab.log_bytes(), "the file is at least 8 times the log");
    let ours = RefCell::new(Side::ours(&lab, bytes, calls.bytes)?);
    let bare = RefCell::new(Side::bare(&lab, bytes, calls.bytes, Reads::Copied)?);
    let at_fill = |full_percent: u32| {
        let before = lab.fs.log_bytes_written();
        ours.borrow_mut().turn(Verb::Write, PROBE_COUNT)?;
        let record = (lab.fs.log_bytes_written() - before) as f64 / PROBE_COUNT as f64;
        let count = (TURN_LOG_SHARE * lab.log_bytes() as f64 / record) as u64;
        ours.borrow_mut().begin();
        measure_fill(
            &lab,
            full_percent,
            options.rounds(),
            || ours.borrow_mut().turn(Verb::Write, count),
            || bare.borrow_mut().turn(Verb::Write, count),
        )
    };
    let mut fills = vec![at_fill(50)?];
    let filler = lab.fill("filler", 90)?;
    fills.push(at_fill(90)?);
    drop(filler);
    let (bare, mut ours) = (bare.into_inner(), ours.into_inner());
    let mut notes = vec![format!("ours {}; peer {}", ours.latency(), bare.latency())];
    bare.close()?;
    let count = calls.read_count;
    notes.extend(beside_tmpfs(&lab, options, &mut ours, (Verb::Write, count, bytes))?);
    ours.close()?;
    let row = of_fills(calls.name, "ns", fills).target(calls.target);
    let mut row = row.on(lab.domain(), &lab.medium());
    row.against = Against::Peer(row.against.value());
    let peer = "O_DIRECT; peer: a bare FUSE server that copies into memory";
    Ok(notes.into_iter().fold(row.note(peer.to_owned()), Row::note))
}

/// What tmpfs takes for the same calls, which is no server's to reach.
fn beside_tmpfs(
    lab: &Lab,
    options: &Options,
    ours: &mut Side,
    (verb, count, bytes): (Verb, u64, u64),
) -> Result<Option<String>> {
    let Some(mut plain) = Side::plain(lab, bytes, ours.bytes)? else { return Ok(None) };
    let turn = |side: &mut Side| side.turn(verb, count);
    let duel = Duel::run(options.rounds(), || turn(ours), || turn(&mut plain))?;
    let note = format!(
        "tmpfs without a server: {:.1} us, {:.2} of ours",
        duel.theirs(Turn::whole_ns) / 1000.0,
        duel.ratios(Turn::whole_ns).median,
    );
    plain.close()?;
    Ok(Some(note))
}
