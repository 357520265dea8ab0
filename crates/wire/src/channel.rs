//! A socket that carries messages with descriptors between two processes of this machine.
//!
//! It keeps messages apart (`SOCK_SEQPACKET`), and says when the other side has gone. Both sides
//! are Nearside, perhaps in two versions: a message that one of them does not know is an error with
//! words, never a guess.

use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message, bytes; an error's text is the longest that there is.
const MESSAGE_BYTES_MAX: usize = 32 << 10;
/// Descriptors that one message carries at most (Linux's `SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;

/// One end of the socket.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Over a socket of that kind that is connected.
    pub fn new(socket: OwnedFd) -> Channel {
        Channel { socket }
    }

    /// One end, and the descriptor of the other, which may become another process's stdin.
    pub fn pair() -> Result<(Channel, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel { socket: ours }, theirs))
    }

    /// The end that is this process's stdin; stdin is the null device from then on.
    pub fn from_stdin() -> Result<Channel> {
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        nix::unistd::dup2_stdin(&File::open("/dev/null")?)?;
        Ok(Channel { socket })
    }

    /// Another handle of the same end.
    pub fn try_clone(&self) -> Result<Channel> {
        Ok(Channel { socket: self.socket.try_clone()? })
    }

    /// Sends a message with descriptors; the other side gets copies of them.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
            return Err(Error::new(ErrorKind::InvalidInput, "the message is too long"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next message and its descriptors; `None` when the other side has gone.
    pub fn receive<M: DeserializeOwned>(&self) -> Result<Option<(M, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        let received = loop {
            match recvmsg(&self.socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                // A peer that was killed with messages of ours unread.
                Err(rustix::io::Errno::CONNRESET) => return Ok(None),
                other => break other?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(list) = message {
                descriptors.extend(list);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(Error::new(ErrorKind::InvalidData, "a message was cut short"));
        }
        let message = serde_json::from_slice(&bytes[..received.bytes])?;
        Ok(Some((message, descriptors)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn messages_carry_descriptors_and_stay_apart() {
        let (one, other) = Channel::pair().unwrap();
        let other = Channel::new(other);
        let mut kept = tempfile::tempfile().unwrap();
        kept.write_all(b"kept").unwrap();
        other.send(&"ready", &[]).unwrap();
        other.send(&"keep", &[kept.as_fd(), kept.as_fd()]).unwrap();
        let (first, none) = one.receive::<String>().unwrap().unwrap();
        assert_eq!((&*first, none.len()), ("ready", 0));
        let (second, files) = one.receive::<String>().unwrap().unwrap();
        assert_eq!((&*second, files.len()), ("keep", 2));
        drop(kept);
        let mut text = String::new();
        let mut copy = File::from(files.into_iter().next().unwrap());
        copy.rewind().unwrap();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
    }

    #[test]
    fn the_others_end_and_words_that_nobody_knows_are_told() {
        let (one, other) = Channel::pair().unwrap();
        let other = Channel::new(other);
        other.send(&"what is this", &[]).unwrap();
        assert!(one.receive::<u32>().is_err());
        drop(other);
        assert!(one.receive::<u32>().unwrap().is_none());
        assert!(one.send(&1, &[]).is_err());
    }
}
