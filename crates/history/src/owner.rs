//! A process that owns the pool: with a service, a mount, and callers of its own.

use std::path::Path;
use std::sync::Arc;

use nearside::Pool;
use nearside_fuse::{MountOptions, mount};
use server::{ATTACHED_NAME, Door, Options, Service};

use crate::door::{DoorKind, Place};
use crate::worker::{Callers, say, serve};
use crate::{Result, said};

/// The process. It ends when its standard input does.
pub fn run(dir: &Path, mnt: Option<&Path>) -> Result<()> {
    let pool = Arc::new(Pool::open(dir).map_err(said("open"))?);
    let door = Door::open(&dir.join(nearside::ATTACH_SOCKET), 0o600).map_err(said("socket"))?;
    let attached = Some(dir.join(ATTACHED_NAME));
    let options = Options { attached, lanes: Some(dir.to_owned()), ..Options::default() };
    let service = Service::start(pool.clone(), door, &options).map_err(said("service"))?;
    let mounted = mnt.map(|mnt| mount(pool.fs().clone(), mnt, &MountOptions::default()));
    let mounted = mounted.transpose().map_err(said("mount"))?;
    serve(&Callers { place: Place::Pool(&pool), first: 0, doors: DoorKind::of_process("own") })?;
    if let Some(mounted) = mounted {
        mounted.unmount().map_err(said("unmount"))?;
        mounted.wait().map_err(said("unmount"))?;
    }
    drop(service);
    pool.close().map_err(said("close"))?;
    say("closed")
}
