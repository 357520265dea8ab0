//! `nearside simulate --published`: what others have measured, and what is said beside it.

use std::fmt::Write as _;

use placement::{Kind, Machine};
use serde::Serialize;
use sim::{By, Compared, Model, Refused};

use crate::error::{Error, Result};
use crate::output;
use crate::size::show;

/// A measurement of others, and what is said of it.
#[derive(Serialize)]
pub struct Beside {
    table: &'static str,
    /// Workers a node; none: callers copied.
    workers: Option<u32>,
    /// Without a file system.
    bare: bool,
    /// All threads on one node, and the data on the other.
    remote: bool,
    calls: &'static str,
    bytes: u64,
    threads: u32,
    simulated_mib_per_s: f64,
    measured_mib_per_s: f64,
    ratio: f64,
    /// A number of the model follows from it.
    pub fitted: bool,
    #[serde(skip)]
    by: By,
}

impl From<&Compared> for Beside {
    fn from(it: &Compared) -> Beside {
        let by = it.published.by;
        Beside {
            table: it.published.table,
            workers: if let By::Workers(workers) = by { Some(workers) } else { None },
            bare: matches!(by, By::Threads | By::Near | By::Far),
            remote: by == By::Far,
            calls: if it.published.kind == Kind::Read { "reads" } else { "writes" },
            bytes: it.published.bytes,
            threads: it.published.threads,
            simulated_mib_per_s: it.rate,
            measured_mib_per_s: it.published.rate,
            ratio: it.ratio(),
            fitted: it.published.is_fitted,
            by,
        }
    }
}

/// What is over the columns of a row.
pub fn header() -> String {
    format!(
        "{:<22}{:<13}{:<17}{:>7}{:>11}{:>10}",
        "TABLE", "COPIED BY", "CALLS", "THREADS", "SIMULATED", "MEASURED"
    )
}

impl Beside {
    /// What it is of, and both rates.
    pub fn columns(&self) -> String {
        let by = match self.by {
            By::Threads => "threads".to_owned(),
            By::Near => "near threads".to_owned(),
            By::Far => "far threads".to_owned(),
            By::Workers(workers) => format!("{workers} workers"),
            By::Callers => "callers".to_owned(),
        };
        let calls = format!("{} {}", self.calls, show(self.bytes));
        let (simulated, measured) = (self.simulated_mib_per_s, self.measured_mib_per_s);
        let (table, threads) = (self.table, self.threads);
        format!("{table:<22}{by:<13}{calls:<17}{threads:>7}{simulated:>11.0}{measured:>10.0}")
    }
}

/// How far rows are off, as parts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Off {
    pub rows: usize,
    pub median: f64,
    pub most: f64,
}

impl Off {
    pub fn of<'c>(its: impl Iterator<Item = &'c Compared>) -> Off {
        let mut errors: Vec<f64> = its.map(Compared::error).collect();
        errors.sort_by(f64::total_cmp);
        let at = |place: usize| errors.get(place).copied().unwrap_or(0.0);
        Off {
            rows: errors.len(),
            median: at(errors.len() / 2),
            most: at(errors.len().saturating_sub(1)),
        }
    }

    /// One of those that are fitted, or of those that are not.
    pub fn split(all: &[Compared], fitted: bool) -> Off {
        Off::of(all.iter().filter(|it| it.published.is_fitted == fitted))
    }

    pub fn says(&self) -> String {
        let Off { rows, median, most } = self;
        let [median, most] = [median, most].map(|part| part * 100.0);
        format!("{rows} rows, off by {median:.0} % (median), {most:.0} % (most)")
    }
}

/// The machine that was measured, as it comes along.
pub fn machine() -> Result<Machine> {
    Ok(nearside_bench::machine("optane-2-sockets".as_ref())?)
}

pub fn refused(refused: Refused) -> Error {
    Error::Usage(refused.to_string())
}

pub fn run(json: bool) -> Result<()> {
    let compared = sim::compare(&Model::of(machine()?), &sim::published()).map_err(refused)?;
    let all: Vec<Beside> = compared.iter().map(Beside::from).collect();
    if json {
        return output::json(&all);
    }
    let mut text = format!("{}{:>7}\n", header(), "RATIO");
    for it in &all {
        let fitted = if it.fitted { "  fitted" } else { "" };
        let _ = writeln!(text, "{}{:>7.2}{fitted}", it.columns(), it.ratio);
    }
    for (what, fitted) in [("fitted", true), ("held out", false)] {
        let _ = writeln!(text, "{what}: {}", Off::split(&compared, fitted).says());
    }
    output::text(&text)
}
