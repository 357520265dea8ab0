//! A mount whose engine another machine has: what the kernel asks goes there, and what is answered
//! comes back.
//!
//! A request goes in the slot in which it was read, with its count, so that it is done once however
//! often it is sent: it is sent again when the connection was lost, or the service died, or this
//! process did and another one goes on. Programs wait meanwhile, up to a limit; then requests fail
//! with EIO, until there is a service again.
//!
//! What the service needs of a mount when it has lost it lies in the connection's state memory: who
//! the mount is, what is open (`opened`), and what is locked (`locks`).

mod attach;
mod link;
mod locks;
mod opened;
mod pending;

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use client::Origin;
use parking_lot::Mutex;

use crate::kernel_pages::Aside;
use crate::wire::{Channel, Operation, Reply, Request};
use crate::{Connected, Error, Result, Server, Wishes};
use attach::Who;
use link::Links;
use locks::Locks;
use opened::Opened;
use pending::{Opens, Pending};

/// Threads that forward requests, at most: each has a slot of the service's.
pub const FORWARDS_MAX: usize = wire::SLOTS;
/// How long requests wait for a service, where nothing else is said.
pub const AWAY_MAX: Duration = Duration::from_secs(30);

/// Forwards what the kernel asks.
#[derive(Debug)]
pub struct Forwarder {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What its threads share.
#[derive(Debug)]
struct Shared {
    origin: Origin,
    links: Links,
    pending: [Pending; FORWARDS_MAX],
    /// Set when the connection to the kernel stands.
    set: OnceLock<Set>,
}

/// What it has of the connection to the kernel.
#[derive(Debug)]
struct Set {
    channel: Arc<Channel>,
    capabilities: u64,
    who: Who,
    opened: Opened,
    locks: Locks,
    /// Who has the kernel drop pages.
    pages: Aside<(u64, Vec<u8>)>,
    /// Requests that a forwarder before this one was given.
    owed: Vec<u64>,
}

impl Forwarder {
    /// Forwards to this service; requests wait for it so long when it is away.
    pub fn new(origin: Origin, away_max: Duration) -> Forwarder {
        let shared = Shared {
            origin,
            links: Links::new(away_max),
            pending: std::array::from_fn(|_| Pending::default()),
            set: OnceLock::new(),
        };
        Forwarder { shared: Arc::new(shared), thread: Mutex::default() }
    }
}

impl Server for Forwarder {
    fn wishes(&self) -> Wishes {
        Wishes { sole_door: false, locks: true, acls: true }
    }

    fn connected(&self, mut connected: Connected) -> Result<()> {
        let missing = || Error::Takeover("its state has no room for a forwarder");
        let memo = connected.memo.take().ok_or_else(missing)?;
        let locks = connected.locks.take().ok_or_else(missing)?;
        let set = Set {
            channel: connected.channel.clone(),
            capabilities: connected.agreed.0,
            who: Who::open(memo)?,
            opened: Opened::take_over(connected.opened.take().ok_or_else(missing)?),
            locks: Locks::take_over(locks, &connected)?,
            pages: Aside::default(),
            owed: std::mem::take(&mut connected.owed),
        };
        let is_new = set.who.is_nobody();
        // Set once, before any request is read.
        let _ = self.shared.set.set(set);
        // of a new mount it is said at once what is wrong
        let first = if is_new { Some(self.shared.attach(AWAY_MAX)?) } else { None };
        let shared = self.shared.clone();
        let run = move || shared.run(first);
        let thread = std::thread::Builder::new().name("ns-forward".to_owned()).spawn(run);
        *self.thread.lock() = Some(thread.map_err(Error::Session)?);
        Ok(())
    }

    fn serve(&self, request: &Request<'_>, reply: Reply<'_>) {
        let Some(set) = self.shared.set.get() else { return reply.error(libc::EIO) };
        match &request.operation {
            Operation::Setlk { lock, wait } => {
                self.shared.lock(set, (&request.head, lock, *wait), reply);
            }
            Operation::Interrupt { unique } => match set.locks.interrupt(*unique) {
                true => reply.nothing(),
                false => reply.error(libc::EAGAIN),
            },
            Operation::NotifyReply => reply.nothing(),
            // the next service knows nothing that could be forgotten
            Operation::Forget { .. } | Operation::BatchForget(_)
                if self.shared.links.now().is_none() =>
            {
                reply.nothing();
            }
            Operation::Destroy => reply.done(),
            _ => self.shared.forward(request, reply),
        }
    }

    fn answered(&self, unique: u64) {
        self.shared.set.get().inspect(|set| set.locks.released(unique));
    }

    fn leaves(&self) {
        self.shared.set.get().inspect(|set| set.locks.leave());
        self.shared.links.leave();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.links.end();
        if let Some(thread) = self.thread.get_mut().take() {
            drop(thread.join());
        }
    }
}

/// What the answer to a request opens, if it opens something.
fn opens(request: &Request<'_>) -> Opens {
    match request.operation {
        Operation::Open { .. } | Operation::Opendir { .. } => Opens::Node(request.head.node),
        Operation::Create { .. } | Operation::Tmpfile { .. } => Opens::New,
        Operation::Release { handle, .. } | Operation::Releasedir { handle } => {
            Opens::Closes(handle)
        }
        _ => Opens::Nothing,
    }
}

/// Whether a request may change something: one of which nobody knows whether it was served is not
/// sent again.
fn changes(request: &Request<'_>) -> bool {
    crate::transport::changes(request)
        || matches!(request.operation, Operation::CopyFileRange { .. })
}
