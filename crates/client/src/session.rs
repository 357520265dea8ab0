//! One attachment to a pool, over the ends of its services.
//!
//! A thread waits for the end of the connection (`returns.rs`). When the service has died, or made
//! room for another one, it attaches to the next as the same process, and has it open what was
//! open; all calls wait for that. Those that were asked and not answered are sent again, each in
//! its slot and with its number, so that the service knows which of them were made.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fs::Process;
use parking_lot::{Mutex, RwLock};
use wire::{Reply, Request, SLOTS, Slot, Slots};

use crate::address::Address;
use crate::connection::{Connection, encoded};
use crate::copies::Copies;
use crate::folder::{Folder, Wakes};
use crate::lane::{ARRIVES as LANE_ARRIVES, LaneState, OwnLane};
use crate::leases::FileLeases;
use crate::line::Socket;
use crate::opened::Opened;
use crate::read_cache::ReadCache;
use crate::returns::watched;
use crate::{Error, Result};

/// Longest time that a service may take to answer: another one may be about to follow it, and
/// recover the pool.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Pause between two attempts to attach.
pub const PAUSE: Duration = Duration::from_millis(5);

/// How a process is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long calls wait for the next service, when one has died or is replaced; then they fail.
    /// Nothing is waited for where a service ends in order.
    pub away_max: Duration,
    /// The directory of what says who this program is to a service on a network, and which one it
    /// believes: `ca.pem`, `cert.pem` and `key.pem`, which are read whenever it connects. None: the
    /// one that `NEARSIDE_CREDENTIALS` names, or the first that is there of `nearside/credentials`
    /// in `$XDG_CONFIG_HOME` or `~/.config`, and `/etc/nearside/credentials`.
    pub credentials: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options { away_max: ANSWER_MAX, credentials: None }
    }
}

/// One attachment to a pool.
#[derive(Debug)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    /// Waits for the ends of services.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Has the lane folded, where there is one.
    folder: Mutex<Option<Folder>>,
    process: Process,
    pool: String,
}

/// What the calls and the thread share.
#[derive(Debug)]
pub struct Shared {
    pub address: Address,
    pub options: Options,
    pub slots: Slots,
    /// Calls that each slot has had.
    pub counts: [AtomicU64; SLOTS],
    /// Held for reading by who asks, until what was answered is noted; for writing while there is
    /// no service.
    pub state: RwLock<State>,
    pub opened: Mutex<Opened>,
    /// The lane, if there is one.
    pub lane: Mutex<LaneState>,
    pub copies: Copies,
    pub cache: ReadCache,
    /// Numbers that were given.
    pub numbers: AtomicU64,
    /// What is leased, by file.
    pub leases: Mutex<HashMap<u64, Weak<FileLeases>>>,
    /// What the thread waits for.
    pub socket: Mutex<Option<Arc<Socket>>>,
    pub is_dropped: AtomicBool,
}

#[derive(Debug)]
pub enum State {
    Attached(Attachment),
    /// No service, and none is waited for.
    Gone(Error),
}

/// An attachment to one service.
#[derive(Debug)]
pub struct Attachment {
    pub connection: Arc<Connection>,
    /// Its number among those of this session.
    pub number: u64,
    /// The last one of a service that did not know which calls had been made.
    pub unknown: u64,
}

thread_local! {
    /// Room for a message, kept for the thread's next call.
    static ROOM: Cell<(Vec<u8>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

impl Session {
    /// Attaches to the service of the pool in directory `path`, or the one that listens at the
    /// socket `path`.
    pub fn attach(path: &Path) -> Result<Session> {
        Session::attach_with(path, &Options::default())
    }

    /// The same, as `options` say.
    pub fn attach_with(path: &Path, options: &Options) -> Result<Session> {
        let address = Address::of(path)?;
        let (socket, connection) = first(&address, options)?;
        let pool = connection.pool.clone();
        let (connection, watcher) = watched(connection)?;
        let shared = Arc::new(Shared {
            address,
            options: options.clone(),
            slots: Slots::default(),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            state: RwLock::new(State::Attached(Attachment { connection, number: 1, unknown: 0 })),
            opened: Mutex::default(),
            lane: Mutex::default(),
            copies: Copies::default(),
            cache: ReadCache::default(),
            numbers: AtomicU64::new(0),
            leases: Mutex::default(),
            socket: Mutex::new(Some(socket)),
            is_dropped: AtomicBool::new(false),
        });
        let theirs = shared.clone();
        let thread = spawned("ns-attached", move || theirs.run(watcher))?;
        let thread = Mutex::new(Some(thread));
        Ok(Session { shared, thread, folder: Mutex::default(), process: Process::here(), pool })
    }

    /// The process that attached. A forked child has no part in it.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The identity of the pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Whether the service is on a network.
    pub fn is_remote(&self) -> bool {
        matches!(self.shared.address, Address::There { .. })
    }

    /// How much memory copies take, bytes, from the next one on: where it is this process's.
    pub fn set_copies_bytes(&self, bytes: u64) {
        self.shared.copies.set_memory_bytes(bytes);
    }

    /// A number that this attachment has not given before: of a copy, or of what is staged.
    pub fn number(&self) -> u64 {
        // ordering: each number once
        self.shared.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The lane of this process, made where there is none. `None`: there are no lanes now.
    pub(crate) fn lane(&self) -> Option<Arc<OwnLane>> {
        let mut state = self.shared.lane.lock();
        let number = match &*self.shared.state.read() {
            State::Attached(attachment) => attachment.number,
            State::Gone(_) => return None,
        };
        state.get(number, || self.new_lane(number))
    }

    fn new_lane(&self, number: u64) -> Option<OwnLane> {
        let connection = uuid::Uuid::new_v4().as_u128();
        if self.ask(&Request::Lane { connection }, &[], &mut []).ok()?.0 != Reply::Done {
            return None;
        }
        let state = self.shared.state.read();
        let State::Attached(attachment) = &*state else { return None };
        let given = attachment.connection.lane.take(&(), LANE_ARRIVES)?;
        let wakes = self.folder().inspect_err(|error| tracing::info!("no lane: {error}")).ok()?;
        let lane = OwnLane::new(given, &self.pool, connection, wakes);
        let is_same = attachment.number == number;
        lane.inspect_err(|error| tracing::info!("no lane: {error}")).ok().filter(|_| is_same)
    }

    /// What has the lane folded, started where it is not.
    fn folder(&self) -> Result<Wakes> {
        let mut folder = self.folder.lock();
        if let Some(folder) = &*folder {
            return Ok(folder.wakes());
        }
        let shared = self.shared.clone();
        let started = Folder::start(move || shared.call(&Request::Fold, &[], &mut []).map(drop))?;
        Ok(folder.insert(started).wakes())
    }

    /// What this process has leased of the file with inode number `ino`.
    pub fn leases_of(&self, ino: u64) -> Arc<FileLeases> {
        let mut leases = self.shared.leases.lock();
        if let Some(own) = leases.get(&ino).and_then(Weak::upgrade) {
            return own;
        }
        if leases.len() >= 2 * leases.values().filter(|own| own.strong_count() > 0).count() + 16 {
            leases.retain(|_, own| own.strong_count() > 0);
        }
        let own = Arc::new(FileLeases::new(ino));
        leases.insert(ino, Arc::downgrade(&own));
        own
    }

    /// Asks the service: with `data`, where the answer's data goes to the beginning of `into`.
    /// Returns the answer and how much data came. Where the service dies meanwhile, the next one
    /// answers; what changes something is made once. `into` lies in no region.
    ///
    /// # Errors
    /// None follows it in time; or it follows so late, or knows so little, that it cannot say
    /// whether this call was made.
    pub fn ask(
        &self,
        request: &Request<'_>,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize)> {
        self.check_process()?;
        // no page of a region is waited for while the call holds what brings it
        self.shared.call(request, &fs::outside(data), into)
    }

    /// An error in a forked child.
    pub(crate) fn check_process(&self) -> Result<()> {
        match self.process.is_here() {
            true => Ok(()),
            false => Err(Error::Forked { owner: self.process.id() }),
        }
    }
}

impl Shared {
    pub fn call(
        &self,
        request: &Request<'_>,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize)> {
        self.call_in(self.slots.take(), request, data, into)
    }

    /// Asks in this slot.
    pub fn call_in(
        &self,
        slot: Slot<'_>,
        request: &Request<'_>,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize)> {
        let answered = |_: &Connection, reply, len| Ok(Some((reply, len)));
        self.call_then(slot, (request, data), into, answered)
    }

    /// Asks in this slot, and has `then` look at the answer before there is another service. Asks
    /// again where it gives nothing: what it looked for went with the service.
    pub fn call_then<T>(
        &self,
        slot: Slot<'_>,
        (request, data): (&Request<'_>, &[u8]),
        into: &mut [u8],
        then: impl FnMut(&Connection, Reply, usize) -> Result<Option<T>>,
    ) -> Result<T> {
        let (mut message, mut answer) = ROOM.take();
        message.clear();
        // ordering: the slot is this call's alone, and whose it is next comes after
        let count = self.counts[slot.number()].fetch_add(1, Ordering::Relaxed) + 1;
        let message = encoded(count, request, message)?;
        let asked = (request, &message[..], data);
        let outcome = self.ask(None, slot.number(), asked, &mut answer, into, then);
        drop(slot);
        ROOM.set((message, answer));
        outcome
    }

    /// `first`: it was asked before, over this attachment.
    pub(crate) fn ask<T>(
        &self,
        mut first: Option<u64>,
        slot: usize,
        (request, message, data): (&Request<'_>, &[u8], &[u8]),
        answer: &mut Vec<u8>,
        into: &mut [u8],
        mut then: impl FnMut(&Connection, Reply, usize) -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            let state = self.state.read();
            let attachment = match &*state {
                State::Attached(attachment) => attachment,
                State::Gone(error) => return Err(error.clone()),
            };
            let first = *first.get_or_insert(attachment.number);
            if first < attachment.unknown && request.changes() {
                return Err(Error::Lost);
            }
            let asked = attachment.connection.ask(slot, message, data, answer, into);
            // lost: the state changes as soon as nobody holds it
            let Ok(len) = asked else { continue };
            let reply = wire::decode(answer).map_err(|_| Error::Nonsense("an answer"))?;
            if is_of_what_is_open(request) {
                self.opened.lock().note(request, &reply);
            }
            if let Some(outcome) = then(&attachment.connection, reply, len)? {
                return Ok(outcome);
            }
        }
    }
}

/// Attaches as somebody new.
fn first(address: &Address, options: &Options) -> Result<(Arc<Socket>, Connection)> {
    let start = Instant::now();
    loop {
        let attached = address.connect(options.credentials.as_deref(), ANSWER_MAX).and_then(|it| {
            let socket = Arc::new(it);
            let connection = Connection::attach(&socket, None, ANSWER_MAX)?;
            Ok((socket, connection))
        });
        match attached {
            // it died, or ended, just then: the next one is there, or none
            Err(Error::Lost) if start.elapsed() < ANSWER_MAX => std::thread::sleep(PAUSE),
            attached => return attached,
        }
    }
}

/// Whether its answer says something about what is open.
fn is_of_what_is_open(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Open(..) | Request::OpenDirectory(_) | Request::Close(_) | Request::Lock { .. }
    )
}

pub fn spawned<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(Error::io("a thread"))
}

impl Drop for Session {
    fn drop(&mut self) {
        let (thread, folder) = (self.thread.get_mut().take(), self.folder.get_mut().take());
        if !self.process.is_here() {
            // the parent's: its threads are not here, and the socket stays open there
            if let Some(folder) = folder {
                folder.forget();
            }
            return std::mem::forget(thread);
        }
        self.shared.is_dropped.store(true, Ordering::SeqCst);
        if let Some(socket) = self.shared.socket.lock().take() {
            socket.shut();
        }
        if let Some(thread) = thread {
            drop(thread.join());
        }
        // what it asks has been answered, or never will be
        drop(folder);
    }
}
