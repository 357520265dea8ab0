//! `nearside calibrate`: measures what the memory of a pool's nodes can do, and keeps it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use emulate::Emulation;
use nearside::files::{Calibration, Kind, Place, Point, Side};
use nearside::{OpenOptions, Pool};
use nearside_bench::{Words, draw};
use serde::Serialize;

use crate::error::{self, Error, Result};
use crate::progress::Bar;
use crate::server_lock::ServerLock;
use crate::size::show;
use crate::{access, output, signals};

/// Less than this may lie in caches.
const CACHES_BYTES: u64 = 64 << 20;
/// Seconds at hand for one of an emulated machine.
const STRETCH: f64 = 400.0;

/// Arguments of `calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside calibrate /data/pool
  nearside calibrate /data/pool --pictures /tmp --seconds 60
  nearside calibrate /data/pool --dry-run --json
  nearside calibrate /data/pool --emulate optane-2-sockets
  nearside calibrate /data/pool --forget

Measures copies to and from free blocks of the pool's first slice: from its node, from another one,
and by workers, by size and by threads. What follows, how many threads are to copy at one time and
from which size on a worker is asked, is kept in the pool and counts whenever it is opened on a
machine with as many nodes and CPUs that may be used (a cpuset counts). Measure on a machine that
does nothing else, and while nobody has the pool mounted.")]
pub struct CalibrateArgs {
    /// The pool's directory.
    pub pool: PathBuf,
    /// For about so long, 1 to 60.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: u64,
    /// Put pictures of the curves into this directory, as SVG.
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Keep nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Measure nothing, and keep nothing of what was measured before.
    #[arg(long, conflicts_with_all = ["emulate", "pictures", "dry_run", "json"])]
    pub forget: bool,
    /// Play this machine: a file, or one that comes along by its name. Keeps nothing.
    #[arg(long, value_name = "MACHINE")]
    pub emulate: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    nodes: u32,
    cpus: u32,
    points: Vec<Measured>,
    /// None: nothing follows from what was measured.
    thresholds: Option<Thresholds>,
    hand_off_ns: f64,
    /// Bytes of the free blocks that were used.
    measured_bytes: u64,
    kept: bool,
}

#[derive(Serialize)]
struct Measured {
    kind: &'static str,
    place: &'static str,
    bytes: u64,
    threads: u32,
    mib_per_s: f64,
}

#[derive(Serialize)]
struct Thresholds {
    read: Threshold,
    write: Threshold,
}

#[derive(Serialize)]
struct Threshold {
    /// Turns to copy at one time; none: any number.
    turns: Option<u32>,
    /// Turns that a large copy takes.
    large_turns: u32,
    /// Bytes from which one is large.
    large_bytes: u64,
    /// Bytes from which a worker is asked from another node.
    delegate_remote_bytes: u64,
    /// Bytes from which one is asked from the node itself; none: never.
    delegate_local_bytes: Option<u64>,
}

impl Threshold {
    fn of(side: &Side) -> Threshold {
        Threshold {
            turns: Some(side.limit).filter(|limit| *limit != placement::NO_LIMIT),
            large_turns: side.large_turns,
            large_bytes: placement::LARGE_BYTES,
            delegate_remote_bytes: side.delegate_remote,
            delegate_local_bytes: Some(side.delegate_local).filter(|bytes| *bytes != u64::MAX),
        }
    }

    fn text(&self, what: &str) -> String {
        let limit = match (self.turns, self.large_turns) {
            (None, _) => format!("{what}: any number of threads at a time"),
            (Some(turns), 1) => format!("{what}: {turns} threads at a time"),
            (Some(turns), large) => format!(
                "{what}: {turns} threads at a time, of {} and more {}",
                show(self.large_bytes),
                (turns / large).max(1)
            ),
        };
        let from = show(self.delegate_remote_bytes);
        let local =
            self.delegate_local_bytes.map(|bytes| format!(", from the node from {}", show(bytes)));
        let local = local.unwrap_or_default();
        format!("{limit}; from another node, workers are asked from {from} on{local}\n")
    }
}

/// Measures.
pub fn run(args: &CalibrateArgs) -> Result<()> {
    signals::end_between_steps();
    if access::mount_of(&args.pool)?.is_some() {
        return Err(refused(&args.pool, "is mounted; unmount it before it is calibrated"));
    }
    ServerLock::refuse_if_served(&args.pool)?;
    let machine = args.emulate.as_deref().map(nearside_bench::machine).transpose()?;
    let emulation = machine.map(|machine| Emulation::new(machine, STRETCH)).transpose();
    let emulation = emulation.map_err(nearside_bench::Error::from)?;
    let emulated = emulation.clone().map(|it| -> Arc<dyn nearside::Emulated> { it });
    let options = OpenOptions { emulated, ..OpenOptions::default() };
    if let Some(dir) = args.pictures.as_deref().filter(|dir| !dir.is_dir()) {
        let reason = "is no directory for pictures".to_owned();
        return Err(Error::Path { shown: dir.to_path_buf(), reason });
    }
    let pool = Pool::open_with(&args.pool, &options).map_err(error::pool(&args.pool))?;
    let done = work(&pool, args, emulation.as_deref());
    let closed = pool.close().map_err(error::pool(&args.pool));
    let Some(measured) = done.and_then(|done| closed.map(|()| done))? else {
        let shown = output::shown(args.pool.display().to_string().as_bytes());
        return output::text(&format!("{shown}: nothing that was measured is kept any more\n"));
    };
    match args.json {
        true => output::json(&report(&measured))?,
        false => output::text(&text(&args.pool, &measured))?,
    }
    match &args.pictures {
        Some(dir) => pictures(dir, &measured.calibration),
        None => Ok(()),
    }
}

/// What was measured, on so many bytes, and whether it is kept.
struct Outcome {
    calibration: Calibration,
    bytes: u64,
    kept: bool,
}

/// None: what was kept is forgotten.
fn work(
    pool: &Pool,
    args: &CalibrateArgs,
    emulation: Option<&Emulation>,
) -> Result<Option<Outcome>> {
    let failed = |error: nearside::files::Error| error::pool(&args.pool)(error.into());
    if args.forget {
        return pool.fs().forget_calibration().map_err(failed).map(|()| None);
    }
    if pool.fs().info().domain == "sync" {
        let why = "its stores go to the page cache, which is on no node: nothing is delegated there, \
                   and there is nothing to calibrate";
        return Err(refused(&args.pool, why));
    }
    emulation.iter().for_each(|emulation| emulation.start());
    let measured = measure(pool, args);
    emulation.iter().for_each(|emulation| emulation.stop());
    let nearside::files::Measured { calibration, bytes } = measured?;
    let kept = !args.dry_run && emulation.is_none() && calibration.policy().is_some();
    if kept {
        pool.fs().keep_calibration(&calibration).map_err(failed)?;
    }
    Ok(Some(Outcome { calibration, bytes, kept }))
}

fn refused(pool: &Path, reason: &str) -> Error {
    Error::Path { shown: pool.to_path_buf(), reason: reason.to_owned() }
}

fn measure(pool: &Pool, args: &CalibrateArgs) -> Result<nearside::files::Measured> {
    let bar = Bar::new("measuring");
    let mut each = |done, of| {
        bar.set(done, of);
        signals::asked_to_end().is_none()
    };
    let measured = pool.fs().calibrate(Duration::from_secs(args.seconds), &mut each);
    match (measured, signals::asked_to_end()) {
        (Ok(Some(measured)), None) => Ok(measured),
        (_, Some(signal)) => Err(Error::Stopped(signal)),
        (Ok(None), None) => Err(refused(&args.pool, "the measurement was stopped")),
        (Err(error), _) => Err(error::pool(&args.pool)(error.into())),
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
    }
}

fn place_name(place: Place) -> &'static str {
    match place {
        Place::Local => "local",
        Place::Remote => "remote",
        Place::Delegated => "delegated",
    }
}

fn report(outcome: &Outcome) -> Report {
    let Outcome { calibration, bytes, kept } = outcome;
    let measured = |point: &Point| Measured {
        kind: kind_name(point.kind),
        place: place_name(point.place),
        bytes: point.bytes,
        threads: point.threads,
        mib_per_s: point.rate,
    };
    let thresholds = calibration.policy().map(|policy| Thresholds {
        read: Threshold::of(&policy.read),
        write: Threshold::of(&policy.write),
    });
    Report {
        nodes: calibration.nodes,
        cpus: calibration.cpus,
        points: calibration.points.iter().map(measured).collect(),
        thresholds,
        hand_off_ns: hand_off_ns(calibration),
        measured_bytes: *bytes,
        kept: *kept,
    }
}

fn hand_off_ns(calibration: &Calibration) -> f64 {
    calibration.machine().map_or(0.0, |machine| machine.hand_off_ns)
}

/// A line of the table: one kind, place and size, by threads.
type Row<'c> = ((Kind, Place, u64), Vec<&'c Point>);

fn rows(calibration: &Calibration) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for kind in [Kind::Read, Kind::Write] {
        for point in calibration.points.iter().filter(|point| point.kind == kind) {
            let key = (kind, point.place, point.bytes);
            match rows.iter_mut().find(|(known, _)| *known == key) {
                Some((_, points)) => points.push(point),
                None => rows.push((key, vec![point])),
            }
        }
    }
    rows.sort_by_key(|((kind, place, bytes), _)| (*kind == Kind::Write, *place, *bytes));
    rows
}

fn text(pool: &Path, outcome: &Outcome) -> String {
    let Outcome { calibration, bytes, kept } = outcome;
    let threads: BTreeSet<u32> = calibration.points.iter().map(|point| point.threads).collect();
    let heads: String = threads.iter().map(|threads| format!("{threads:>8}")).collect();
    let mut text = format!("MiB/s by threads           {heads}\n");
    for ((kind, place, bytes), points) in rows(calibration) {
        let name = format!("{} {} {}", kind_name(kind), show(bytes), place_name(place));
        text.push_str(&format!("{name:<27}"));
        for threads in &threads {
            let rate = points.iter().find(|point| point.threads == *threads);
            text.push_str(&rate.map_or("       -".to_owned(), |it| format!("{:>8.0}", it.rate)));
        }
        text.push('\n');
    }
    let hand_off = hand_off_ns(calibration) / 1e3;
    text.push_str(&format!("handing a copy over takes {hand_off:.1} us\n"));
    match calibration.policy() {
        None => text.push_str("nothing follows from that: measure for longer\n"),
        Some(policy) => {
            text.push_str(&Threshold::of(&policy.read).text("reads"));
            text.push_str(&Threshold::of(&policy.write).text("writes"));
        }
    }
    if *bytes < CACHES_BYTES {
        let bytes = show(*bytes);
        text.push_str(&format!("measured on {bytes} only: what caches hold looks fast\n"));
    }
    let pool = output::shown(pool.display().to_string().as_bytes());
    text.push_str(&match kept {
        true => format!("{pool}: kept; it counts from the next time on that the pool is opened\n"),
        false => format!("{pool}: nothing was kept\n"),
    });
    text
}

fn pictures(dir: &Path, calibration: &Calibration) -> Result<()> {
    for kind in [Kind::Read, Kind::Write] {
        let lines = rows(calibration).into_iter().filter(|((of, ..), _)| *of == kind);
        let lines: Vec<(String, Vec<(f64, f64)>)> = lines
            .map(|((_, place, bytes), points)| {
                let points = points.iter().map(|it| (f64::from(it.threads), it.rate)).collect();
                (format!("{} {}", show(bytes), place_name(place)), points)
            })
            .collect();
        let title = format!("{}s of one node", kind_name(kind));
        let words = Words { title: &title, x: "threads", y: "MiB/s", places: &[] };
        draw(dir, &format!("calibrate-{}", kind_name(kind)), words, &lines)?;
    }
    Ok(())
}
