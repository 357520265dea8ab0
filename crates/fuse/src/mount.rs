//! A mount and its end.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use nearside::FileSystem;

use crate::connection::{Connection, MountPlace, connect, detach_failed};
use crate::service::Service;
use crate::session::{Leaver, Left, Session};
use crate::state::State;
use crate::transport::Transport;
use crate::{MountOptions, Result, Server, device, mounts};

/// Bytes that the kernel reads ahead, KiB: one request of the largest size.
const READ_AHEAD_KIB: u32 = 1024;

/// A mounted pool. Dropping it detaches the mount without waiting for its files to close.
#[derive(Debug)]
pub struct Mount {
    session: Option<Session>,
    unmounter: Unmounter,
    /// Whose it is: a forked child has none of its threads, and leaves it alone.
    process: u32,
}

/// Ends a mount from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    place: MountPlace,
}

/// Mounts `fs` at directory `dir` and serves it with threads of its own until it is unmounted.
///
/// The pool stays open after that: closing it is its owner's.
pub fn mount(fs: Arc<FileSystem>, dir: &Path, options: &MountOptions) -> Result<Mount> {
    let connection = connect(dir, options)?;
    let dir = connection.dir().to_owned();
    serve(fs, connection, options).inspect_err(|_| detach_failed(&dir))
}

/// Serves `fs` through a connection: a new one, or one whose server was killed or has left
/// ([`Mount::leave`]). Requests that an earlier server read and did not answer are served first.
pub fn serve(fs: Arc<FileSystem>, connection: Connection, options: &MountOptions) -> Result<Mount> {
    serve_by(|turn| pool_server(fs, turn, options), connection, options)
}

/// Which server of a connection this is.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Names the kernel's side of the connection among all clients that ever were.
    pub client: u128,
    /// Counts the servers of the connection, from 1.
    pub number: u32,
}

/// The server that [`serve`] puts behind a connection, for the turn that [`serve_by`] told.
pub fn pool_server(fs: Arc<FileSystem>, turn: Turn, options: &MountOptions) -> impl Server + use<> {
    let sole_door = options.sole_door;
    Transport::new(fs.clone(), Service::new(fs, sole_door, turn), sole_door)
}

/// Mounts any server as [`mount`] mounts ours, with the same session and threads, so that a
/// measurement can tell what the door costs with nothing behind it.
pub fn mount_server<S: Server>(server: S, dir: &Path, options: &MountOptions) -> Result<Mount> {
    let connection = connect(dir, options)?;
    let dir = connection.dir().to_owned();
    serve_by(|_| server, connection, options).inspect_err(|_| detach_failed(&dir))
}

/// Serves a connection by the server that `make` makes, for the turn that it is told.
pub fn serve_by<S: Server>(
    make: impl FnOnce(Turn) -> S,
    connection: Connection,
    options: &MountOptions,
) -> Result<Mount> {
    let threads = options.thread_count();
    let state = State::map(connection.state.as_fd(), threads)?;
    let server = make(Turn { client: connection.client(), number: state.head()?.turn });
    let session = Session::start(server, connection.device, state, (threads, options.masked))?;
    // Now, for the kernel takes the lower of two while it agrees.
    raise_read_ahead(connection.place.device);
    let unmounter = Unmounter { place: connection.place };
    Ok(Mount { session: Some(session), unmounter, process: std::process::id() })
}

impl Mount {
    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.unmounter.place.dir
    }

    /// Waits until somebody has unmounted it and every request is answered.
    pub fn wait(mut self) -> Result<()> {
        match self.session.take() {
            Some(session) => session.join(),
            None => Ok(()),
        }
    }

    /// Stops serving, and leaves the mount to whoever holds its descriptors. Requests that are
    /// being served are answered first; those that come wait for another server, which can begin
    /// when this process has ended or [`Left::wait`] has returned.
    pub fn leave(mut self) -> Option<Left> {
        self.session.take().map(Session::leave)
    }

    /// What stops this server as [`leave`](Self::leave) does, from another thread.
    pub fn leaver(&self) -> Leaver {
        self.session.as_ref().map(Session::leaver).unwrap_or_default()
    }

    /// Unmounts; fails with [`Error::Busy`](crate::Error::Busy) while somebody uses it.
    pub fn unmount(&self) -> Result<()> {
        self.unmounter.unmount()
    }

    /// What ends this mount from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // what the threads would have been asked is theirs
            return std::mem::forget(self.session.take());
        }
        if self.session.is_some()
            && let Err(error) = self.unmounter.detach()
        {
            tracing::warn!(%error, "the mount stays; its files answer with errors from now on");
        }
    }
}

impl Unmounter {
    /// Unmounts; fails with [`Error::Busy`](crate::Error::Busy) while somebody uses it.
    pub fn unmount(&self) -> Result<()> {
        if self.is_ours() { device::unmount(&self.place.dir, false) } else { Ok(()) }
    }

    /// Hides the mount at once; it ends when the last of its files is closed.
    pub fn detach(&self) -> Result<()> {
        if self.is_ours() { device::unmount(&self.place.dir, true) } else { Ok(()) }
    }

    /// Cuts the connection: calls on files that are still open fail from now on.
    pub fn abort(&self) -> std::io::Result<()> {
        self.place.abort()
    }

    /// Whether what is mounted there now is this mount, not one that came after it.
    fn is_ours(&self) -> bool {
        matches!(mounts::at(&self.place.dir), Ok(Some(entry)) if entry.device == self.place.device)
    }
}

/// The kernel offers a server 128 KiB at most; the rest is root's to set.
fn raise_read_ahead((major, minor): (u32, u32)) {
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, READ_AHEAD_KIB.to_string()) {
        tracing::info!(%path, %error, "the kernel's default read-ahead stays");
    }
}
