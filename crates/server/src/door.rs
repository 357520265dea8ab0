//! The socket where processes attach.
//!
//! It may outlive a service: whoever holds it, a keeper or systemd, gives it to one service after
//! the other, and those who connect in between wait for the next.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};
use wire::Place;

use crate::{Error, Result};

/// Processes that wait to be let in.
const BACKLOG: i32 = 1024;

/// The socket where processes attach. Who made it takes its name away when it is dropped.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    /// Its name, and the device and inode that had it.
    name: Option<(PathBuf, (u64, u64))>,
}

impl Door {
    /// Makes the socket at `path`, with these permission bits, in the place of what a dead service
    /// left there. The caller is sure that there is no other service.
    pub fn open(path: &Path, mode: u32) -> Result<Door> {
        make(path, mode).map_err(|source| Error::Socket { path: path.to_path_buf(), source })
    }

    /// Over a socket that somebody else made, who also takes its name away.
    ///
    /// # Errors
    /// It is none that processes could attach to.
    pub fn from_socket(socket: OwnedFd) -> Result<Door> {
        let failed = Error::io("the socket that was handed over");
        let is_right = sockopt::socket_type(&socket).map_err(&failed)? == SocketType::SEQPACKET
            && sockopt::socket_domain(&socket).map_err(&failed)? == AddressFamily::UNIX
            && sockopt::socket_acceptconn(&socket).map_err(&failed)?;
        if !is_right {
            return Err(failed(Errno::INVAL));
        }
        rustix::io::ioctl_fionbio(&socket, true).map_err(&failed)?;
        refuse_descriptors(&socket)?;
        Ok(Door { socket, name: None })
    }

    /// The same socket, for a service: it leaves its name alone.
    pub fn try_clone(&self) -> Result<Door> {
        let socket = self.socket.try_clone().map_err(Error::io("dup"))?;
        Ok(Door { socket, name: None })
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let Some((path, made)) = &self.name else { return };
        // what another one put there is not this one's to remove
        if std::fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == *made) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn make(path: &Path, mode: u32) -> io::Result<Door> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // under a name of its own until its mode is right; the rename takes an old one's place
    let mut new_name = std::ffi::OsString::from(".");
    new_name.push(name);
    new_name.push(".new");
    let place = Place::of(dir, new_name.len())?;
    let new = place.join(&new_name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, kind, flags, None)?;
    refuse_descriptors(&socket).map_err(io::Error::other)?;
    bind(&socket, &SocketAddrUnix::new(&new)?)?;
    let settled = settle(&new, &place.join(name), mode);
    if settled.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    let made = settled?;
    listen(&socket, BACKLOG)?;
    Ok(Door { socket, name: Some((std::path::absolute(path)?, made)) })
}

/// No process has to send any, and to close what one sent may hold up who lets the others in.
fn refuse_descriptors(socket: &OwnedFd) -> Result<()> {
    let refused = shm::refuse_descriptors(socket.as_fd());
    if !refused.map_err(|error| Error::io("setsockopt")(io::Error::other(error)))? {
        tracing::debug!("this kernel lets processes send descriptors to the service");
    }
    Ok(())
}

fn settle(new: &Path, path: &Path, mode: u32) -> io::Result<(u64, u64)> {
    std::fs::set_permissions(new, std::fs::Permissions::from_mode(mode))?;
    let made = std::fs::symlink_metadata(new)?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let text = "a file that is no socket has this name; move it away";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        _ => std::fs::rename(new, path)?,
    }
    Ok((made.dev(), made.ino()))
}
