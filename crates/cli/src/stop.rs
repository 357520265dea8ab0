//! `nearside stop`: ends the service of a pool; returns when everything is checkpointed and the
//! server has gone.

use std::path::PathBuf;

use clap::Args;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{self, Error, Result};
use crate::progress::Bar;
use crate::server_lock::Watch;
use crate::{umount, whereabouts};

/// Arguments of `stop`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside stop /data/pool

Processes that are attached are told so by their next call; what they were told is done, is. A pool
that is mounted is unmounted, too, unless files there stay open: see nearside umount.")]
pub struct StopArgs {
    /// A pool: its directory, or the one it is mounted on.
    #[arg(value_name = "POOL|DIR")]
    pub pool: PathBuf,
}

/// Ends it.
pub fn run(args: &StopArgs) -> Result<()> {
    let pool = whereabouts::pool_at(&args.pool)?;
    let none = || Error::Server(format!("{}: nobody serves this pool", pool.display()));
    let watch = Watch::open(&pool).filter(Watch::is_served).ok_or_else(none)?;
    let keeper = watch.process().ok_or_else(none)?;
    let process = pidfd_open(keeper, PidfdFlags::empty()).map_err(|_| none())?;
    // the lock is held, so the number in the file is the keeper's still, and was when it was opened
    if !watch.is_served() || watch.process() != Some(keeper) {
        return Err(none());
    }
    let signalled = pidfd_send_signal(&process, Signal::TERM);
    signalled.map_err(|errno| error::io(&pool)(errno.into()))?;
    let _bar = Bar::new("waiting for the server to close the pool");
    umount::told(&pool, watch.wait())
}
