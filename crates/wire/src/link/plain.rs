//! A socket, as it is.

use std::io::{ErrorKind, IoSlice, Result, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

use super::Transport;

/// A connected socket.
#[derive(Debug)]
pub struct Plain(pub OwnedFd);

impl Transport for Plain {
    fn receive(&self, room: &mut [u8]) -> Result<usize> {
        take(&self.0, room)
    }

    fn send(&self, parts: [&[u8]; 3]) -> Result<usize> {
        Socket(&self.0).write_vectored(&parts.map(IoSlice::new))
    }

    fn shut(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub fn take(socket: &OwnedFd, room: &mut [u8]) -> Result<usize> {
    match recv(socket, room, RecvFlags::DONTWAIT) {
        Ok((bytes, _)) => Ok(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Err(ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}

/// Takes what it can now.
pub struct Socket<'s>(pub &'s OwnedFd);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(self.0, parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(bytes) => Ok(bytes),
            Err(Errno::AGAIN | Errno::INTR) => Err(ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
