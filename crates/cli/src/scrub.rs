//! `nearside scrub`: verifies what a pool stores while it is in use, and repairs it from copies.

use std::path::{Path, PathBuf};

use clap::Args;
use nearside::{Pool, ScrubReport};
use serde::{Deserialize, Serialize};

use crate::control::{Client, Progress};
use crate::error::{self, Error, Result};
use crate::progress::Bar;
use crate::server_lock::ServerLock;
use crate::verdict::Finding;
use crate::{access, output, signals, size, whereabouts};

/// Arguments of `scrub`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside scrub /data/pool
  nearside scrub /data/pool --rate 0
  nearside scrub /mnt/nearside --rate 50M --json

All data and all copies of metadata are read and compared with their checksums. A damaged or
unreadable copy of a page of the trees, of a root or of a superblock is written again from another
one; so is data in a pool with two copies of everything (format --data-copies 2). Damaged data that
has no copy is listed, and reading it stays an error (EIO). Exits 0 if all is well or was repaired,
1 if damage stays, 2 if it cannot look.

A mounted pool is scrubbed by its server while it is in use; the pool's owner and root may ask. It
ends when this command does. nearside check looks at more than checksums, and repairs nothing.")]
pub struct ScrubArgs {
    /// A pool: its directory, or the one it is mounted on.
    #[arg(value_name = "POOL|DIR")]
    pub pool: PathBuf,
    /// Bytes per second that it reads at most; 0: as fast as it goes.
    #[arg(long, value_name = "BYTES", default_value = "200M", value_parser = size::parse)]
    pub rate: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What a scrub found, as JSON and the control socket say it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Whether no damage stays.
    pub clean: bool,
    /// What was written again from its other copy.
    pub repaired: Vec<String>,
    /// The damage that stays.
    pub findings: Vec<Finding>,
    /// Pages of the trees that were verified, in both copies.
    pub pages: u64,
    /// Those that have no second copy.
    pub single_pages: u64,
    /// Data blocks verified.
    pub blocks: u64,
}

impl From<ScrubReport> for Scrubbed {
    fn from(report: ScrubReport) -> Scrubbed {
        let ScrubReport { pages, single_pages, blocks, repaired, findings } = report;
        let clean = findings.is_empty();
        let findings = findings.into_iter().map(Finding::from).collect();
        Scrubbed { clean, repaired, findings, pages, single_pages, blocks }
    }
}

/// The rate that is asked for; none: no bound.
pub fn rate(bytes_per_s: u64) -> Option<u64> {
    (bytes_per_s > 0).then_some(bytes_per_s)
}

/// Scrubs a pool.
pub fn run(args: &ScrubArgs) -> Result<()> {
    signals::end_between_steps();
    let (pool, scrubbed) = whereabouts::pool_at(&args.pool)
        .and_then(|pool| scrub(&pool, args.rate).map(|scrubbed| (pool, scrubbed)))
        .map_err(|error| match error {
            Error::Stopped(signal) => Error::Stopped(signal),
            error => Error::Unscrubbed { reason: error.to_string() },
        })?;
    let count = scrubbed.findings.len();
    match args.json {
        true => output::json(&scrubbed)?,
        false => output::text(&text(&pool, &scrubbed))?,
    }
    match count {
        0 => Ok(()),
        count => Err(Error::Damaged { pool, count }),
    }
}

fn scrub(pool: &Path, bytes_per_s: u64) -> Result<Scrubbed> {
    let bar = Bar::new("scrubbing");
    if access::has_server(pool)? {
        let mut each = |progress: Progress| bar.set(progress.done, progress.of);
        return Client::connect(pool)?.scrub(bytes_per_s, &mut each);
    }
    ServerLock::refuse_if_served(pool)?;
    let opened = Pool::open(pool).map_err(error::pool(pool))?;
    let scrubbed = opened.scrub(rate(bytes_per_s), &mut |done, of| {
        bar.set(done, of);
        signals::asked_to_end().is_none()
    });
    let closed = opened.close().map_err(error::pool(pool));
    match (scrubbed.map_err(error::pool(pool))?, signals::asked_to_end()) {
        (None, Some(signal)) => closed.and(Err(Error::Stopped(signal))),
        (report, _) => closed.map(|()| report.unwrap_or_default().into()),
    }
}

fn text(pool: &Path, scrubbed: &Scrubbed) -> String {
    let mut text = String::new();
    for repaired in &scrubbed.repaired {
        text.push_str(&format!("repaired: {repaired}\n"));
    }
    for finding in &scrubbed.findings {
        text.push_str(&format!("{}: {}\n", finding.place, finding.what));
    }
    let single = match scrubbed.single_pages {
        0 => String::new(),
        pages => format!(" ({pages} without a second copy)"),
    };
    text.push_str(&format!(
        "{}: {}; {} pages of the trees{single} and {} data blocks verified, {} repaired\n",
        output::shown(pool.display().to_string().as_bytes()),
        if scrubbed.clean { "no damage" } else { "damaged" },
        scrubbed.pages,
        scrubbed.blocks,
        scrubbed.repaired.len(),
    ));
    text
}
