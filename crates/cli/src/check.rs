//! `nearside check`: verifies everything that a pool stores.

use crate::access;
use crate::args::CheckArgs;
use crate::control::Client;
use crate::error::{Error, Result};
use crate::output;
use crate::progress::Bar;
use crate::verdict::Verdict;

/// Verifies a pool.
pub fn run(args: &CheckArgs) -> Result<()> {
    let verdict = look(args).map_err(|error| Error::Unchecked { reason: error.to_string() })?;
    let count = verdict.findings.len();
    match args.json {
        true => output::json(&verdict)?,
        false => output::text(&text(args, &verdict))?,
    }
    match count {
        0 => Ok(()),
        count => Err(Error::Damaged { pool: args.pool.clone(), count }),
    }
}

fn look(args: &CheckArgs) -> Result<Verdict> {
    let bar = Bar::new("checking");
    if access::mount_of(&args.pool)?.is_some() {
        let mut each = |progress: crate::control::Progress| bar.set(progress.done, progress.of);
        return Client::connect(&args.pool)?.check(&mut each);
    }
    nearside::check(&args.pool)
        .map(Verdict::from)
        .map_err(|source| Error::Pool { pool: args.pool.clone(), source })
}

fn text(args: &CheckArgs, verdict: &Verdict) -> String {
    let mut text = String::new();
    for finding in &verdict.findings {
        text.push_str(&format!("{}: {}\n", finding.place, finding.what));
    }
    text.push_str(&format!(
        "{}: {}; {} inodes, {} data blocks verified, {} log records replayed\n",
        output::shown(args.pool.display().to_string().as_bytes()),
        if verdict.clean { "clean" } else { "damaged" },
        verdict.inodes,
        verdict.blocks,
        verdict.records
    ));
    text
}
