//! A mount and its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, Filesystem, MountOption, Notifier, Session, SessionACL};
use nearside::FileSystem;

use crate::service::Service;
use crate::transport::Transport;
use crate::{Error, MountOptions, Result, device, mounts};

/// Bytes that the kernel reads ahead, KiB: one request of the largest size.
const READ_AHEAD_KIB: u32 = 1024;

/// A mounted pool. Dropping it detaches the mount without waiting for its files to close.
#[derive(Debug)]
pub struct Mount {
    session: Option<BackgroundSession>,
    unmounter: Unmounter,
}

/// Ends a mount from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    dir: PathBuf,
    device: (u32, u32),
}

/// Mounts `fs` at directory `dir` and serves it with threads of its own until it is unmounted.
///
/// The pool stays open after that: closing it is its owner's.
pub fn mount(fs: Arc<FileSystem>, dir: &Path, options: &MountOptions) -> Result<Mount> {
    let transport = Transport::new(Service::new(fs, options.sole_door), options);
    let notice = transport.notice();
    // Set once, before any request is read.
    mount_server(transport, dir, options, |notifier| drop(notice.set(notifier)))
}

/// Mounts any server as [`mount`] mounts ours, with the same session and threads, so that a
/// measurement can tell what the door costs with nothing behind it. The server's `init` calls
/// [`negotiate`](crate::negotiate).
pub fn mount_server<S: Filesystem>(
    server: S,
    dir: &Path,
    options: &MountOptions,
    notify_by: impl FnOnce(Notifier),
) -> Result<Mount> {
    let canonical = dir.canonicalize();
    let dir = canonical.map_err(|source| Error::Directory { dir: dir.to_path_buf(), source })?;
    let refused = |source| Error::Refused { dir: dir.clone(), source };
    if !mounts::is_source(&options.source) {
        return Err(refused(std::io::Error::from_raw_os_error(libc::EINVAL)));
    }
    let session = match device::mount(&dir, options)? {
        Some(connection) => Session::from_fd(server, connection, acl(options), config(options))
            .inspect_err(|_| detach_failed(&dir)),
        None => Session::new(server, &dir, &config(options)),
    };
    let session = session.map_err(refused)?;
    notify_by(session.notifier());
    // The mount is in the table and answers nothing yet: look before it could be covered.
    let entry = mounts::at(&dir).map_err(refused)?;
    let Some(entry) = entry else {
        return Err(refused(std::io::Error::from_raw_os_error(libc::ENOENT)));
    };
    let unmounter = Unmounter { dir: dir.clone(), device: entry.device };
    raise_read_ahead(entry.device);
    let session = session.spawn().inspect_err(|_| detach_failed(&dir)).map_err(refused)?;
    Ok(Mount { session: Some(session), unmounter })
}

impl Mount {
    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.unmounter.dir
    }

    /// Waits until somebody has unmounted it and every request is answered.
    pub fn wait(mut self) -> Result<()> {
        match self.session.take() {
            Some(session) => session.join().map_err(Error::Session),
            None => Ok(()),
        }
    }

    /// Unmounts; fails with [`Error::Busy`] while somebody uses it.
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
        if self.session.is_some()
            && let Err(error) = self.unmounter.detach()
        {
            tracing::warn!(%error, "the mount stays; its files answer with errors from now on");
        }
    }
}

impl Unmounter {
    /// Unmounts; fails with [`Error::Busy`] while somebody uses it.
    pub fn unmount(&self) -> Result<()> {
        if self.is_ours() { device::unmount(&self.dir, false) } else { Ok(()) }
    }

    /// Hides the mount at once; it ends when the last of its files is closed.
    pub fn detach(&self) -> Result<()> {
        if self.is_ours() { device::unmount(&self.dir, true) } else { Ok(()) }
    }

    /// Cuts the connection: calls on files that are still open fail from now on.
    pub fn abort(&self) -> std::io::Result<()> {
        // The kernel names a connection by the minor number of its device.
        let path = format!("/sys/fs/fuse/connections/{}/abort", self.device.1);
        std::fs::write(path, "1")
    }

    /// Whether what is mounted there now is this mount, not one that came after it.
    fn is_ours(&self) -> bool {
        matches!(mounts::at(&self.dir), Ok(Some(entry)) if entry.device == self.device)
    }
}

fn detach_failed(dir: &Path) {
    if let Err(error) = device::unmount(dir, true) {
        tracing::warn!(%error, "could not take the unfinished mount away");
    }
}

fn acl(options: &MountOptions) -> SessionACL {
    if options.allow_other { SessionACL::All } else { SessionACL::Owner }
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        // Only fusermount3 sees these; it splits them at commas.
        MountOption::FSName(mounts::escape_option(&options.source.to_string_lossy())),
        MountOption::Subtype("nearside".to_owned()),
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.acl = acl(options);
    let threads = options.thread_count();
    config.n_threads = Some(threads);
    // A connection for each thread, where the device can be opened again.
    config.clone_fd = threads > 1 && device::open().is_ok();
    config
}

/// The kernel offers a server 128 KiB at most; the rest is root's to set.
fn raise_read_ahead((major, minor): (u32, u32)) {
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, READ_AHEAD_KIB.to_string()) {
        tracing::info!(%path, %error, "the kernel's default read-ahead stays");
    }
}
