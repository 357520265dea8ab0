//! Mounts of pools that are elsewhere: both sides.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use client::Origin;
use nearside::FileKind;
use nearside_fuse::{Nodes, RemoteOptions, RemoteServer, Turn, Users};
use server::{MountOf, Mounts, Rights, Squash};
use wire::{MountServer, Outlet};

/// Serves mounts of other machines as one of this machine is served.
#[derive(Debug)]
pub struct RemoteMounts {
    /// Nothing is changed.
    pub read_only: bool,
}

impl Mounts for RemoteMounts {
    fn begin(
        &self,
        of: MountOf<'_>,
        outlet: Arc<dyn Outlet>,
    ) -> Result<Box<dyn MountServer>, String> {
        let path = std::ffi::OsStr::from_bytes(&of.ask.path);
        let found = of.pool.metadata(Path::new(path)).map_err(|error| error.to_string())?;
        if found.attr().kind != FileKind::Directory {
            return Err(format!("{}: not a directory; say one", path.display()));
        }
        let options = RemoteOptions {
            turn: Turn { client: of.client, number: of.ask.turn },
            capabilities: of.ask.capabilities,
            nodes: Nodes::new(found.attr().ino.0, of.names),
            read_only: self.read_only || of.rights.read_only,
            users: users(of.rights),
        };
        tracing::info!(path = %path.display(), "mounted by another machine");
        Ok(Box::new(RemoteServer::new(of.pool.fs().clone(), options, outlet)))
    }
}

/// Whose rights the users of a mount have.
fn users(rights: &Rights) -> Users {
    match rights.squash {
        Squash::All => Users::All(Arc::new(rights.caller())),
        Squash::Root => Users::Root(Arc::new(rights.caller())),
        Squash::None => Users::Trusted,
    }
}

/// The service that an address names.
///
/// # Errors
/// It is none.
pub fn origin(address: &Path) -> client::Result<Origin> {
    let wrong = || client::Error::NoAddress(address.to_string_lossy().into_owned());
    Origin::of(address)?.ok_or_else(wrong)
}
