//! `nearside check --repair`: tells what a repair would do, asks, and does it.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nearside::{Repair, RepairReport};
use serde::Serialize;

use crate::check::CheckArgs;
use crate::error::{self, Error, Result};
use crate::progress::Bar;
use crate::server_lock::ServerLock;
use crate::verdict::Finding;
use crate::{access, output, whereabouts};

#[derive(Serialize)]
struct Told {
    /// Whether it was made, not only tried.
    written: bool,
    /// Where what was there before is.
    undo_file: Option<PathBuf>,
    found: Vec<Finding>,
    done: Vec<Finding>,
    left: Vec<Finding>,
    put_aside: u64,
    pages: u64,
}

#[derive(Serialize)]
struct Undone {
    pages: u64,
}

/// Repairs a pool, as far as it is asked for.
pub fn run(args: &CheckArgs) -> Result<()> {
    let pool = own_pool(&args.pool)?;
    let unchecked = |error: Error| Error::Unchecked { reason: error.to_string() };
    let bar = Bar::new("checking");
    let tried = nearside::repair(&pool, &mut |done, of| bar.set(done, of));
    let tried = tried.map_err(error::pool(&pool)).map_err(unchecked)?;
    drop(bar);
    let Some(repair) = tried else {
        let nothing = told(&RepairReport::default(), None);
        return match args.json {
            true => output::json(&nothing),
            false => output::text(&format!("{}: clean; nothing to repair\n", pool.display())),
        };
    };
    let report = repair.report().clone();
    if !args.json {
        output::text(&text(&pool, &report))?;
    }
    let undo_file = args.undo_file.clone().unwrap_or_else(|| default_undo(&pool));
    let write = report.pages > 0 && (args.yes || !args.json && asked(&pool, &report, &undo_file)?);
    if write {
        make(repair, &pool, &undo_file)?;
    }
    if args.json {
        output::json(&told(&report, write.then(|| undo_file.clone())))?;
    } else if write {
        output::text(&format!(
            "{}: repaired; nearside check {} --undo {} puts back what was there before\n",
            pool.display(),
            pool.display(),
            undo_file.display()
        ))?;
    }
    match (write || report.pages == 0, report.left.len()) {
        (true, 0) => Ok(()),
        (true, count) => Err(Error::Damaged { pool, count }),
        (false, _) => Err(Error::Unrepaired { pool, count: report.found.len(), advice: ADVICE }),
    }
}

const ADVICE: &str = "; --yes repairs without asking";

/// Puts back what a repair replaced.
pub fn undo(pool: &Path, file: &Path, json: bool) -> Result<()> {
    let pool = own_pool(pool)?;
    let pages = nearside::undo(&pool, file).map_err(error::pool(&pool))?;
    match json {
        true => output::json(&Undone { pages }),
        false => output::text(&format!("{}: {pages} pages put back\n", pool.display())),
    }
}

/// A pool that nobody has mounted.
fn own_pool(pool: &Path) -> Result<PathBuf> {
    let pool = whereabouts::pool_at(pool)?;
    if let Some(entry) = access::mount_of(&pool)? {
        return Err(Error::Path {
            shown: pool,
            reason: format!(
                "it is mounted on {}; unmount it first (nearside umount {})",
                entry.dir.display(),
                entry.dir.display()
            ),
        });
    }
    ServerLock::refuse_if_served(&pool)?;
    Ok(pool)
}

fn make(repair: Repair, pool: &Path, undo_file: &Path) -> Result<()> {
    repair.write(undo_file).map_err(|source| error::pool(pool)(source.into()))
}

fn default_undo(pool: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    pool.join(format!("repair-{now}.undo"))
}

/// Whether somebody is there and says yes.
fn asked(pool: &Path, report: &RepairReport, undo_file: &Path) -> Result<bool> {
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Ok(false);
    }
    output::text(&format!(
        "Write {} pages to {}, saving what is there to {}? [y/N] ",
        report.pages,
        pool.display(),
        undo_file.display()
    ))?;
    std::io::stdout().flush().map_err(Error::Output)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Error::Output)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

fn told(report: &RepairReport, undo_file: Option<PathBuf>) -> Told {
    let all = |findings: &[nearside::Finding]| {
        findings.iter().cloned().map(Finding::from).collect::<Vec<_>>()
    };
    Told {
        written: undo_file.is_some(),
        undo_file,
        found: all(&report.found),
        done: all(&report.done),
        left: all(&report.left),
        put_aside: report.put_aside,
        pages: report.pages,
    }
}

fn text(pool: &Path, report: &RepairReport) -> String {
    let mut text = String::new();
    let mut list = |title: &str, findings: &[nearside::Finding]| {
        if !findings.is_empty() {
            text.push_str(&format!("{title}:\n"));
        }
        for finding in findings {
            text.push_str(&format!("  {}\n", Finding::from(finding.clone()).text()));
        }
    };
    list("found", &report.found);
    list("repair", &report.done);
    list("stays damaged", &report.left);
    text.push_str(&format!(
        "{}: {} found, {} in /lost+found, {} damaged afterwards, {} pages to write\n",
        output::shown(pool.display().to_string().as_bytes()),
        report.found.len(),
        report.put_aside,
        report.left.len(),
        report.pages
    ));
    text
}
