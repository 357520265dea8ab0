//! What a process asks through: memory that it shares with the service, or a stream.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown, sockopt};
use wire::{Calls, Channel, Greeting, Lost, Said, Welcome};

use crate::connection::End;
use crate::kept::Kept;
use crate::stream::Stream;
use crate::{Error, Result};

/// A socket that is connected to a service.
#[derive(Debug)]
pub enum Socket {
    /// Of this machine.
    Here(Channel),
    /// On a network.
    There(Box<Stream>),
}

/// What a process asks through.
#[derive(Debug)]
pub struct Line {
    socket: Arc<Socket>,
    /// Of a service of this machine: memory for calls, and what wakes the service.
    memory: Option<(Calls, OwnedFd)>,
}

impl Socket {
    /// Says the first words, and hears what the service says to them.
    pub fn greet(
        &self,
        greeting: &Greeting,
        patience: Duration,
    ) -> Result<(Welcome, Vec<OwnedFd>)> {
        let failed = |call| {
            move |error: std::io::Error| match error.kind() {
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Error::Lost,
                ErrorKind::WouldBlock => {
                    Error::Refused(format!("it has not answered for {} s", patience.as_secs()))
                }
                _ => Error::io(call)(error),
            }
        };
        let said = match self {
            Socket::Here(channel) => {
                channel.send(greeting, &[]).map_err(failed("sendmsg"))?;
                let said = channel.receive::<Welcome>().map_err(failed("recvmsg"))?;
                // from here on it says something when it ends, and nothing before
                let waits = sockopt::set_socket_timeout(channel, sockopt::Timeout::Recv, None);
                waits.map_err(|errno| Error::io("setsockopt")(errno.into()))?;
                said
            }
            Socket::There(stream) => {
                let said = stream.greet(greeting, patience).map_err(failed("connecting"))?;
                if let (None, Some(error)) = (&said, stream.distrust()) {
                    return Err(error.clone());
                }
                said.map(|welcome| (welcome, Vec::new()))
            }
        };
        said.ok_or(Error::Lost)
    }

    /// Ends it.
    pub fn shut(&self) {
        match self {
            Socket::Here(channel) => drop(shutdown(channel.as_fd(), Shutdown::Both)),
            Socket::There(stream) => stream.shut(),
        }
    }
}

impl Line {
    /// With what came with the welcome.
    pub fn over(socket: Arc<Socket>, descriptors: Vec<OwnedFd>) -> Result<Line> {
        if let Socket::There(_) = &*socket {
            return Ok(Line { socket, memory: None });
        }
        let [memory, bell] = <[OwnedFd; 2]>::try_from(descriptors)
            .map_err(|_| Error::Nonsense("two descriptors come with the welcome"))?;
        let calls = Calls::new(memory.as_fd()).map_err(Error::shm)?;
        Ok(Line { socket, memory: Some((calls, bell)) })
    }

    /// Waits for its end; what the service says before is told.
    pub fn await_end(&self, tell: &mut dyn FnMut(Said, Vec<OwnedFd>)) -> End {
        match &*self.socket {
            Socket::There(stream) => stream.await_end(),
            Socket::Here(channel) => loop {
                match channel.receive::<Said>() {
                    Ok(Some((Said::Ends, _))) => break End::InOrder,
                    Ok(Some((said, files))) => tell(said, files),
                    _ => break End::Broken,
                }
            },
        }
    }

    /// Asks in this slot, which is the caller's alone.
    pub fn ask(
        &self,
        slot: usize,
        (message, data): (&[u8], &[u8]),
        answer: &mut Vec<u8>,
        into: &mut [u8],
    ) -> std::result::Result<usize, Lost> {
        match (&*self.socket, &self.memory) {
            (Socket::There(stream), _) => stream.ask(slot, (message, data), answer, into),
            (Socket::Here(_), Some((calls, bell))) => {
                // a bell that rings already is loud enough
                let ring = || {
                    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
                };
                calls.ask(slot, message, data, &ring, answer, into)
            }
            (Socket::Here(_), None) => Err(Lost),
        }
    }

    /// Asks in this slot, which is the caller's alone, over a network, and waits for nothing.
    pub fn begin(&self, slot: usize, asked: (&[u8], &[u8])) -> std::result::Result<(), Lost> {
        match &*self.socket {
            Socket::There(stream) => stream.begin(slot, asked),
            Socket::Here(_) => Err(Lost),
        }
    }

    /// Waits for the answer to what was begun in this slot.
    pub fn await_answer(&self, slot: usize) -> std::result::Result<Vec<u8>, Lost> {
        match &*self.socket {
            Socket::There(stream) => stream.await_answer_to_begun(slot),
            Socket::Here(_) => Err(Lost),
        }
    }

    /// The service has gone: ends all calls, those to come as well.
    pub fn lose(&self) {
        match (&*self.socket, &self.memory) {
            (Socket::There(stream), _) => drop(stream.lose()),
            (_, Some((calls, _))) => calls.lose(),
            _ => {}
        }
    }

    /// Copies whose memory is this process's, where the service is on a network.
    pub fn kept(&self) -> Option<&Kept> {
        match &*self.socket {
            Socket::There(stream) => Some(stream.kept()),
            Socket::Here(_) => None,
        }
    }

    /// Ends it.
    pub fn shut(&self) {
        self.socket.shut();
    }
}
