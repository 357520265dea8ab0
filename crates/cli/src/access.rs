//! A pool for one command: opened by this process, or as its server has it.
//!
//! A verb that only reads opens a pool for reading only, which changes not one byte of it. A pool
//! that is mounted here is never opened a second time: its files are reached through the mount,
//! and what it says of itself is asked of the server. To one that a service has, and that is not
//! mounted, a verb attaches.

use std::io::ErrorKind;
use std::path::Path;

use nearside::{OpenOptions, Pool, ServiceError};
use nearside_fuse::mounts::{self, MountEntry};

use crate::control::{Client, is_served};
use crate::error::{self, Error, Result};
use crate::facts::Facts;
use crate::inside::{Inside, Mounted};
use crate::place;
use crate::server_lock::ServerLock;

/// The files of the pool in `dir`, for reading.
pub fn reading(dir: &Path) -> Result<Inside> {
    match mounted(dir)? {
        Some(mounted) => Ok(Inside::Mounted(mounted)),
        None => Ok(Inside::Opened(attached(dir)?.map_or_else(|| opened(dir), Ok)?)),
    }
}

/// The pool in `dir`, if a service has it.
fn attached(dir: &Path) -> Result<Option<Pool>> {
    match Pool::attach(dir) {
        Ok(pool) => Ok(Some(pool)),
        Err(nearside::Error::Service(ServiceError::NoService(_))) => Ok(None),
        Err(error) => Err(error::pool(dir)(error)),
    }
}

/// Does `work` on the files of the pool in `dir`, so that all that was done is durable in every
/// domain when this returns: what came before a failure, too.
pub fn changing(dir: &Path, work: impl FnOnce(&Inside) -> Result<()>) -> Result<()> {
    if let Some(mounted) = mounted(dir)? {
        // A pool knows no umask, and its verbs say which mode they give; nothing else makes files
        // in this process meanwhile.
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        let inside = Inside::Mounted(mounted);
        let done = work(&inside);
        rustix::process::umask(umask);
        let synced = match &inside {
            Inside::Mounted(mounted) => mounted.sync().map_err(error::io(dir)),
            Inside::Opened(_) => Ok(()),
        };
        return done.and(synced);
    }
    let open = || {
        ServerLock::refuse_if_served(dir)?;
        Pool::open(dir).map_err(error::pool(dir))
    };
    let pool = attached(dir)?.map_or_else(open, Ok)?;
    let inside = Inside::Opened(pool);
    let done = work(&inside);
    let closed = match &inside {
        Inside::Opened(pool) => pool.close().map_err(error::pool(dir)),
        Inside::Mounted(_) => Ok(()),
    };
    done.and(closed)
}

/// What the pool in `dir` says about itself.
pub fn facts(dir: &Path) -> Result<Facts> {
    match has_server(dir)? {
        true => Client::connect(dir)?.facts(),
        false => Ok(Facts::of(opened(dir)?.fs())),
    }
}

/// Whether a server has the pool in `dir`, mounted or for processes that attach, and is to be
/// asked.
pub fn has_server(dir: &Path) -> Result<bool> {
    Ok(mount_of(dir)?.is_some() || is_served(dir))
}

/// The pool in `dir`, opened for reading.
pub fn opened(dir: &Path) -> Result<Pool> {
    ServerLock::refuse_if_served(dir)?;
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    Pool::open_with(dir, &options).map_err(error::pool(dir))
}

/// Where the pool in `dir` is mounted, as this process sees the machine's mounts. The mount of a
/// server that died does not count: nobody holds the pool.
pub fn mount_of(dir: &Path) -> Result<Option<MountEntry>> {
    // What is no pool at all is told by who opens it.
    let Ok(pool) = dir.canonicalize() else { return Ok(None) };
    let list = mounts::list().map_err(error::io(Path::new("/proc/self/mountinfo")))?;
    let ours = |entry: &MountEntry| {
        place::is_whole(entry) && place::pool_of(entry).is_some_and(|path| path == pool)
    };
    // The last one covers those before it.
    Ok(list.into_iter().rev().find(|entry| ours(entry) && !place::is_dead(&entry.dir)))
}

fn mounted(dir: &Path) -> Result<Option<Mounted>> {
    let Some(entry) = mount_of(dir)? else { return Ok(None) };
    Mounted::open(dir, &entry).map(Some).map_err(|source| match entry.user {
        // Root neither, unless the mount lets others in.
        Some(user)
            if source.kind() == ErrorKind::PermissionDenied
                && !entry.allows_others
                && user != euid() =>
        {
            Error::Place {
                dir: entry.dir,
                reason: format!(
                    "user {user} mounted it for nobody else; ask as that user, or have it mounted \
                     with --allow-other"
                ),
            }
        }
        _ => Error::Io { path: entry.dir, source },
    })
}

fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}
