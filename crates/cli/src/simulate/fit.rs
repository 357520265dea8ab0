//! `nearside simulate --fit`: a machine's numbers from what others have measured, anew.

use std::fmt::Write as _;

use serde::Serialize;
use sim::{Compared, LeftOut, Number};

use super::published::{Beside, Off, header, machine, refused};
use crate::error::Result;
use crate::output;

#[derive(Serialize)]
struct Report {
    machine: String,
    numbers: Vec<Said>,
    rows: Vec<Row>,
    tables: Vec<Table>,
    /// Rows from which numbers follow,
    fitted: Off,
    /// the same, each without its table,
    fitted_without_their_tables: Off,
    /// and all others.
    held_out: Off,
}

#[derive(Serialize)]
struct Said {
    name: String,
    value: f64,
    unit: &'static str,
    from: &'static str,
    /// It follows from the table; else it is of another source, or assumed.
    fitted: bool,
}

impl From<Number> for Said {
    fn from(it: Number) -> Said {
        let fitted = it.is_fitted();
        let Number { name, value, unit, from, .. } = it;
        Said { name, value, unit, from, fitted }
    }
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    beside: Beside,
    /// How far it is off, as a part,
    error: f64,
    /// and with the numbers that follow without its table.
    error_without_its_table: f64,
}

#[derive(Serialize)]
struct Table {
    table: &'static str,
    /// A number follows from it.
    used: bool,
    with: Off,
    without: Off,
}

/// Fits, and says how far off each row is.
pub fn run(json: bool) -> Result<()> {
    let (rows, base) = (sim::published(), machine()?);
    let fit = sim::fit(&rows, &base).map_err(refused)?;
    let compared = sim::compare(&fit.model, &rows).map_err(refused)?;
    let left = sim::leave_one_out((&rows, &base), (&fit, &compared)).map_err(refused)?;
    let report = report(base.name, fit.numbers, &left);
    if json { output::json(&report) } else { output::text(&text(&report)) }
}

fn report(machine: String, numbers: Vec<Number>, left: &[LeftOut]) -> Report {
    let row = |(with, without): (&Compared, &Compared)| Row {
        beside: Beside::from(with),
        error: with.error(),
        error_without_its_table: without.error(),
    };
    let table = |it: &LeftOut| Table {
        table: it.table,
        used: it.is_used,
        with: Off::of(it.with.iter()),
        without: Off::of(it.without.iter()),
    };
    let with: Vec<Compared> = left.iter().flat_map(|it| it.with.iter().copied()).collect();
    let without: Vec<Compared> = left.iter().flat_map(|it| it.without.iter().copied()).collect();
    Report {
        machine,
        numbers: numbers.into_iter().map(Said::from).collect(),
        rows: with.iter().zip(&without).map(row).collect(),
        tables: left.iter().map(table).collect(),
        fitted: Off::split(&with, true),
        fitted_without_their_tables: Off::split(&without, true),
        held_out: Off::split(&with, false),
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn text(report: &Report) -> String {
    let Report { machine, numbers, rows, tables, .. } = report;
    let mut text = format!("{machine}, and OdinFS on it\n\n");
    let _ = writeln!(text, "{:<40}{:>8} {:<9} FROM", "NUMBER", "VALUE", "");
    for Said { name, value, unit, from, fitted } in numbers {
        let fitted = if *fitted { "  fitted" } else { "" };
        let _ = writeln!(text, "{name:<40}{value:>8} {unit:<9} {from}{fitted}");
    }
    let _ = writeln!(text, "\n{}{:>9}{:>15}", header(), "ERROR", "WITHOUT TABLE");
    for row in rows {
        let fitted = if row.beside.fitted { "  fitted" } else { "  held out" };
        let (error, without) = (percent(row.error), percent(row.error_without_its_table));
        let _ = writeln!(text, "{}{error:>9}{without:>15}{fitted}", row.beside.columns());
    }
    let columns = ["ROWS", "MEDIAN", "MOST", "WITHOUT IT", "MOST"];
    let [rows, median, most, without, most_without] = columns;
    let _ = writeln!(
        text,
        "\n{:<22}{rows:>5}{median:>9}{most:>9}{without:>12}{most_without:>9}",
        "TABLE"
    );
    for Table { table, used, with, without } in tables {
        let said = if *used { "" } else { "  nothing follows from it" };
        let [median, most, median_without, most_without] =
            [with.median, with.most, without.median, without.most].map(percent);
        let rows = with.rows;
        let _ = writeln!(
            text,
            "{table:<22}{rows:>5}{median:>9}{most:>9}{median_without:>12}{most_without:>9}{said}"
        );
    }
    for (what, off) in [
        ("\nfitted", &report.fitted),
        ("fitted, each without its table", &report.fitted_without_their_tables),
        ("held out", &report.held_out),
    ] {
        let _ = writeln!(text, "{what}: {}", off.says());
    }
    text
}
