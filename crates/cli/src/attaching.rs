//! Lets processes attach to a server.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nearside::Pool;

use crate::error::{Error, Result};
use crate::forwarding::RemoteMounts;
use crate::served::Served;

/// Where processes come in: what the keeper keeps from one server to the next.
#[derive(Debug, Default)]
pub struct Doors {
    /// Those of this machine.
    pub here: Option<OwnedFd>,
    /// Those of others.
    pub network: Option<OwnedFd>,
}

/// Lets processes in. `keeps_orphans`: files without a name are the mount's, too, which lets go of
/// them.
pub fn attach(
    pool: &Arc<Pool>,
    doors: Doors,
    args: &Served,
    keeps_orphans: bool,
) -> Result<Option<server::Service>> {
    let Some(door) = doors.here else { return Ok(None) };
    let attached = Some(args.pool.join(server::ATTACHED_NAME));
    let lanes = Some(args.pool.clone());
    let mounts = Arc::new(RemoteMounts { read_only: args.serving.read_only });
    let options = server::Options {
        attached,
        lanes,
        keeps_orphans,
        mounts: Some(mounts),
        fabrics: args.attaching.as_ref().map(|it| it.listening.fabric.clone()).unwrap_or_default(),
        ..server::Options::default()
    };
    let failed = |error: server::Error| Error::Server(error.to_string());
    let door = server::Door::from_socket(door).map_err(failed)?;
    let mut service = server::Service::start(pool.clone(), door, &options).map_err(failed)?;
    tracing::info!("processes can attach");
    if let (Some(door), Some(attaching)) = (doors.network, &args.attaching) {
        attaching.listening.serve(&mut service, TcpListener::from(door)).map_err(failed)?;
        tracing::info!("processes of other machines can attach");
    }
    Ok(Some(service))
}
