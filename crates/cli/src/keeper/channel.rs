//! What a keeper and its server say to each other: a message at a time, with descriptors.
//!
//! The socket keeps messages apart (`SOCK_SEQPACKET`), carries descriptors with them, and says when
//! the other side has gone. Both sides are this program, perhaps in two versions: a message that
//! one of them does not know is an error with words, never a guess.

use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest message, bytes; an error's text is the longest that there is.
const MESSAGE_BYTES_MAX: usize = 32 << 10;
/// Descriptors that one message carries at most (Linux's `SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;

/// What a keeper says to its server.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ToServer {
    /// Open the pool and serve. With it comes the lock of the pool, if it has one, and, for one
    /// that takes over, the connection to the kernel.
    Start {
        /// Whether the first descriptor is the pool's lock.
        has_lock: bool,
        /// Whether the others are the connection that a server before this one had.
        takes_over: bool,
    },
    /// Stop at a point where no call is half served, and end: the next server goes on there.
    HandOver,
}

/// What a server says to its keeper.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ToKeeper {
    /// It runs, and waits for its start.
    Hello {
        /// The program's version.
        version: String,
    },
    /// With it come the descriptors to keep for the next server.
    Keep,
    /// The mount answers.
    Ready,
    /// It could not start, for this reason.
    Failed(String),
    /// The mount has gone and the pool is closed, or closing failed for this reason.
    Ended(Option<String>),
}

/// One end of the socket.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// A keeper's end, and the descriptor that is to be its server's stdin.
    pub fn pair() -> Result<(Channel, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel { socket: ours }, theirs))
    }

    /// The server's end, which is its stdin; stdin is the null device from then on.
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
        let (keeper, server) = Channel::pair().unwrap();
        let server = Channel { socket: server };
        let mut kept = tempfile::tempfile().unwrap();
        kept.write_all(b"kept").unwrap();
        server.send(&ToKeeper::Ready, &[]).unwrap();
        server.send(&ToKeeper::Keep, &[kept.as_fd(), kept.as_fd()]).unwrap();
        let (first, none) = keeper.receive::<ToKeeper>().unwrap().unwrap();
        assert_eq!((first, none.len()), (ToKeeper::Ready, 0));
        let (second, files) = keeper.receive::<ToKeeper>().unwrap().unwrap();
        assert_eq!((second, files.len()), (ToKeeper::Keep, 2));
        drop(kept);
        let mut text = String::new();
        let mut copy = File::from(files.into_iter().next().unwrap());
        copy.rewind().unwrap();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
    }

    #[test]
    fn the_others_end_and_words_that_nobody_knows_are_told() {
        let (keeper, server) = Channel::pair().unwrap();
        let server = Channel { socket: server };
        server.send(&"what is this", &[]).unwrap();
        assert!(keeper.receive::<ToKeeper>().is_err());
        drop(server);
        assert!(keeper.receive::<ToKeeper>().unwrap().is_none());
        assert!(keeper.send(&ToServer::HandOver, &[]).is_err());
    }
}
