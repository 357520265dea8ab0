//! The FUSE device and the mount system call.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::{Error, MountOptions, Result, mounts};

/// Type of the file system in the mount table.
const KIND: &str = "fuse.nearside";
/// The helper that mounts and unmounts for ordinary users.
const HELPER: &str = "fusermount3";
/// Tells the helper over which of its descriptors to hand over the device.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// Opens the device.
fn open() -> Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(Error::Device)
}

/// Mounts at `dir` and returns the device; by the helper when that takes more rights than this
/// process has.
pub(crate) fn mount(dir: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let refused = |source| Error::Refused { dir: dir.to_path_buf(), source };
    let metadata = std::fs::metadata(dir)
        .map_err(|source| Error::Directory { dir: dir.to_path_buf(), source })?;
    let device = match open() {
        Err(Error::Device(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            return mount_by_helper(dir, options).map_err(refused);
        }
        opened => opened?,
    };
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
    flags.set(MsFlags::MS_NOSUID | MsFlags::MS_NODEV, !options.trusted);
    let source = options.source.as_os_str();
    match nix::mount::mount(Some(source), dir, Some(KIND), flags, Some(settings.as_str())) {
        Ok(()) => Ok(device.into()),
        Err(Errno::EPERM) => mount_by_helper(dir, options).map_err(refused),
        Err(errno) => Err(refused(errno.into())),
    }
}

/// Has the helper mount, which sends the device over its stdin.
fn mount_by_helper(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut settings = OsString::from("fsname=");
    settings.push(mounts::escape_option(&options.source));
    settings.push(",subtype=nearside,default_permissions");
    settings.push(if options.read_only { ",ro" } else { ",rw" });
    if options.allow_other {
        settings.push(",allow_other");
    }
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(settings).arg("--").arg(dir).env(HELPER_SOCKET, "0");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let helper = command.spawn()?;
    // It keeps its own end of the pair: without it the other one would not end with the helper.
    drop(command);
    let received = receive(&ours);
    let output = helper.wait_with_output()?;
    match received? {
        Some(device) if output.status.success() => Ok(device),
        _ => Err(said(&output.stderr)),
    }
}

/// The descriptor that comes over the socket; `None` when it ends without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut room = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut room, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// Unmounts what is at `dir`; `detach` hides it at once and lets it end when its last file closes.
pub(crate) fn unmount(dir: &Path, detach: bool) -> Result<()> {
    let mut flags = MntFlags::UMOUNT_NOFOLLOW;
    flags.set(MntFlags::MNT_DETACH, detach);
    let failed = |source| Error::Unmount { dir: dir.to_path_buf(), source };
    match nix::mount::umount2(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EBUSY) => Err(Error::Busy(dir.to_path_buf())),
        Err(Errno::EPERM) => unmount_by_helper(dir, detach).map_err(failed),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Unmounts with the helper, which may do so for an ordinary user's own mounts.
fn unmount_by_helper(dir: &Path, detach: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if detach {
        command.arg("-z");
    }
    let output = command.arg("--").arg(dir).output()?;
    if output.status.success() { Ok(()) } else { Err(said(&output.stderr)) }
}

/// What the helper said went wrong.
fn said(stderr: &[u8]) -> io::Error {
    io::Error::other(String::from_utf8_lossy(stderr).trim().to_owned())
}
