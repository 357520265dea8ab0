//! A connection for what a kernel asks of a mount: it goes to the service as it is.

use std::path::Path;
use std::time::Duration;

use wire::{Frame, Greeting, Identity, MountAnswer, MountAsk, NOTICE, Told, Welcome};

use crate::address::Address;
use crate::connection::{End, accepted};
use crate::line::Socket;
use crate::stream::Stream;
use crate::{Error, Result};

/// A connection over which a mount's requests are forwarded.
#[derive(Debug)]
pub struct Forwards {
    stream: Box<Stream>,
    /// Who it is from now on.
    pub identity: Identity,
    /// The identity of the pool.
    pub pool: String,
    /// The service knows which requests were served before.
    pub knows: bool,
    /// What it says of the mount.
    pub answer: MountAnswer,
}

/// Where a mount's requests go.
#[derive(Debug)]
pub struct Origin {
    address: Address,
    /// The directory that is the mount's root.
    pub path: Vec<u8>,
}

impl Origin {
    /// The service and the directory that `near://HOST[:PORT][/PATH]` names; nothing where it is
    /// no such address.
    pub fn of(address: &Path) -> Result<Option<Origin>> {
        let found = Address::with_path(address)?;
        Ok(found.map(|(address, path)| Origin { address, path }))
    }

    /// Connects to the service, as who the last one said.
    ///
    /// # Errors
    /// It is not there, or refuses.
    pub fn attach(
        &self,
        returns: Option<Identity>,
        mount: MountAsk,
        patience: Duration,
    ) -> Result<Forwards> {
        let socket = self.address.connect(None, patience)?;
        let greeting =
            Greeting { version: wire::VERSION, returns, mount: Some(mount), fabric: None };
        let (welcome, _) = socket.greet(&greeting, patience)?;
        let welcome = accepted(welcome)?;
        let Welcome::Attached { pool, identity, knows, mount: Some(answer), .. } = welcome else {
            return Err(Error::Nonsense("the service says nothing of the mount"));
        };
        let Socket::There(stream) = socket else {
            return Err(Error::Nonsense("a mount of another machine is forwarded over a network"));
        };
        Ok(Forwards { stream, identity, pool, knows, answer })
    }
}

impl Forwards {
    /// Sends a request: its slot, what comes first, and the rest.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&self, slot: usize, message: &[u8], data: &[u8]) -> Result<()> {
        self.put(Frame { slot: slot as u16, message, data })
    }

    /// Says something that is no request.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn tell(&self, told: &Told, data: &[u8]) -> Result<()> {
        let message = wire::encode(told, Vec::new()).map_err(|_| Error::Nonsense("no memory"))?;
        self.put(Frame { slot: NOTICE, message: &message, data })
    }

    fn put(&self, frame: Frame<'_>) -> Result<()> {
        self.stream.send(frame).map_err(|_| Error::Lost)
    }

    /// Gives all that comes to `take`, until the end of the connection.
    pub fn hear(&self, take: &mut dyn FnMut(Frame<'_>)) -> End {
        self.stream.hear(take)
    }

    /// Ends it.
    pub fn shut(&self) {
        let _ = self.stream.lose();
    }
}
