//! A process that speaks to the service by hand: what it says and stores is up to the test.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shm::Shared;
use wire::{Calls, Channel, Greeting, Identity, Reply, Request, Said, Welcome};

/// Connected to a service, and nothing said.
pub fn connected(path: &Path) -> Channel {
    connect_to(path).unwrap()
}

fn connect_to(path: &Path) -> rustix::io::Result<Channel> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(Channel::new(socket))
}

/// A channel, what came by it first, and its descriptors.
pub type Answered = (Channel, Welcome, Vec<OwnedFd>);

/// What a service says to one who says this.
pub fn said_to(path: &Path, returns: Option<Identity>) -> Answered {
    try_said_to(path, returns).unwrap()
}

/// The same; none where the service has no room.
pub fn try_said_to(path: &Path, returns: Option<Identity>) -> Option<Answered> {
    let channel = connect_to(path).ok()?;
    channel
        .send(&Greeting { version: wire::VERSION, returns, mount: None, fabric: None }, &[])
        .ok()?;
    let (welcome, descriptors) = channel.receive::<Welcome>().ok()??;
    Some((channel, welcome, descriptors))
}

/// Attached by hand.
pub struct ByHand {
    pub channel: Channel,
    pub calls: Calls,
    /// The same memory, to be stored to.
    pub memory: Shared,
    /// Its descriptor.
    pub descriptor: OwnedFd,
    pub bell: OwnedFd,
    pub identity: Identity,
    pub knows: bool,
    /// The pool's identity.
    pub pool: String,
}

impl ByHand {
    /// By the socket `path`.
    pub fn attach(path: &Path, returns: Option<Identity>) -> ByHand {
        ByHand::of(said_to(path, returns)).unwrap_or_else(|welcome| panic!("{welcome:?}"))
    }

    /// By what a service has answered, if it has let the process in.
    pub fn of((channel, welcome, descriptors): Answered) -> Result<ByHand, Welcome> {
        let Welcome::Attached { pool, identity, knows, .. } = welcome else { return Err(welcome) };
        let [descriptor, bell] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
        let memory = Shared::map(descriptor.as_fd()).unwrap();
        let calls = Calls::new(descriptor.as_fd()).unwrap();
        Ok(ByHand { channel, calls, memory, descriptor, bell, identity, knows, pool })
    }

    /// Calls in slot 5, with this count.
    pub fn ask(&self, count: u64, request: &Request<'_>, data: &[u8]) -> Reply {
        self.ask_in((5, count), request, data)
    }

    /// Calls in this slot, with this count.
    pub fn ask_in(&self, call: (usize, u64), request: &Request<'_>, data: &[u8]) -> Reply {
        self.try_ask(call, request, data, &mut []).unwrap()
    }

    /// The same; none where the service has gone, or the answer is none.
    pub fn try_ask(
        &self,
        (slot, count): (usize, u64),
        request: &Request<'_>,
        data: &[u8],
        into: &mut [u8],
    ) -> Option<Reply> {
        let message = wire::encode(&(count, request), Vec::new()).unwrap();
        let mut answer = Vec::new();
        self.calls.ask(slot, &message, data, &|| self.ring(), &mut answer, into).ok()?;
        wire::decode(&answer).ok()
    }

    /// What came by the socket.
    pub fn given(&self) -> Option<(Said, Vec<OwnedFd>)> {
        self.channel.receive().ok()?
    }

    pub fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}
