//! Mounts of a measurement, and the programs before them.
//!
//! A measurement with mounts runs in a mount namespace of its own. It ends with the measurement's
//! processes, however they end, and the mounts with it.
//!
//! The caller is a process of its own, as every program before a mount is. A server that called
//! itself could not be killed: its dying threads would wait for answers that nobody gives any
//! more, and keep open the device whose closing would end their wait.

use crate::caller::{Caller, Order, Took};
use crate::error::{Error, Result, io};
use nearside_fuse::{Mount, MountOptions};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use std::fs::File;
use std::path::Path;

/// Why nothing can be mounted here; `None` if it can.
pub fn missing() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("a mount in a namespace of its own takes root");
    }
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device.is_err().then_some("/dev/fuse cannot be opened")
}

/// Runs `measure` in a thread whose mounts nobody else sees.
pub fn apart<T: Send>(measure: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let root = Path::new("/");
            let failed = |errno: nix::Error| io(root)(errno.into());
            nix::sched::unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            nix::mount::mount(None::<&str>, root, None::<&str>, private, None::<&str>)
                .map_err(failed)?;
            measure()
        });
        thread.join().map_err(|_| Error::Panicked)?
    })
}

/// How both sides are mounted: as `nearside mount` does.
pub fn options() -> MountOptions {
    MountOptions { sole_door: true, ..MountOptions::default() }
}

/// A mount, and the process that uses it.
pub struct Door {
    // before the mount: its file keeps it in use
    caller: Caller,
    /// `None`: a directory that was there.
    mount: Option<Mount>,
}

impl Door {
    /// Starts a caller of `name` in `mount`; of its root directory, if the name is empty.
    pub fn open(mount: Mount, name: &str) -> Result<Door> {
        Ok(Door { caller: Caller::start(mount.dir().join(name))?, mount: Some(mount) })
    }

    /// Starts a caller of a path without a mount of ours.
    pub fn plain(path: &Path) -> Result<Door> {
        Ok(Door { caller: Caller::start(path.to_path_buf())?, mount: None })
    }

    /// Has the caller make calls.
    pub fn call(&mut self, order: Order) -> Result<Took> {
        self.caller.ask(order)
    }

    /// Ends the caller and takes the mount away; its threads have ended after that.
    pub fn close(self) -> Result<()> {
        drop(self.caller);
        if let Some(mount) = self.mount {
            mount.unmount()?;
            mount.wait()?;
        }
        Ok(())
    }
}
