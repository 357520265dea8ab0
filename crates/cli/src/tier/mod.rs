//! `nearside tier`: the capacity tier of a pool, which is the devices below its slices.

mod devices;
mod evict;
pub mod facts;
mod flush;
mod status;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::error::{Error, Result};
use crate::whereabouts;

pub use devices::table;
pub use evict::Evicted;
pub use flush::Flushed;

/// Arguments of `tier`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside tier status /data/pool
  nearside tier flush /data/pool
  nearside tier evict /mnt/near

A pool that was made with --capacity has devices below its slices. Blocks that nobody used lately
move there by themselves when a part of the slices is in use, and are read through a cache in DRAM.
The server of a mounted pool does what is asked; the pool's owner and root may ask.")]
pub struct TierArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show how full slices and devices are, and what moves between them.
    Status(PoolArgs),
    /// Write back all that can lie on the devices, until the slices are as empty as they can be.
    Flush(PoolArgs),
    /// Let go of what is cached of the devices in DRAM.
    Evict(PoolArgs),
}

/// Arguments of each.
#[derive(Debug, Args)]
pub struct PoolArgs {
    /// A pool: its directory, or the one it is mounted on.
    #[arg(value_name = "POOL|DIR")]
    pub pool: PathBuf,
    /// Print JSON; all sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

/// Looks after a tier.
pub fn run(args: &TierArgs) -> Result<()> {
    let (Verb::Status(of) | Verb::Flush(of) | Verb::Evict(of)) = &args.verb;
    let pool = whereabouts::pool_at(&of.pool)?;
    match &args.verb {
        Verb::Status(_) => status::run(&pool, of.json),
        Verb::Flush(_) => flush::run(&pool, of.json),
        Verb::Evict(_) => evict::run(&pool, of.json),
    }
}

/// What is wrong with a pool without a tier.
fn no_tier(pool: &Path) -> Error {
    let reason = "has no capacity tier; a pool is made with one (format --capacity)".to_owned();
    Error::Path { shown: pool.to_path_buf(), reason }
}
