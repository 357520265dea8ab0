//! One connection to one service.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use wire::{Greeting, Identity, Reply, Request, Said, Welcome};

use crate::given::Given;
use crate::line::{Line, Socket};
use crate::session::ANSWER_MAX;
use crate::{Error, Result};

/// One connection.
#[derive(Debug)]
pub struct Connection {
    line: Line,
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
    /// Over a line that was just connected, as who the last service said.
    pub fn attach(
        line: &Arc<Socket>,
        returns: Option<Identity>,
        patience: Duration,
    ) -> Result<Connection> {
        let greeting = Greeting { version: wire::VERSION, returns, mount: None, fabric: None };
        let (welcome, descriptors) = line.greet(&greeting, patience)?;
        let Welcome::Attached { pool, identity, knows, .. } = accepted(welcome)? else {
            return Err(Error::Nonsense("the welcome"));
        };
        let line = Line::over(line.clone(), descriptors)?;
        let (lane, copies, cache) = Default::default();
        Ok(Connection { line, identity, pool, knows, lane, copies, cache })
    }

    /// Waits for its end. What the service gives before is kept for who asked for it.
    pub fn await_end(&self) -> End {
        let end = self.line.await_end(&mut |said, files| match said {
            Said::Lane { domain } => self.lane.put((), (domain, files)),
            Said::Copy { copy } => files.into_iter().for_each(|file| self.copies.put(copy, file)),
            Said::Cache => self.cache.put((), files),
            Said::Ends => {}
        });
        self.lane.end();
        self.copies.end();
        self.cache.end();
        end
    }

    /// The service has gone: ends all calls, those to come as well.
    pub fn lose(&self) {
        self.line.lose();
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
        self.line.ask(slot, (message, data), answer, into)
    }

    /// Asks in this slot, which is the caller's alone, over a network, and waits for nothing.
    pub fn begin(
        &self,
        slot: usize,
        message: &[u8],
        data: &[u8],
    ) -> std::result::Result<(), wire::Lost> {
        self.line.begin(slot, (message, data))
    }

    /// Waits for the answer to what was begun in this slot.
    pub fn await_answer(&self, slot: usize) -> std::result::Result<Vec<u8>, wire::Lost> {
        self.line.await_answer(slot)
    }

    /// Asks for what changes nothing, while nobody else asks.
    pub fn ask_alone(&self, request: &Request<'_>) -> Result<Reply> {
        let message = encoded(0, request, Vec::new())?;
        let mut answer = Vec::new();
        let asked = self.ask(0, &message, &[], &mut answer, &mut []);
        asked.map_err(|_| Error::Lost)?;
        wire::decode(&answer).map_err(|_| Error::Nonsense("an answer"))
    }

    /// The memory of a copy that the service says to have made, of so many bytes. Where it is this
    /// process's, all of that together is `memory_bytes` at most.
    pub fn memory_of(&self, copy: u64, bytes: u64, memory_bytes: u64) -> Result<OwnedFd> {
        match self.line.kept() {
            Some(kept) => kept.make(copy, bytes, memory_bytes),
            None => self.copies.take(&copy, ANSWER_MAX).ok_or(Error::Lost),
        }
    }

    /// Nobody loads from a copy any more.
    pub fn forget_copy(&self, copy: u64) {
        self.line.kept().inspect(|kept| kept.remove(copy));
    }

    /// Ends it.
    pub fn close(&self) {
        self.line.shut();
    }
}

/// A welcome that lets somebody in.
pub fn accepted(welcome: Welcome) -> Result<Welcome> {
    match welcome {
        Welcome::Attached { .. } | Welcome::Fabric(_) => Ok(welcome),
        Welcome::Version { version, program } => Err(Error::Version { theirs: version, program }),
        Welcome::Refused(reason) => Err(Error::Refused(reason)),
        Welcome::Stranger(reason) => Err(Error::NotTakenBack(reason)),
    }
}

/// A call's bytes ([`wire::Call`]).
pub fn encoded(count: u64, request: &Request<'_>, room: Vec<u8>) -> Result<Vec<u8>> {
    let message = wire::encode(&(count, request), room).ok();
    let fits = message.filter(|message| message.len() <= wire::MESSAGE_BYTES_MAX);
    fits.ok_or(Error::Nonsense("the call is too long"))
}
