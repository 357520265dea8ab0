//! A connection to the kernel: what a mount is as long as anybody holds it.
//!
//! Two descriptors. The device is the kernel's end of the mount: the mount lives as long as one of
//! its descriptors is open in any process, and requests that were read from it stay owed to it. The
//! state memory holds what the next server needs to go on ([`state`](crate::state)). Whoever keeps
//! both can start a server after another was killed or ended; programs that use the mount wait
//! meanwhile.
//!
//! Threads read from one device, not each from a clone of it (FUSE_DEV_IOC_CLONE). A request
//! belongs to the clone that it was read from and is ended with an error when that is closed, as
//! the clones of a killed server are (`fuse_dev_release`; seen on Linux 6.18: ECONNABORTED). All
//! clones wait at one queue; what each has to itself is the table of requests under way. On two
//! CPUs four callers were served as fast without them (4 KiB reads, writes, opens).

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nearside::files::{RequestId, TakeOver};

use crate::state::{self, Head, STATE_BYTES};
use crate::{Error, MountOptions, Result, device, mounts};

/// A mount that no server of this process serves yet.
#[derive(Debug)]
pub struct Connection {
    pub(crate) device: OwnedFd,
    pub(crate) state: OwnedFd,
    pub(crate) place: MountPlace,
    client: u128,
}

/// Where a connection is mounted.
#[derive(Clone, Debug)]
pub(crate) struct MountPlace {
    pub(crate) dir: PathBuf,
    /// Major and minor number.
    pub(crate) device: (u32, u32),
}

impl MountPlace {
    /// Cuts the connection of what is mounted there.
    pub(crate) fn abort(&self) -> std::io::Result<()> {
        // The kernel names a connection by the minor number of its device.
        std::fs::write(format!("/sys/fs/fuse/connections/{}/abort", self.device.1), "1")
    }
}

/// Mounts at directory `dir`. Nothing answers there until the connection is served.
pub fn connect(dir: &Path, options: &MountOptions) -> Result<Connection> {
    let canonical = dir.canonicalize();
    let dir = canonical.map_err(|source| Error::Directory { dir: dir.to_path_buf(), source })?;
    let refused = |source| Error::Refused { dir: dir.clone(), source };
    if !mounts::is_source(&options.source) {
        return Err(refused(std::io::Error::from_raw_os_error(libc::EINVAL)));
    }
    let mut client = [0; 16];
    let random = rustix::rand::getrandom(&mut client, rustix::rand::GetRandomFlags::empty());
    random.map_err(|errno| Error::Session(errno.into()))?;
    let state = shm::create("nearside-connection", STATE_BYTES)?;
    let device = device::mount(&dir, options)?;
    let place = place_of(&dir).inspect_err(|_| detach_failed(&dir))?;
    let mut head = Head::new(client);
    head.device = place.device.into();
    head.write(state.as_fd(), dir.as_os_str().as_bytes()).inspect_err(|_| detach_failed(&dir))?;
    Ok(Connection { device, state, place, client: u128::from_le_bytes(client) })
}

/// The mount that was just made; it is looked for before it could be covered.
fn place_of(dir: &Path) -> Result<MountPlace> {
    let refused = |source| Error::Refused { dir: dir.to_path_buf(), source };
    match mounts::at(dir).map_err(refused)? {
        Some(entry) => Ok(MountPlace { dir: dir.to_path_buf(), device: entry.device }),
        None => Err(refused(std::io::Error::from_raw_os_error(libc::ENOENT))),
    }
}

pub(crate) fn detach_failed(dir: &Path) {
    if let Err(error) = device::unmount(dir, true) {
        tracing::warn!(%error, "could not take the unfinished mount away");
    }
}

impl Connection {
    /// The device and the state memory, to be handed to the process that serves next.
    pub fn descriptors(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.device.as_fd(), self.state.as_fd())
    }

    /// The connection with these descriptors, which [`descriptors`](Self::descriptors) gave, here
    /// or in another process.
    pub fn from_descriptors(device: OwnedFd, state: OwnedFd) -> Result<Connection> {
        let head = Head::read(state.as_fd())?;
        let dir = PathBuf::from(OsString::from_vec(head.read_dir(state.as_fd())?));
        let place = MountPlace { dir, device: head.device.into() };
        Ok(Connection { device, state, place, client: u128::from_le_bytes(head.client) })
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// Cuts the connection: calls on its files fail from now on, also those that wait.
    ///
    /// # Errors
    /// The kernel does not show its connections here (fusectl is not mounted).
    pub fn abort(&self) -> std::io::Result<()> {
        self.place.abort()
    }

    /// Names the kernel's side of this connection among all clients that ever were.
    pub fn client(&self) -> u128 {
        self.client
    }

    /// What its last server left undone, for the open of the pool.
    pub fn left_undone(&self) -> Result<TakeOver> {
        let id = |sequence| RequestId { client: self.client, sequence };
        let requests = self.in_flight()?.into_iter().map(id).collect();
        Ok(TakeOver { requests, keep_orphans: true, returning: false })
    }

    /// Numbers of the requests that were read and not answered. They are certain only when no
    /// server is at work.
    pub fn in_flight(&self) -> Result<Vec<u64>> {
        state::in_flight(self.state.as_fd())
    }
}
