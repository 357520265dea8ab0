//! `nearside check`: verifies everything that a pool stores.

use serde::Serialize;

use crate::args::CheckArgs;
use crate::error::{Error, Result};
use crate::output;

#[derive(Serialize)]
struct Report<'a> {
    clean: bool,
    findings: Vec<Finding<'a>>,
    inodes: u64,
    blocks: u64,
    records: u64,
}

#[derive(Serialize)]
struct Finding<'a> {
    place: &'a str,
    what: &'a str,
}

/// Verifies a pool.
pub fn run(args: &CheckArgs) -> Result<()> {
    let report = nearside::check(&args.pool)
        .map_err(|source| Error::Unchecked { pool: args.pool.clone(), source })?;
    let count = report.findings.len();
    if args.json {
        let findings = report.findings.iter();
        output::json(&Report {
            clean: count == 0,
            findings: findings.map(|it| Finding { place: &it.place, what: &it.what }).collect(),
            inodes: report.inodes,
            blocks: report.blocks,
            records: report.records,
        })?;
    } else {
        let mut text = String::new();
        for finding in &report.findings {
            text.push_str(&format!("{}: {}\n", finding.place, finding.what));
        }
        let verdict = if count == 0 { "clean" } else { "damaged" };
        text.push_str(&format!(
            "{}: {verdict}; {} inodes, {} data blocks verified, {} log records replayed\n",
            args.pool.display(),
            report.inodes,
            report.blocks,
            report.records
        ));
        output::text(&text)?;
    }
    match count {
        0 => Ok(()),
        count => Err(Error::Damaged { pool: args.pool.clone(), count }),
    }
}
