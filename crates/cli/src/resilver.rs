//! `nearside resilver`: gives a mirrored pool its second copy of everything back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use nearside::Pool;
use serde::Serialize;

use crate::error::{self, Error, Result};
use crate::facts::Facts;
use crate::progress::Bar;
use crate::server_lock::ServerLock;
use crate::{access, output, signals, size, whereabouts};

/// How often the server of a mounted pool is asked.
const PAUSE: Duration = Duration::from_millis(300);

/// Arguments of `resilver`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside resilver /data/pool                       what was away is back in the pool's directory
  nearside resilver /data/pool --slice 1             make the file of slice 1 anew there
  nearside resilver /data/pool --slice 1 --onto /dev/dax1.0
  nearside resilver /mnt/nearside                    wait for the server of a mounted pool

A pool made with --data-copies 2 works without one of its files, and without more of them as long as
no two of neighbouring slices are missing. A file that was away while the pool was changed is stale:
it is not read until everything is copied to it. Whoever opens or mounts the pool for writing does
that in the background; this command does it at once. Exits 0 if every slice has both copies then,
1 if not.")]
pub struct ResilverArgs {
    /// A pool: its directory, or the one it is mounted on.
    #[arg(value_name = "POOL|DIR")]
    pub pool: PathBuf,
    /// Make the file of this slice anew, which is missing. The pool is not mounted.
    #[arg(long, value_name = "K")]
    pub slice: Option<u32>,
    /// Where: a device, or a file, which is overwritten [default: in the pool's directory].
    #[arg(long, value_name = "PATH", requires = "slice")]
    pub onto: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Done {
    /// Whether every slice has two copies now.
    complete: bool,
    /// Bytes that had to be copied; none where a server did it.
    copied_bytes: Option<u64>,
    /// What can be read in no copy.
    unreadable: Vec<String>,
    /// Slices that have one copy only.
    single: Vec<u32>,
}

/// Resilvers a pool.
pub fn run(args: &ResilverArgs) -> Result<()> {
    signals::end_between_steps();
    let pool = whereabouts::pool_at(&args.pool)?;
    let done = match access::has_server(&pool)? {
        true if args.slice.is_some() => {
            let reason =
                "is in use; unmount it before a file of it is made anew, or stop its service";
            return Err(Error::Path { shown: pool, reason: reason.to_owned() });
        }
        true => wait(&pool)?,
        false => resilver(&pool, args)?,
    };
    match args.json {
        true => output::json(&done)?,
        false => output::text(&text(&pool, &done))?,
    }
    match done.single.len() + done.unreadable.len() {
        0 => Ok(()),
        _ => Err(Error::Degraded { pool }),
    }
}

fn resilver(dir: &Path, args: &ResilverArgs) -> Result<Done> {
    ServerLock::refuse_if_served(dir)?;
    let goes_on = || signals::asked_to_end().is_none();
    let stopped = |error| match signals::asked_to_end() {
        Some(signal) => Error::Stopped(signal),
        None => error::pool(dir)(error),
    };
    if let Some(slice) = args.slice {
        let bar = Bar::new("making the file");
        let mut each = |done, of| {
            bar.set(done, of);
            goes_on()
        };
        let made = nearside::replace_slice(dir, slice as usize, args.onto.as_deref(), &mut each);
        made.map_err(stopped)?;
    }
    let bar = Bar::new("copying");
    let pool = Pool::open(dir).map_err(error::pool(dir))?;
    let done = pool.resilver(&mut |done, of| {
        bar.set(done, of);
        goes_on()
    });
    let facts = Facts::of(pool.fs());
    let single = single(&facts);
    pool.close().map_err(error::pool(dir))?;
    if facts.slices.iter().all(|slice| slice.mirror.is_none()) {
        let reason = "it was not made with two copies (format --data-copies 2)".to_owned();
        return Err(Error::Path { shown: dir.to_path_buf(), reason });
    }
    let done = done.map_err(stopped)?;
    if let Some(signal) = signals::asked_to_end() {
        return Err(Error::Stopped(signal));
    }
    let done = done.unwrap_or_default();
    if let Some(Err(reason)) = done.ended {
        return Err(Error::Path { shown: dir.to_path_buf(), reason });
    }
    let complete = single.is_empty() && done.unreadable.is_empty();
    Ok(Done { complete, copied_bytes: Some(done.copied), unreadable: done.unreadable, single })
}

/// Waits until the server of a mounted pool has done it.
fn wait(pool: &Path) -> Result<Done> {
    let bar = Bar::new("copying");
    loop {
        let facts = access::facts(pool)?;
        let going = facts.resilver.as_ref().filter(|going| !going.ended);
        let Some(going) = going else {
            if let Some(reason) = facts.resilver.as_ref().and_then(|done| done.failed.clone()) {
                return Err(Error::Path { shown: pool.to_path_buf(), reason });
            }
            let single = single(&facts);
            let unreadable = facts.resilver.map_or_else(Vec::new, |done| done.unreadable);
            let complete = single.is_empty() && unreadable.is_empty();
            return Ok(Done { complete, copied_bytes: None, unreadable, single });
        };
        bar.set(going.done_bytes, going.bytes);
        if let Some(signal) = signals::asked_to_end() {
            return Err(Error::Stopped(signal));
        }
        std::thread::sleep(PAUSE);
    }
}

fn single(facts: &Facts) -> Vec<u32> {
    let is_single = |slice: &&crate::facts::SliceFacts| slice.is_single();
    facts.slices.iter().filter(is_single).map(|slice| slice.index).collect()
}

fn text(pool: &Path, done: &Done) -> String {
    let mut text: String = done.unreadable.iter().map(|what| format!("{what}\n")).collect();
    for slice in &done.single {
        text.push_str(&format!("slice {slice} has one copy only\n"));
    }
    let copied = match done.copied_bytes {
        Some(bytes) => format!(", {} copied", size::show(bytes)),
        None => String::new(),
    };
    let all = if done.complete { "every slice has two copies" } else { "degraded" };
    let pool = output::shown(pool.display().to_string().as_bytes());
    text.push_str(&format!("{pool}: {all}{copied}\n"));
    text
}
