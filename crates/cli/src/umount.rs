//! `nearside umount`: returns when everything is checkpointed and the server has gone.

use std::path::Path;

use nearside_fuse::mounts::{self, MountEntry};

use crate::args::UmountArgs;
use crate::error::{Error, Result};
use crate::progress::Bar;
use crate::server_lock::{End, Watch};
use crate::{output, place, whereabouts};

/// Unmounts.
pub fn run(args: &UmountArgs) -> Result<()> {
    let dir = &args.dir;
    let nothing = || place::nothing_here(dir);
    let entry = whereabouts::mount_at(dir)?.ok_or_else(nothing)?;
    let pool = place::pool_of(&entry).ok_or_else(nothing)?;
    match Watch::open(&pool) {
        // Served on another mount; this one's server died.
        Some(_) if whereabouts::is_elsewhere(&pool, &entry)? && place::is_dead(&entry.dir) => {
            clear(dir, &entry.dir)
        }
        Some(watch) if watch.is_served() => {
            unmount(&entry)?;
            let others = whereabouts::others_of(&entry)?;
            if !others.is_empty() {
                let others = whereabouts::listed(&others);
                let text =
                    format!("{}: still mounted on {others}; unmount it there", dir.display());
                output::complain(&text);
            }
            let _bar = Bar::new("waiting for the server to close the pool");
            told(&pool, watch.wait())
        }
        Some(_) => clear(dir, &entry.dir),
        // A pool on read-only media has no such file.
        None if place::is_dead(&entry.dir) => clear(dir, &entry.dir),
        None => unmount(&entry),
    }
}

/// Takes one mount away, if nobody is in it.
pub fn unmount(entry: &MountEntry) -> Result<()> {
    let Err(error) = mounts::unmount(&entry.dir) else { return Ok(()) };
    let inner = whereabouts::mounts_in(&entry.dir)?;
    match error {
        nearside_fuse::Error::Busy(dir) if !inner.is_empty() => {
            let inner = whereabouts::listed(&inner);
            Err(Error::Place {
                dir,
                reason: format!("mounted in it is {inner}; unmount that first"),
            })
        }
        error => Err(error.into()),
    }
}

/// Takes the mount of a dead server away, whoever may still be in it.
fn clear(dir: &Path, mounted: &Path) -> Result<()> {
    mounts::clear(mounted)?;
    output::complain(&format!(
        "{}: the server had died; its mount is cleared, and the next mount recovers every \
         acknowledged change",
        dir.display()
    ));
    Ok(())
}

/// How the server of a pool ended, for who waited.
pub fn told(pool: &Path, end: std::io::Result<End>) -> Result<()> {
    let pool = pool.display();
    match end {
        Ok(End::Closed) => Ok(()),
        Ok(End::Failed(reason)) => Err(Error::Server(format!(
            "ended, but closing the pool failed: {reason}; see {pool}/nearside.log"
        ))),
        Ok(End::Untold) => {
            output::complain(&format!(
                "ended; there was no room in {pool} to say how the server ended: \
                 nearside check tells"
            ));
            Ok(())
        }
        Ok(End::Died) => Err(Error::Server(format!(
            "ended, but the server died before it had closed {pool}; the next mount recovers \
             every acknowledged change; see {pool}/nearside.log"
        ))),
        Err(error) => {
            Err(Error::Server(format!("ended, but cannot wait for the server of {pool}: {error}")))
        }
    }
}
