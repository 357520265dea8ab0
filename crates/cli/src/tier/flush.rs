//! `nearside tier flush`: writes back all that can lie on the devices.

use std::path::Path;

use nearside::{FileSystem, Pool, files};
use serde::{Deserialize, Serialize};

use super::facts::{TierFacts, bytes};
use crate::control::{Client, Progress};
use crate::error::{self, Error, Result};
use crate::progress::Bar;
use crate::server_lock::ServerLock;
use crate::size::show;
use crate::{access, output, signals};

/// What was moved, as JSON and the control socket say it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Flushed {
    /// Blocks that files have on devices now, and no longer in slices.
    pub moved_blocks: u64,
    /// The same in bytes.
    pub moved_bytes: u64,
    /// How much of the slices is in use still.
    pub dirty_percent: f64,
    /// No device has room for more.
    pub full: bool,
}

impl Flushed {
    /// Does it; none if `each`, which is told how far it is, ended it.
    pub fn of(
        fs: &FileSystem,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> files::Result<Option<Flushed>> {
        let Some(moved_blocks) = fs.write_back_watched(each)? else { return Ok(None) };
        // in the `sync` domain what was moved is free in the slices only then
        fs.sync()?;
        let tier = fs.tier_stats().map(TierFacts::from).unwrap_or_default();
        Ok(Some(Flushed {
            moved_blocks,
            moved_bytes: bytes(moved_blocks),
            dirty_percent: tier.dirty_percent(),
            full: tier.device_blocks_free == 0,
        }))
    }
}

/// Flushes the tier of a pool.
pub fn run(pool: &Path, json: bool) -> Result<()> {
    signals::end_between_steps();
    let flushed = flush(pool)?;
    if json { output::json(&flushed) } else { output::text(&text(pool, &flushed)) }
}

fn flush(pool: &Path) -> Result<Flushed> {
    let bar = Bar::new("writing back");
    if access::has_server(pool)? {
        let mut client = Client::connect(pool)?;
        client.facts()?.tier.ok_or_else(|| super::no_tier(pool))?;
        return client.flush(&mut |progress: Progress| bar.set(progress.done, progress.of));
    }
    ServerLock::refuse_if_served(pool)?;
    let opened = Pool::open(pool).map_err(error::pool(pool))?;
    let flushed = opened.fs().tier_stats().ok_or_else(|| super::no_tier(pool)).and_then(|_| {
        let mut each = |done, of| {
            bar.set(done, of);
            signals::asked_to_end().is_none()
        };
        Flushed::of(opened.fs(), &mut each).map_err(|error| error::pool(pool)(error.into()))
    });
    let closed = opened.close().map_err(error::pool(pool));
    match (flushed?, signals::asked_to_end()) {
        (None, Some(signal)) => closed.and(Err(Error::Stopped(signal))),
        (flushed, _) => closed.map(|()| flushed.unwrap_or_default()),
    }
}

fn text(pool: &Path, flushed: &Flushed) -> String {
    let full = if flushed.full { "; the tier is full" } else { "" };
    format!(
        "{}: {} blocks written back, {}; {} % of the slices in use{full}\n",
        output::shown(pool.display().to_string().as_bytes()),
        flushed.moved_blocks,
        show(flushed.moved_bytes),
        flushed.dirty_percent,
    )
}
