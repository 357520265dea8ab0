//! `nearside stop`: ends the service of a pool; returns when everything is checkpointed and the
//! server has gone.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use clap::Args;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{self, Error, Result};
use crate::progress::Bar;
use crate::server_lock::Watch;
use crate::{place, umount, whereabouts};

/// Arguments of `stop`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside stop /data/pool

Processes that are attached are told so by their next call; what they were told is done, is. A pool
that is mounted is unmounted, too. While files are open there nothing is stopped.")]
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
    // a server that is told to end cuts off who has files open there: this one is asked first
    while let Some(entry) = whereabouts::mount_at(&pool)?.filter(|it| !place::is_dead(&it.dir)) {
        umount::unmount(&entry)?;
    }
    let _bar = Bar::new("waiting for the server to close the pool");
    if let Some(process) = server(&watch)? {
        match pidfd_send_signal(&process, Signal::TERM) {
            // it has ended with its mount
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(error::io(&pool)(errno.into())),
        }
    }
    umount::told(&pool, watch.wait())
}

/// The process that serves the pool; none: it has ended meanwhile.
fn server(watch: &Watch) -> Result<Option<OwnedFd>> {
    let Some(keeper) = watch.process().filter(|_| watch.is_served()) else { return Ok(None) };
    let process = match pidfd_open(keeper, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        process => process.map_err(|errno| Error::Server(format!("its server: {errno}")))?,
    };
    // the lock is held, so the number in the file is the keeper's still, and was when it was opened
    let is_it = watch.is_served() && watch.process() == Some(keeper);
    Ok(is_it.then_some(process))
}
