//! One connection to one service.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with, sockopt,
};
use wire::{Calls, Channel, Greeting, Identity, Place, Reply, Request, Said, Welcome};

use crate::given::Given;
use crate::{Error, Result};

/// Where a service listens.
#[derive(Debug)]
pub struct Address {
    dir: PathBuf,
    name: OsString,
}

impl Address {
    /// Of the pool in directory `path`, or of the socket `path`. It stays the same when the process
    /// goes to another directory.
    pub fn of(path: &Path) -> Result<Address> {
        let path = std::path::absolute(path).map_err(Error::io("getcwd"))?;
        if path.is_dir() {
            return Ok(Address { dir: path, name: wire::SOCKET_NAME.into() });
        }
        let none = || Error::NoService(path.clone());
        let name = path.file_name().ok_or_else(none)?;
        let dir = path.parent().ok_or_else(none)?;
        Ok(Address { dir: dir.to_path_buf(), name: name.to_owned() })
    }

    /// Connects, and waits `patience` at most for each thing that the service is to do.
    pub fn connect(&self, patience: Duration) -> Result<Channel> {
        let path = self.dir.join(&self.name);
        let refused = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
                Error::NoService(path.clone())
            }
            ErrorKind::PermissionDenied => Error::NotAllowed(path.clone()),
            _ => Error::io("connect")(error),
        };
        let place = Place::of(&self.dir, self.name.len()).map_err(refused)?;
        let address = SocketAddrUnix::new(place.join(&self.name));
        let address = address.map_err(|errno| refused(errno.into()))?;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)
            .map_err(|errno| Error::io("socket")(errno.into()))?;
        for direction in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            let waits = sockopt::set_socket_timeout(&socket, direction, Some(patience));
            waits.map_err(|errno| Error::io("setsockopt")(errno.into()))?;
        }
        connect(&socket, &address).map_err(|errno| refused(errno.into()))?;
        Ok(Channel::new(socket))
    }
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    pub calls: Calls,
    /// Wakes the service.
    bell: OwnedFd,
    channel: Arc<Channel>,
    pub identity: Identity,
    /// The identity of the pool.
    pub pool: String,
    /// The service knows which calls this process made before.
    pub knows: bool,
    /// A lane that came: how durable it is, and what it is made of.
    pub lane: Given<(), (String, Vec<OwnedFd>)>,
    /// Memory of copies that came.
    pub copies: Given<u64, OwnedFd>,
    /// A read cache that came: its memory, and the service's word.
    pub cache: Given<(), Vec<OwnedFd>>,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The service ended in order, or this process did.
    InOrder,
    /// The service died, or makes room for another one.
    Broken,
}

impl Connection {
    /// Over a channel that was just connected, as who the last service said.
    pub fn attach(
        channel: Arc<Channel>,
        returns: Option<Identity>,
        patience: Duration,
    ) -> Result<Connection> {
        let greeting = Greeting { version: wire::VERSION, returns };
        channel.send(&greeting, &[]).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Error::Lost,
            _ => Error::io("sendmsg")(error),
        })?;
        let said = channel.receive::<Welcome>().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                Error::Refused(format!("it has not answered for {} s", patience.as_secs()))
            }
            _ => Error::io("recvmsg")(error),
        })?;
        // from here on it says something when it ends, and nothing before
        let waits = sockopt::set_socket_timeout(&*channel, sockopt::Timeout::Recv, None);
        waits.map_err(|errno| Error::io("setsockopt")(errno.into()))?;
        let (welcome, descriptors) = said.ok_or(Error::Lost)?;
        let (pool, identity, knows) = match welcome {
            Welcome::Attached { pool, identity, knows, .. } => (pool, identity, knows),
            Welcome::Version { version, program } => {
                return Err(Error::Version { theirs: version, program });
            }
            Welcome::Refused(reason) => return Err(Error::Refused(reason)),
            Welcome::Stranger(reason) => return Err(Error::NotTakenBack(reason)),
        };
        let [memory, bell] = <[OwnedFd; 2]>::try_from(descriptors)
            .map_err(|_| Error::Nonsense("two descriptors come with the welcome"))?;
        let calls = Calls::new(memory.as_fd()).map_err(Error::shm)?;
        let (lane, copies, cache) = Default::default();
        Ok(Connection { calls, bell, channel, identity, pool, knows, lane, copies, cache })
    }

    /// Waits for its end. What the service gives before is kept for who asked for it.
    pub fn await_end(&self) -> End {
        let end = loop {
            match self.channel.receive::<Said>() {
                Ok(Some((Said::Ends, _))) => break End::InOrder,
                Ok(Some((Said::Lane { domain }, files))) => self.lane.put((), (domain, files)),
                Ok(Some((Said::Copy { copy }, files))) => {
                    files.into_iter().for_each(|file| self.copies.put(copy, file));
                }
                Ok(Some((Said::Cache, files))) => self.cache.put((), files),
                _ => break End::Broken,
            }
        };
        self.lane.end();
        self.copies.end();
        self.cache.end();
        end
    }

    /// Asks in this slot, which is the caller's alone.
    pub fn ask(
        &self,
        slot: usize,
        message: &[u8],
        data: &[u8],
        answer: &mut Vec<u8>,
        into: &mut [u8],
    ) -> std::result::Result<usize, wire::Lost> {
        // a bell that rings already is loud enough
        let ring = || {
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        };
        self.calls.ask(slot, message, data, &ring, answer, into)
    }

    /// Asks for what changes nothing, while nobody else asks.
    pub fn ask_alone(&self, request: &Request<'_>) -> Result<Reply> {
        let message = encoded(0, request, Vec::new())?;
        let mut answer = Vec::new();
        let asked = self.ask(0, &message, &[], &mut answer, &mut []);
        asked.map_err(|_| Error::Lost)?;
        wire::decode(&answer).map_err(|_| Error::Nonsense("an answer"))
    }

    /// Ends it.
    pub fn close(&self) {
        let _ = shutdown(self.channel.as_fd(), Shutdown::Both);
    }
}

/// A call's bytes ([`wire::Call`]).
pub fn encoded(count: u64, request: &Request<'_>, room: Vec<u8>) -> Result<Vec<u8>> {
    let message = wire::encode(&(count, request), room).ok();
    let fits = message.filter(|message| message.len() <= wire::MESSAGE_BYTES_MAX);
    fits.ok_or(Error::Nonsense("the call is too long"))
}
