//! The service as a whole.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use nearside::Pool;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use wire::{Provider, Said};

use crate::bounds::Bounds;
use crate::credit::Credit;
use crate::door::Door;
use crate::gate::{Gate, Secured};
use crate::grace::{self, Grace};
use crate::holders::{Holders, OTHER_DOOR};
use crate::identity::Identities;
use crate::idleness::Idleness;
use crate::leases::Leases;
use crate::lost::Lost;
use crate::mount::Mounts;
use crate::options::Options;
use crate::remote::Trust;
use crate::rights::Rights;
use crate::session::Session;
use crate::slow::SlowThreads;
use crate::stations::Stations;
use crate::stream::Stream;
use crate::{Error, Result, fabrics, listener, remote, worker};

/// What its threads share.
#[derive(Debug)]
pub struct Shared {
    pool: Arc<Pool>,
    sessions: RwLock<HashMap<u64, Arc<Session>>>,
    sessions_max: usize,
    sessions_of_user_max: usize,
    pub lost: Lost,
    /// Memory for what comes over networks.
    pub credit: Arc<Credit<Stream>>,
    number_next: AtomicU64,
    /// Held while somebody becomes a session: nobody is two at a time.
    pub admission: Mutex<()>,
    identities: Arc<Identities>,
    holders: Arc<Holders>,
    leases: Option<Arc<Leases>>,
    mounts: Option<Arc<dyn Mounts>>,
    /// Over which those may go on who come over a network.
    pub fabrics: Vec<Provider>,
    grace: Grace,
    bounds: Bounds,
    pub stations: Stations,
    /// Waits for the ends of processes.
    sockets: OwnedFd,
    /// Rings for ever once the service is to end.
    end: OwnedFd,
    has_ended: AtomicBool,
    /// Another service goes on.
    leaves: AtomicBool,
    /// Threads that serve long calls.
    pub slow: SlowThreads,
    /// Since when no process has been attached; none: there is one.
    pub idle_since: Mutex<Option<Instant>>,
    /// The last one has gone.
    pub idles: Condvar,
}

impl Shared {
    /// Nothing is served so far.
    pub fn new(pool: Arc<Pool>, options: &Options) -> Result<Shared> {
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let identities = Identities::open(options.attached.as_deref())?;
        let awaits = identities.awaits;
        let (holders, left) = Holders::open(options.attached.as_deref(), awaits);
        let grace = Grace::new(awaits, left);
        let leases = options.lanes.as_deref().map(|dir| Leases::new(pool.fs(), dir));
        if let Some(leases) = &leases {
            pool.fs().set_lender(Some(leases.clone()));
        }
        let credit = Credit::new(options.streams_bytes, options.streams_patience);
        let shared = Shared {
            pool,
            leases,
            mounts: options.mounts.clone(),
            fabrics: options.fabrics.clone(),
            sessions: RwLock::default(),
            sessions_max: options.sessions_max,
            sessions_of_user_max: options.sessions_of_user_max,
            lost: Lost::new(options.linger),
            credit: Arc::new(credit.map_err(Error::io("eventfd"))?),
            number_next: AtomicU64::new(1),
            admission: Mutex::default(),
            grace,
            identities: Arc::new(identities),
            holders: Arc::new(holders),
            bounds: Bounds::new(options),
            stations: Stations::new(options.sysfs.as_deref())?,
            sockets: epoll::create(CreateFlags::CLOEXEC).map_err(Error::io("epoll_create"))?,
            end: end.map_err(Error::io("eventfd"))?,
            has_ended: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            slow: SlowThreads::default(),
            idle_since: Mutex::new(Some(Instant::now())),
            idles: Condvar::new(),
        };
        let bells = shared.stations.all().map(|station| &**station.bells());
        for epoll in bells.chain([&shared.sockets]) {
            let data = EventData::new_u64(listener::END);
            let added = epoll::add(epoll, &shared.end, data, EventFlags::IN);
            added.map_err(Error::io("epoll_ctl"))?;
        }
        Ok(shared)
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub fn identities(&self) -> &Arc<Identities> {
        &self.identities
    }

    pub fn holders(&self) -> &Arc<Holders> {
        &self.holders
    }

    pub fn leases(&self) -> Option<&Arc<Leases>> {
        self.leases.as_ref()
    }

    /// What serves mounts of other machines.
    pub fn mounts(&self) -> Option<&dyn Mounts> {
        self.mounts.as_deref()
    }

    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub fn grace(&self) -> &Grace {
        &self.grace
    }

    /// The session of this process, if it is attached.
    pub fn session_of(&self, client: u128) -> Option<Arc<Session>> {
        self.sessions.read().values().find(|session| session.client == client).cloned()
    }

    /// All of them.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.read().values().cloned().collect()
    }

    /// What waits for the session's bell.
    fn bells_of<'s>(&'s self, session: &'s Session) -> &'s OwnedFd {
        session.line.bells().unwrap_or(self.stations.anywhere().bells())
    }

    /// Rings once the service is to end.
    pub fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    pub fn sockets(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Whether nobody is attached.
    pub fn is_idle(&self) -> bool {
        self.sessions.read().is_empty()
    }

    /// Whether no more processes of this user may attach.
    pub fn is_full_for(&self, user: u32) -> bool {
        let sessions = self.sessions.read();
        let is_his = |session: &&Arc<Session>| {
            session.pool.caller().is_some_and(|caller| caller.uid() == user)
        };
        sessions.len() >= self.sessions_max
            || user != 0 && sessions.values().filter(is_his).count() >= self.sessions_of_user_max
    }

    /// A number that no session had.
    pub fn new_number(&self) -> u64 {
        self.number_next.fetch_add(1, Ordering::Relaxed)
    }

    /// The session of this number, if there still is one.
    pub fn session(&self, number: u64) -> Option<Arc<Session>> {
        self.sessions.read().get(&number).cloned()
    }

    /// From now on the session is served.
    pub fn add(&self, session: Arc<Session>) -> std::io::Result<()> {
        let data = EventData::new_u64(session.number);
        self.sessions.write().insert(session.number, session.clone());
        *self.idle_since.lock() = None;
        let line = &session.line;
        let added = epoll::add(&self.sockets, line.socket(), data, line.ends_by());
        let flags = line.rings_by();
        let bells = self.bells_of(&session);
        let added = added.and_then(|()| epoll::add(bells, line.bell(), data, flags));
        // where another service goes on, it comes back there
        let ends = self.has_ended() && !self.leaves.load(Ordering::SeqCst);
        if added.is_err() || ends {
            self.end_session(session.number);
        }
        Ok(added?)
    }

    /// The session's bell is heard from now on.
    pub fn listen_for(&self, session: &Session) {
        let data = EventData::new_u64(session.number);
        loop {
            let flags = session.line.rings_by();
            // an ended session has no bell to hear any more
            let _ = epoll::modify(self.bells_of(session), session.line.bell(), data, flags);
            // an answer that was not taken whole meanwhile changes what rings
            if session.line.rings_by() == flags {
                return;
            }
        }
    }

    /// Nobody waits for its sockets any more.
    pub fn forget_sockets(&self, session: &Session) {
        let _ = epoll::delete(&self.sockets, session.line.socket());
        let _ = epoll::delete(self.bells_of(session), session.line.bell());
    }

    /// Another session goes on with what this one has.
    pub fn replace(&self, last: &Session) {
        self.sessions.write().remove(&last.number);
        self.forget_sockets(last);
    }

    /// The session of this number, which is none of the service's from now on.
    pub fn take_session(&self, number: u64) -> Option<Arc<Session>> {
        self.sessions.write().remove(&number)
    }
}

/// Serves processes until it is dropped, and tells them so then. It does not close the pool.
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Another one goes on.
    has_left: bool,
}

impl Service {
    /// Serves `pool` to whoever comes through this door.
    pub fn start(pool: Arc<Pool>, door: Door, options: &Options) -> Result<Service> {
        listener::take_descriptors();
        let shared = Arc::new(Shared::new(pool, options)?);
        let mut service = Service { shared: shared.clone(), threads: Vec::new(), has_left: false };
        let listening = shared.clone();
        service.spawn("ns-listener", move || listener::run(&listening, &door))?;
        service.await_the_returning(options)?;
        for station in shared.stations.all() {
            for _ in 0..station.workers(options.workers) {
                let (shared, here) = (shared.clone(), station.clone());
                service.spawn(&station.name(), move || worker::run(&shared, &here))?;
            }
        }
        Ok(service)
    }

    /// Serves whoever comes through this door, too, over a network, with these rights.
    /// Nothing is encrypted, and nobody is asked who it is.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen(&mut self, door: TcpListener, rights: Rights) -> Result<()> {
        self.listen_for(door, Trust::Network(rights))
    }

    /// Serves whoever comes through this door, too, over a network, encrypted, by certificates that
    /// both sides show, and with the rights that the access file gives. What the files say holds
    /// from when they change; where they make no sense now nobody is let in until they do.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen_secured(&mut self, door: TcpListener, secured: Secured) -> Result<()> {
        self.listen_for(door, Trust::Certified(Box::new(Gate::new(secured))))
    }

    fn listen_for(&mut self, door: TcpListener, trust: Trust) -> Result<()> {
        door.set_nonblocking(true).map_err(Error::io("listen"))?;
        fabrics::check(&self.shared.fabrics, &door)?;
        let shared = self.shared.clone();
        self.spawn("ns-remote", move || remote::run(&shared, &door, trust))
    }

    /// Sees the grace through, if there is one.
    fn await_the_returning(&mut self, options: &Options) -> Result<()> {
        let keeps_orphans = options.keeps_orphans;
        let end = move |shared: &Shared| {
            let fs = shared.pool.fs();
            let ended = if keeps_orphans { fs.end_returning() } else { fs.end_inheritance() };
            if let Err(error) = ended {
                // they stay on the pool's list, and the next open tries again
                tracing::warn!("files without a name: {error}");
            }
        };
        // before anybody makes a call; or left by a service that ended before it knew who had gone
        let before = self.shared.pool.fs().returning_clients();
        if !self.shared.identities.awaits {
            self.shared.pool.fs().forget_clients(&before);
            end(&self.shared);
            return Ok(());
        }
        if keeps_orphans {
            self.shared.grace.awaits(OTHER_DOOR);
        }
        let times = grace::Times { locks: options.grace_of_locks, all: options.grace };
        let shared = self.shared.clone();
        self.spawn("ns-grace", move || grace::run(&shared, &before, times, end))
    }

    /// The other door, which goes on with what it had, has its locks again.
    pub fn other_door_is_back(&self) {
        self.shared.grace.has_its_locks(OTHER_DOOR);
    }

    /// Stops for a service that goes on in its place, maybe of another program: between two calls.
    /// What processes have open stays so: this process is to end now, as if it were killed, and
    /// then they come back.
    pub fn leave(mut self) {
        self.has_left = true;
        self.shared.leaves.store(true, Ordering::SeqCst);
        self.stop();
        // closed, files without a name would be gone
        std::mem::forget(self.shared.clone());
    }

    fn stop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        // its threads look at the end, each of them
        let _ = rustix::io::write(&self.shared.end, &1u64.to_ne_bytes());
        self.shared.grace.cut_off();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(Error::io("a thread"))?);
        Ok(())
    }

    /// How many processes are attached.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.read().len()
    }

    /// Bytes of pages that processes have mapped and that are there.
    pub fn copied_bytes(&self) -> u64 {
        self.shared.bounds.copies.bytes() + self.shared.bounds.copies_there.bytes()
    }

    /// Bytes of long calls that are coming over networks, and of answers that are not taken.
    pub fn stream_bytes(&self) -> usize {
        self.shared.credit.used()
    }

    /// What tells whether anybody is attached, also after the service has ended.
    pub fn idleness(&self) -> Idleness {
        Idleness::of(self.shared.clone())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        self.stop();
        for session in self.shared.sessions() {
            // one that does not listen hears of it by the end of the connection
            let _ = session.send(&Said::Ends, &[]);
            self.shared.end_session(session.number);
        }
        if self.shared.leases.is_some() {
            self.shared.pool.fs().set_lender(None);
        }
        self.shared.bounds.reigns.as_ref().inspect(|reigns| reigns.end());
        self.shared.holders.end();
        self.shared.identities.end();
        // whoever drops the pool next is the last who has it
        self.shared.slow.wait_for_the_last();
    }
}
