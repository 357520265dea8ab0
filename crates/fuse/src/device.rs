//! The FUSE device and the mount system call.
//!
//! As root the mount is made here and not by `fuser`: its own unmounting (0.18) takes a mount that
//! is gone for one that is there, and would take down whatever was mounted at the place since.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};

use crate::{Error, MountOptions, Result};

/// Type of the file system in the mount table.
const KIND: &str = "fuse.nearside";

/// Opens the device.
pub(crate) fn open() -> Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(Error::Device)
}

/// Mounts at `dir` and returns the connection; `None` when that takes more rights than this
/// process has.
pub(crate) fn mount(dir: &Path, options: &MountOptions) -> Result<Option<OwnedFd>> {
    let refused = |source| Error::Refused { dir: dir.to_path_buf(), source };
    let metadata = std::fs::metadata(dir)
        .map_err(|source| Error::Directory { dir: dir.to_path_buf(), source })?;
    let device = open()?;
    let mut settings = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        metadata.permissions().mode() & libc::S_IFMT,
        nix::unistd::geteuid(),
        nix::unistd::getegid()
    );
    if options.allow_other {
        settings.push_str(",allow_other");
    }
    let mut flags = MsFlags::empty();
    flags.set(MsFlags::MS_RDONLY, options.read_only);
    let source = options.source.as_os_str();
    match nix::mount::mount(Some(source), dir, Some(KIND), flags, Some(settings.as_str())) {
        Ok(()) => Ok(Some(device.into())),
        Err(Errno::EPERM) => Ok(None),
        Err(errno) => Err(refused(errno.into())),
    }
}

/// Unmounts what is at `dir`; `detach` hides it at once and lets it end when its last file closes.
pub(crate) fn unmount(dir: &Path, detach: bool) -> Result<()> {
    let mut flags = MntFlags::UMOUNT_NOFOLLOW;
    flags.set(MntFlags::MNT_DETACH, detach);
    let failed = |source| Error::Unmount { dir: dir.to_path_buf(), source };
    match nix::mount::umount2(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EBUSY) => Err(Error::Busy(dir.to_path_buf())),
        Err(Errno::EPERM) => fusermount(dir, detach).map_err(failed),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Unmounts with the helper that may do so for an ordinary user's own mounts.
fn fusermount(dir: &Path, detach: bool) -> std::io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if detach {
        command.arg("-z");
    }
    let output = command.arg("--").arg(dir).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
