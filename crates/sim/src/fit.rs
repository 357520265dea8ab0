//! A machine's numbers from what others have measured, and what is not known without each table.
//!
//! 1. **Threads without a file system** give the curve of their kind and size: `t` threads on `n`
//!    nodes that move `r` are a point of `t/n` threads and `r/n`.
//! 2. **Busy workers** (a CPU each, more long calls than they come to) give the curve of long
//!    accesses in the same way, where they move as much as threads do with the longest accesses
//!    that these were measured with, or more. Where they move less, something else held them up,
//!    and it is not the memory that was measured. Beyond its last point that curve is the threads'.
//! 3. **The same copies from the other node** give what is left of the bandwidth from there.
//! 4. **As many of OdinFS's workers as it has** give the time of its journal's lock: the one with
//!    which runs of 4 KiB writes move what was measured.
//!
//! A memory's latency is in what was measured, and in the runs once more: they say up to some
//! hundredths less than the tables. Curves are not raised to make up for it.
//!
//! What no table says is of other sources or assumed, and said to be. The rules were written down
//! when the machine had long been described by them, and say what was done by hand.

use std::collections::BTreeMap;

use placement::{BLOCK_BYTES, Class, Curve, Kind, Machine, MachineAccess, PIECE_BYTES};

use crate::published::{By, Compared, Model, Published, compare, setting};
use crate::run::run;
use crate::runs::each;
use crate::setting::Refused;

/// A number that goes into the runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// What it is.
    pub name: String,
    /// How much,
    pub value: f64,
    /// of what.
    pub unit: &'static str,
    /// The table, or the other source, that it is from.
    pub from: &'static str,
    /// The rows of that table from which it follows, by their places; none: no table says it.
    pub rows: Vec<usize>,
}

impl Number {
    /// It follows from a table.
    pub fn is_fitted(&self) -> bool {
        !self.rows.is_empty()
    }
}

/// What follows from some tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// What runs are made with.
    pub model: Model,
    /// All numbers of it.
    pub numbers: Vec<Number>,
}

/// A table, and what is said of it without it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// The table.
    pub table: &'static str,
    /// A number follows from it.
    pub is_used: bool,
    /// What runs say that have all tables,
    pub with: Vec<Compared>,
    /// and such that have all but this.
    pub without: Vec<Compared>,
}

/// One writer alone: no table has one. As much as each of two that copy 32 KiB, and half of that.
const ALONE: [(u64, u32, f64); 2] = [(BLOCK_BYTES, 1, 1900.0), (32 << 10, 1, 3850.0)];
/// Workers move as much as threads from this part on.
const AS_MUCH: f64 = 0.97;
/// What is left from another node where no table says it: all.
const REMOTE: f64 = 1.0;
/// The journal's lock where no table says it: nothing.
const LOCK_NS: f64 = 0.0;
/// The lock's time is a multiple of this, ns: two digits, as what was measured bears.
const LOCK_STEP_NS: f64 = 10.0;
/// Until its time is known so well, ns.
const LOCK_NEAR_NS: f64 = 1.0;

const ASSUMED: &str = "assumed";

/// A point of a curve: MiB/s, the table, and its rows.
type Point = (f64, &'static str, Vec<usize>);
/// By threads.
type Points = BTreeMap<u32, Point>;
/// By bytes.
type Classes = BTreeMap<u64, Points>;

/// What follows from these rows; what they do not say is that of `base`.
///
/// # Errors
/// They say nothing of one of the kinds, or runs are refused.
pub fn fit(rows: &[Published], base: &Machine) -> Result<Fit, Refused> {
    fit_with(rows, base, None)
}

/// The same; the lock of `known` is taken where all that it follows from is the same.
fn fit_with(rows: &[Published], base: &Machine, known: Option<&Fit>) -> Result<Fit, Refused> {
    let mut numbers = Vec::new();
    let read = access(rows, base, Kind::Read, &mut numbers)?;
    let write = access(rows, base, Kind::Write, &mut numbers)?;
    let machine = Machine { read, write, ..base.clone() };
    let mut model = Model { machine, lock_ns: LOCK_NS };
    let by_lock = rows.iter().enumerate().find(|(_, row)| row.is_by_lock());
    let (from, its) = match by_lock {
        Some((place, row)) => {
            let same = known.filter(|known| known.model.machine == model.machine);
            model.lock_ns = match same {
                Some(known) => known.model.lock_ns,
                None => lock(&model, row)?,
            };
            (row.table, vec![place])
        }
        None => ("nothing says it", Vec::new()),
    };
    let name = "OdinFS's journal, locked for a write".to_owned();
    numbers.push(Number { name, value: model.lock_ns, unit: "ns", from, rows: its });
    numbers.extend(others(base));
    Ok(Fit { model, numbers })
}

/// What is said of each table by runs that have all tables, and by such that do not have it.
///
/// # Errors
/// Runs are refused.
pub fn leave_one_out(
    (rows, base): (&[Published], &Machine),
    full: (&Fit, &[Compared]),
) -> Result<Vec<LeftOut>, Refused> {
    let mut tables: Vec<&'static str> = rows.iter().map(|row| row.table).collect();
    tables.dedup();
    let left = |table: &&'static str| {
        let (its, others): (Vec<Published>, Vec<Published>) =
            rows.iter().copied().partition(|row| row.table == *table);
        let model = fit_with(&others, base, Some(full.0))?.model;
        let with: Vec<Compared> =
            full.1.iter().filter(|it| it.published.table == *table).copied().collect();
        // the same numbers have the same outcome
        let without = if model == full.0.model { with.clone() } else { compare(&model, &its)? };
        let is_used = full.0.numbers.iter().any(|it| it.is_fitted() && it.from == *table);
        Ok(LeftOut { table, is_used, with, without })
    };
    each(&tables, left).into_iter().collect()
}

/// One kind of access; its numbers go to the others.
fn access(
    rows: &[Published],
    base: &Machine,
    kind: Kind,
    numbers: &mut Vec<Number>,
) -> Result<MachineAccess, Refused> {
    let mut classes = by_threads(rows, base.nodes, kind);
    if let Some(long) = by_workers(rows, base.nodes, kind, &classes) {
        classes.insert(PIECE_BYTES, long);
    }
    let local = curve(&classes).ok_or(Refused("no table says what the memory moves"))?;
    let verb = if kind == Kind::Read { "reads" } else { "writes" };
    for (bytes, points) in classes {
        for (threads, (value, from, rows)) in points {
            let name = format!("{verb} of {} KiB by {threads}", bytes >> 10);
            numbers.push(Number { name, value, unit: "MiB/s", from, rows });
        }
    }
    let (remote_factor, from, rows) = remote(rows, kind);
    let name = format!("{verb} from the other node");
    numbers.push(Number { name, value: remote_factor, unit: "of local", from, rows });
    Ok(MachineAccess { local, remote_factor, ..base.access(kind).clone() })
}

/// What threads move without a file system.
fn by_threads(rows: &[Published], nodes: u32, kind: Kind) -> Classes {
    let mut classes = Classes::new();
    for (place, row) in rows.iter().enumerate() {
        if (row.by, row.kind) == (By::Threads, kind) {
            let (threads, point) = of_a_node(nodes, (place, row), row.threads / nodes);
            classes.entry(row.bytes).or_default().insert(threads, point);
        }
    }
    for (bytes, threads, rate) in ALONE {
        if let (Kind::Write, Some(points)) = (kind, classes.get_mut(&bytes)) {
            points.entry(threads).or_insert((rate, ASSUMED, Vec::new()));
        }
    }
    classes
}

fn of_a_node(nodes: u32, (place, row): (usize, &Published), threads: u32) -> (u32, Point) {
    (threads, ((row.rate / f64::from(nodes)).round(), row.table, vec![place]))
}

/// What busy workers move with long calls; none: nobody measured it, or something held them up.
fn by_workers(rows: &[Published], nodes: u32, kind: Kind, classes: &Classes) -> Option<Points> {
    let busy = rows.iter().enumerate().filter(|(_, row)| row.kind == kind);
    let mut points: Points =
        busy.filter_map(|it| Some(of_a_node(nodes, it, it.1.is_by_busy_workers()?))).collect();
    let last = *points.last_key_value()?.0;
    if let Some(threads) = curve(classes) {
        let as_much = |(workers, point): (&u32, &Point)| {
            point.0 >= AS_MUCH * threads.rate(*workers, PIECE_BYTES)
        };
        if !points.iter().all(as_much) {
            return None;
        }
    }
    let longest = classes.last_key_value().into_iter().flat_map(|(_, points)| points);
    let beyond = longest.filter(|(threads, _)| **threads > last);
    points.extend(beyond.map(|(threads, point)| (*threads, point.clone())));
    Some(points)
}

fn curve(classes: &Classes) -> Option<Curve> {
    let class = |(bytes, points): (&u64, &Points)| Class {
        bytes: *bytes,
        points: points.iter().map(|(threads, point)| (*threads, point.0)).collect(),
    };
    Curve::new(classes.iter().map(class).collect())
}

/// What is left from another node, in thousandths.
fn remote(rows: &[Published], kind: Kind) -> Point {
    let of = |by| rows.iter().enumerate().find(|(_, row)| (row.by, row.kind) == (by, kind));
    match (of(By::Near), of(By::Far)) {
        (Some((near, local)), Some((far, remote))) => {
            let part = (remote.rate / local.rate).min(1.0);
            ((part * 1000.0).round() / 1000.0, remote.table, vec![near, far])
        }
        _ => (REMOTE, "nothing says it", Vec::new()),
    }
}

/// The lock with which a run moves what this row has; no lock where it moves less without one. If
/// the calls did nothing but wait for it, each took the lock's time: it is no longer than that.
fn lock(model: &Model, row: &Published) -> Result<f64, Refused> {
    let mut low = 0.0;
    let mut high = 2.0 * row.bytes as f64 / (row.rate * 1048576.0) * 1e9;
    while high - low > LOCK_NEAR_NS {
        let lock_ns = (low + high) / 2.0;
        let rate = run(&setting(&Model { lock_ns, ..model.clone() }, row))?.rate();
        if rate > row.rate { low = lock_ns } else { high = lock_ns }
    }
    Ok(((low + high) / 2.0 / LOCK_STEP_NS).round() * LOCK_STEP_NS)
}

/// What is of other sources.
fn others(base: &Machine) -> Vec<Number> {
    let number = |name: &str, value, unit, from| {
        let (name, rows) = (name.to_owned(), Vec::new());
        Number { name, value, unit, from, rows }
    };
    let [read, write] = [&base.read, &base.write].map(|access| access.latency_ns);
    let factor = "assumed: NThread's 65.5 % more, of another machine";
    let measured = "what was measured";
    vec![
        number("nodes", f64::from(base.nodes), "", measured),
        number("CPUs of a node", f64::from(base.cpus), "", measured),
        number("a line of the memory", base.granule_bytes as f64, "bytes", "Optane's"),
        number("reads, until the first byte", read[0], "ns", "ChimeraFS (EuroSys'26)"),
        number("the same from the other node", read[1], "ns", factor),
        number("writes, until the first byte", write[0], "ns", ASSUMED),
        number("the same from the other node", write[1], "ns", ASSUMED),
        number("handing over to a worker", base.hand_off_ns, "ns", ASSUMED),
        number("moving a thread", base.move_thread_ns, "ns", "Linux takes 7 to 8 us"),
    ]
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
