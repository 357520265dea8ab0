//! `nearside check`: verifies everything that a pool stores.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::control::Client;
use crate::error::{self, Error, Result};
use crate::output;
use crate::progress::Bar;
use crate::verdict::Verdict;
use crate::{access, repair, whereabouts};

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside check /data/pool
  nearside check /data/pool --json && echo clean
  nearside check /data/pool --repair
  nearside check /data/pool --undo /data/pool/repair-1732270000.undo

Of a mounted pool the server checks the trees of a new checkpoint, and then all data, while the pool
is in use: writers wait for half a megabyte to be read at most, and a pool that is nearly full may
run out of space sooner meanwhile, since what the check looks at is not used again before its end.
The server tells the pool's owner and root. What was made after the check began is not looked at.

--repair tries in memory what can be done for a damaged pool that is not mounted, says what that is,
checks the result, and asks before it writes a byte; where nobody can be asked it writes nothing,
unless --yes is given. What can be read comes back. What has lost its name is in /lost+found then;
where a file's blocks are lost, reading is an error. A file that may have been changed by what is
lost reads as an error, and what is known of it is in /lost+found/older. What was there before is
saved first, and --undo puts it back, as long as the pool has not been used since.")]
pub struct CheckArgs {
    /// A pool: its directory, or the one it is mounted on.
    #[arg(value_name = "POOL|DIR")]
    pub pool: PathBuf,
    /// Say how damage can be repaired, and ask whether to do it.
    #[arg(long)]
    pub repair: bool,
    /// Repair without asking.
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// Where to save what a repair replaces [default: a new file in the pool's directory].
    #[arg(long, value_name = "PATH", requires = "repair")]
    pub undo_file: Option<PathBuf>,
    /// Put back what a repair replaced.
    #[arg(long, value_name = "PATH", conflicts_with = "repair")]
    pub undo: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Verifies a pool.
pub fn run(args: &CheckArgs) -> Result<()> {
    if args.repair {
        return repair::run(args);
    }
    if let Some(file) = &args.undo {
        return repair::undo(&args.pool, file, args.json);
    }
    let (pool, verdict) = whereabouts::pool_at(&args.pool)
        .and_then(|pool| look(&pool).map(|verdict| (pool, verdict)))
        .map_err(|error| Error::Unchecked { reason: error.to_string() })?;
    let count = verdict.findings.len();
    match args.json {
        true => output::json(&verdict)?,
        false => output::text(&text(&pool, &verdict))?,
    }
    match count {
        0 => Ok(()),
        count => Err(Error::Damaged { pool, count }),
    }
}

fn look(pool: &Path) -> Result<Verdict> {
    let bar = Bar::new("checking");
    if access::has_server(pool)? {
        let mut each = |progress: crate::control::Progress| bar.set(progress.done, progress.of);
        return Client::connect(pool)?.check(&mut each);
    }
    let checked = nearside::check_watched(pool, &mut |done, of| bar.set(done, of));
    checked.map(Verdict::from).map_err(error::pool(pool))
}

fn text(pool: &Path, verdict: &Verdict) -> String {
    let mut text = String::new();
    for finding in &verdict.findings {
        text.push_str(&format!("{}\n", finding.text()));
    }
    text.push_str(&format!(
        "{}: {}; {} inodes, {} data blocks verified, {} log records replayed\n",
        output::shown(pool.display().to_string().as_bytes()),
        if verdict.clean { "clean" } else { "damaged" },
        verdict.inodes,
        verdict.blocks,
        verdict.records
    ));
    text
}
