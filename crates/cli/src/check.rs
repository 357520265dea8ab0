//! `nearside check`: verifies everything that a pool stores.

use std::path::Path;

use crate::args::CheckArgs;
use crate::control::Client;
use crate::error::{self, Error, Result};
use crate::output;
use crate::progress::Bar;
use crate::verdict::Verdict;
use crate::{access, whereabouts};

/// Verifies a pool.
pub fn run(args: &CheckArgs) -> Result<()> {
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
    if access::mount_of(pool)?.is_some() {
        let mut each = |progress: crate::control::Progress| bar.set(progress.done, progress.of);
        return Client::connect(pool)?.check(&mut each);
    }
    let checked = nearside::check_watched(pool, &mut |done, of| bar.set(done, of));
    checked.map(Verdict::from).map_err(error::pool(pool))
}

fn text(pool: &Path, verdict: &Verdict) -> String {
    let mut text = String::new();
    for finding in &verdict.findings {
        text.push_str(&format!("{}: {}\n", finding.place, finding.what));
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
