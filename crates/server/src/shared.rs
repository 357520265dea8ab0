//! What the threads of a service share.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use nearside::Pool;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use wire::Provider;

use crate::bounds::Bounds;
use crate::credit::Credit;
use crate::grace::Grace;
use crate::holders::Holders;
use crate::identity::Identities;
use crate::leases::Leases;
use crate::lost::Lost;
use crate::mount::Mounts;
use crate::options::Options;
use crate::session::Session;
use crate::slow::SlowThreads;
use crate::stations::Stations;
use crate::stream::Stream;
use crate::{Error, Result, listener};

/// What its threads share.
#[derive(Debug)]
pub struct Shared {
    pool: Arc<Pool>,
    sessions: RwLock<HashMap<u64, Arc<Session>>>,
    /// Those of them that are none any more, and still have something.
    ending: AtomicUsize,
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
            ending: AtomicUsize::new(0),
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

    /// Another service goes on where this one is about to stop.
    pub fn leave(&self) {
        self.leaves.store(true, Ordering::SeqCst);
    }

    /// The service ends.
    pub fn stop(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        // its threads look at the end, each of them
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        self.grace.cut_off();
    }

    /// How many processes are attached, or were, and still have something.
    pub fn count(&self) -> usize {
        let sessions = self.sessions.read();
        sessions.len() + self.ending.load(Ordering::SeqCst)
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
        // what came by a fabric meanwhile may have rung already, or not at all
        line.ring();
        let (flags, bells) = (line.rings_by(), self.bells_of(&session));
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

    /// The session of this number, which is none of the service's from now on; it counts until it
    /// [has ended](Shared::has_let_go).
    pub fn take_session(&self, number: u64) -> Option<Arc<Session>> {
        let mut sessions = self.sessions.write();
        let session = sessions.remove(&number)?;
        self.ending.fetch_add(1, Ordering::SeqCst);
        Some(session)
    }

    /// A session that was taken has nothing any more.
    pub fn has_let_go(&self) {
        self.ending.fetch_sub(1, Ordering::SeqCst);
    }
}
