//! `nearside mount` and `nearside serve`: start a keeper with a server on a pool, and return when
//! its files are there, or processes can attach.

use std::path::{Path, PathBuf};

use crate::error::{self, Error, Result};
use crate::keeper::OURSELVES;
use crate::served::{MountArgs, Part, ServeArgs, Served};
use crate::server_lock::{ServerLock, Watch};
use crate::{daemon, forwarding, keeper, log, origin, output, place, server};

/// Mounts a pool.
pub fn run(args: &MountArgs) -> Result<()> {
    serve(Served::mounted(args.clone()))
}

/// Serves a pool to processes that attach to it.
pub fn run_service(args: &ServeArgs) -> Result<()> {
    serve(Served::attached(args.clone()))
}

fn serve(mut served: Served) -> Result<()> {
    match served.serving.part() {
        Part::Command => {}
        Part::Keeper => return daemon::keep(&served),
        Part::Server => {
            // another server follows it, also while the kernel drops pages
            nearside_fuse::drop_pages_by(Path::new(OURSELVES));
            return server::run(&served);
        }
    }
    log::judge()?;
    match served.origin.clone() {
        Some(address) => prepare(&mut served, &address)?,
        None => {
            served.pool = served.pool.canonicalize().map_err(error::io(&served.pool))?;
            served.dir = served.dir.map(|dir| settle(&served.pool, &dir)).transpose()?;
        }
    }
    if let Some(attaching) = &mut served.attaching {
        attaching.listening.refuse_if_careless()?;
        attaching.listening.settle()?;
    }
    if let Some(socket) = served.attaching.as_mut().and_then(|it| it.socket.as_mut()) {
        // the server has another directory than this process
        *socket = std::path::absolute(&*socket).map_err(error::io(socket))?;
    }
    ServerLock::refuse_if_served(&served.pool)?;
    match served.serving.foreground {
        true => keeper::run(&served, || Ok(())),
        false => daemon::start(&served),
    }
}

/// Prepares a mount of a pool that another machine has.
fn prepare(served: &mut Served, address: &Path) -> Result<()> {
    forwarding::origin(address).map_err(nearside_fuse::Error::from)?;
    let Some(dir) = &served.dir else { return Ok(()) };
    let dir = settle(&served.pool, dir)?;
    served.pool = origin::make_home(&dir)?;
    served.dir = Some(dir);
    Ok(())
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
