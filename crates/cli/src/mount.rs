//! `nearside mount`: starts a server on a pool and returns when its files are there.

use std::path::{Path, PathBuf};

use crate::args::MountArgs;
use crate::error::{self, Error, Result};
use crate::server_lock::{ServerLock, Watch};
use crate::{daemon, place, server};

/// Mounts a pool.
pub fn run(args: &MountArgs) -> Result<()> {
    if args.as_server {
        return daemon::serve(args);
    }
    let pool = args.pool.canonicalize().map_err(error::io(&args.pool))?;
    let dir = settle(&pool, &args.dir)?;
    ServerLock::refuse_if_served(&pool)?;
    if args.foreground {
        let place = server::Place { pool, dir };
        server::run(&place, args, || Ok(()))
    } else {
        daemon::start(&pool, &dir, args)
    }
}

/// The directory to mount on, cleared of the mount of a server that died.
fn settle(pool: &Path, dir: &Path) -> Result<PathBuf> {
    if let Some(entry) = place::mounted_on(dir)?
        && let Some(other) = place::pool_of(&entry)
    {
        let served = Watch::open(&other).is_some_and(|watch| watch.is_served());
        if served || !place::is_dead(&entry.dir) {
            let reason = format!("pool {} is mounted here; unmount it first", other.display());
            return Err(Error::Place { dir: dir.to_path_buf(), reason });
        }
        eprintln!("nearside: {}: clearing the mount of a server that died", dir.display());
        nearside_fuse::mounts::clear(&entry.dir)?;
    }
    let dir = dir.canonicalize().map_err(error::io(dir))?;
    place::judge(pool, &dir)?;
    Ok(dir)
}
