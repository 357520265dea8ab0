//! The service as a whole.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nearside::Pool;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wire::Said;

use crate::door::Door;
use crate::grace::{self, Grace};
use crate::identity::Identities;
use crate::leases::Leases;
use crate::lost::Lost;
use crate::options::Options;
use crate::read_cache::Reigns;
use crate::room::Room;
use crate::session::Session;
use crate::slow::SlowThreads;
use crate::{Error, Result, listener, remote, worker};

/// What bounds the memory of all sessions together.
#[derive(Debug)]
pub struct Bounds {
    /// Of what they have mapped, and of what they have read.
    pub copies: Arc<Room>,
    /// What they have read is cached.
    pub reigns: Option<Arc<Reigns>>,
    /// Bytes of transactions that are longer than a call.
    pub staged: Arc<AtomicUsize>,
}

/// What its threads share.
#[derive(Debug)]
pub struct Shared {
    pool: Arc<Pool>,
    sessions: RwLock<HashMap<u64, Arc<Session>>>,
    sessions_max: usize,
    sessions_of_user_max: usize,
    pub lost: Lost,
    number_next: AtomicU64,
    /// Held while somebody becomes a session: nobody is two at a time.
    pub admission: Mutex<()>,
    identities: Arc<Identities>,
    leases: Option<Arc<Leases>>,
    grace: Grace,
    bounds: Bounds,
    /// Waits for the bells of sessions that nobody looks after.
    bells: Arc<OwnedFd>,
    /// Waits for the ends of processes.
    sockets: OwnedFd,
    /// Rings for ever once the service is to end.
    end: OwnedFd,
    has_ended: AtomicBool,
    /// Threads that serve long calls.
    pub slow: SlowThreads,
    /// Since when no process has been attached; none: there is one.
    idle_since: Mutex<Option<Instant>>,
    /// The last one has gone.
    idles: Condvar,
}

impl Shared {
    fn new(pool: Arc<Pool>, options: &Options) -> Result<Shared> {
        let new = || epoll::create(CreateFlags::CLOEXEC).map_err(Error::io("epoll_create"));
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let identities = Identities::open(options.attached.as_deref())?;
        let leases = options.lanes.as_deref().map(|dir| Leases::new(pool.fs(), dir));
        if let Some(leases) = &leases {
            pool.fs().set_lender(Some(leases.clone()));
        }
        let shared = Shared {
            pool,
            leases,
            sessions: RwLock::default(),
            sessions_max: options.sessions_max,
            sessions_of_user_max: options.sessions_of_user_max,
            lost: Lost::new(options.linger),
            number_next: AtomicU64::new(1),
            admission: Mutex::default(),
            grace: Grace::new(identities.awaits),
            identities: Arc::new(identities),
            bounds: Bounds {
                copies: Room::new(options.copies_bytes),
                reigns: options.lanes.as_deref().map(|dir| Arc::new(Reigns::new(dir))),
                staged: Arc::new(AtomicUsize::new(0)),
            },
            bells: Arc::new(new()?),
            sockets: new()?,
            end: end.map_err(Error::io("eventfd"))?,
            has_ended: AtomicBool::new(false),
            slow: SlowThreads::default(),
            idle_since: Mutex::new(Some(Instant::now())),
            idles: Condvar::new(),
        };
        for epoll in [&*shared.bells, &shared.sockets] {
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

    pub fn leases(&self) -> Option<&Arc<Leases>> {
        self.leases.as_ref()
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

    pub fn bells(&self) -> &Arc<OwnedFd> {
        &self.bells
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
        let added = added.and_then(|()| epoll::add(&self.bells, line.bell(), data, flags));
        if added.is_err() || self.has_ended() {
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
            let _ = epoll::modify(&self.bells, session.line.bell(), data, flags);
            // an answer that was not taken whole meanwhile changes what rings
            if session.line.rings_by() == flags {
                return;
            }
        }
    }

    /// Nobody waits for its sockets any more.
    pub fn forget_sockets(&self, session: &Session) {
        let _ = epoll::delete(&self.sockets, session.line.socket());
        let _ = epoll::delete(&self.bells, session.line.bell());
    }

    /// Another session goes on with what this one has.
    pub fn replace(&self, last: &Session) {
        self.sessions.write().remove(&last.number);
        self.forget_sockets(last);
    }

    /// A process has ended, or said something, which none has to.
    pub fn end_session(&self, number: u64) {
        let Some(session) = self.sessions.write().remove(&number) else { return };
        self.forget_sockets(&session);
        session.end();
        let mut idle_since = self.idle_since.lock();
        if self.sessions.read().is_empty() {
            *idle_since = Some(Instant::now());
            self.idles.notify_all();
        }
    }
}

/// Each session takes some: they are to be as many as this process may have, not the few that it
/// begins with, which one user could use up.
fn take_descriptors() {
    let now = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now }) {
        tracing::info!("few processes can attach: {error}");
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
        take_descriptors();
        let shared = Arc::new(Shared::new(pool, options)?);
        let mut service = Service { shared: shared.clone(), threads: Vec::new(), has_left: false };
        let listening = shared.clone();
        service.spawn("ns-listener", move || listener::run(&listening, &door))?;
        service.await_the_returning(options)?;
        for _ in 0..options.workers {
            let shared = shared.clone();
            service.spawn("ns-service", move || worker::run(&shared))?;
        }
        Ok(service)
    }

    /// Serves whoever comes through this door, too, over a network, as user and group `user`.
    /// Nothing is encrypted, and nobody is asked who it is.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen(&mut self, door: TcpListener, user: (u32, u32)) -> Result<()> {
        door.set_nonblocking(true).map_err(Error::io("listen"))?;
        let shared = self.shared.clone();
        self.spawn("ns-remote", move || remote::run(&shared, &door, user))
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
        if !self.shared.identities.awaits {
            end(&self.shared);
            return Ok(());
        }
        let times = grace::Times { locks: options.grace_of_locks, all: options.grace };
        let shared = self.shared.clone();
        // before anybody makes a call
        let before = shared.pool.fs().returning_clients();
        self.spawn("ns-grace", move || grace::run(&shared, &before, times, end))
    }

    /// Stops for a service that goes on in its place, maybe of another program: between two calls.
    /// What processes have open stays so: this process is to end now, as if it were killed, and
    /// then they come back.
    pub fn leave(mut self) {
        self.has_left = true;
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
        self.shared.bounds.copies.bytes()
    }

    /// What tells whether anybody is attached, also after the service has ended.
    pub fn idleness(&self) -> Idleness {
        Idleness(self.shared.clone())
    }
}

/// Tells whether anybody is attached to a service.
#[derive(Debug)]
pub struct Idleness(Arc<Shared>);

impl Idleness {
    /// Waits until no process has been attached for so long.
    pub fn wait(&self, time: Duration) {
        let mut idle_since = self.0.idle_since.lock();
        loop {
            let left = idle_since.map(|since| time.saturating_sub(since.elapsed()));
            match left {
                Some(Duration::ZERO) => return,
                Some(left) => drop(self.0.idles.wait_for(&mut idle_since, left)),
                None => self.0.idles.wait(&mut idle_since),
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        self.stop();
        let sessions: Vec<_> = self.shared.sessions.read().values().cloned().collect();
        for session in sessions {
            // one that does not listen hears of it by the end of the connection
            let _ = session.send(&Said::Ends, &[]);
            self.shared.end_session(session.number);
        }
        if self.shared.leases.is_some() {
            self.shared.pool.fs().set_lender(None);
        }
        self.shared.bounds.reigns.as_ref().inspect(|reigns| reigns.end());
        self.shared.identities.end();
        // whoever drops the pool next is the last who has it
        self.shared.slow.wait_for_the_last();
    }
}
