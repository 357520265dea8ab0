//! `nearside mount`: starts a keeper with a server on a pool and returns when its files are there.

use std::path::{Path, PathBuf};

use crate::args::{MountArgs, Part};
use crate::error::{self, Error, Result};
use crate::server_lock::{ServerLock, Watch};
use crate::{daemon, keeper, log, output, place, server};

/// Mounts a pool.
pub fn run(args: &MountArgs) -> Result<()> {
    match args.part() {
        Part::Command => {}
        Part::Keeper => return daemon::keep(args),
        Part::Server => return server::run(args),
    }
    log::judge()?;
    let pool = args.pool.canonicalize().map_err(error::io(&args.pool))?;
    let dir = settle(&pool, &args.dir)?;
    ServerLock::refuse_if_served(&pool)?;
    let args = MountArgs { pool, dir, ..args.clone() };
    if args.foreground { keeper::run(&args, || Ok(())) } else { daemon::start(&args) }
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
        let shown = dir.display();
        output::complain(&format!("{shown}: clearing the mount of a server that died"));
        nearside_fuse::mounts::clear(&entry.dir)?;
    }
    let dir = dir.canonicalize().map_err(error::io(dir))?;
    place::judge(pool, &dir)?;
    Ok(dir)
}
