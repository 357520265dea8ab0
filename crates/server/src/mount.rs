//! Mounts of other machines: the requests of their kernels, and whoever answers them.
//!
//! What a request means is above this crate ([`Mounts`]). Here is what each mount has beyond its
//! connections: the answers of its slots, so that a request which comes again is answered from
//! there, and the way to whatever connection it has now.
//!
//! What a request may do that comes again:
//! - its answer may be kept here: short ones are, and so all of those that change or open anything;
//! - else it is served again, and what changes something is looked for in the engine, which knows
//!   what a service before this one did.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nearside::Pool;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use wire::{DATA_BYTES_MAX, MountAsk, MountServer, Notice, Outlet, SLOTS, Taken, Told};

use crate::rights::Rights;
use crate::session::{Session, Turn};
use crate::shared::Shared;

/// Answers up to so many bytes are kept for a request that comes again: the longest of those that
/// change or open something is an entry and an open file.
const KEPT_BYTES_MAX: usize = 160;
/// Bytes of a call's count, before the request.
const COUNT_BYTES: usize = size_of::<u64>();
/// The answer to what no program waits for.
const NOTHING: &[u8] = &[];
/// Bytes that come with a request that is served apart, at most: it may wait, and has no credit.
const APART_BYTES_MAX: usize = 4096;
/// Requests of a mount for locks that wait at most, in the time after a service has died.
const LOCKS_MAX: usize = 16 << 10;

/// Why a connection ends over which something else is said.
const NONSENSE: &str = "it said nothing that makes sense";

/// A request that may have to wait, which came as this message and its data. It has no credit then:
/// one that is longer than any of its kind is cut, and makes no sense.
pub fn joined(message: &[u8], data: &[u8]) -> Vec<u8> {
    [message, &data[..data.len().min(APART_BYTES_MAX)]].concat()
}

/// Has the server hear what a forwarder says by itself: whether that makes sense.
fn makes_sense(server: &dyn MountServer, told: &Told, data: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| server.told(told, data))).unwrap_or(false)
}

/// Makes what serves mounts.
pub trait Mounts: Send + Sync + std::fmt::Debug {
    /// What serves this mount; its answers go to `outlet`.
    ///
    /// # Errors
    /// Why it cannot be had, for the one who mounts.
    fn begin(
        &self,
        of: MountOf<'_>,
        outlet: Arc<dyn Outlet>,
    ) -> Result<Box<dyn MountServer>, String>;
}

/// Whose mount it is, and of what.
#[derive(Clone, Copy, Debug)]
pub struct MountOf<'m> {
    /// The pool, as the session may use it.
    pub pool: &'m Pool,
    /// Who it is among all that ever were: it is in the numbers of its changes.
    pub client: u128,
    /// What it asked for.
    pub ask: &'m MountAsk,
    /// What it may do.
    pub rights: &'m Rights,
    /// Its kernel is to know inodes by names that are made with this key, and by no others: it may
    /// have a part of the pool only.
    pub names: Option<[u8; 16]>,
}

/// A mount, whatever its connections.
#[derive(Debug)]
pub struct Mounted {
    /// None: it has ended.
    server: RwLock<Option<Arc<dyn MountServer>>>,
    /// It was told all that it has to know.
    is_told: AtomicBool,
    slots: Arc<Slots>,
    /// What is said of locks and waits for others to be back, in its order.
    held_back: Mutex<VecDeque<(Told, Vec<u8>)>>,
}

/// What its slots have, and where it is connected.
#[derive(Debug, Default)]
struct Slots {
    session: RwLock<Weak<Session>>,
    /// The other side has begun, and knows what it is told from now on.
    has_begun: AtomicBool,
    slots: [Mutex<Slot>; SLOTS],
}

/// A request that is served, or was.
#[derive(Debug, Default)]
struct Slot {
    unique: u64,
    /// It is not answered so far.
    taken: Option<Taken>,
    /// Its answer, if that is short.
    kept: Option<(i32, Vec<u8>)>,
}

impl Slot {
    /// The call of this request, if it is not answered so far.
    fn take(&mut self, unique: u64) -> Option<Taken> {
        if self.unique == unique { self.taken.take() } else { None }
    }
}

impl Outlet for Slots {
    fn answer(&self, unique: u64, errno: i32, parts: &[&[u8]]) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let number = fs::RequestId { client: 0, sequence: unique }.slot().ok_or_else(gone)?.0;
        let mut slot = self.slots.get(usize::from(number)).ok_or_else(gone)?.lock();
        let taken = slot.take(unique).ok_or_else(gone)?;
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let joined = if parts.len() > 1 { parts.concat() } else { Vec::new() };
        let data = if parts.len() > 1 { &joined } else { parts.first().copied().unwrap_or(&[]) };
        slot.kept = (bytes <= KEPT_BYTES_MAX).then(|| (errno, data.to_vec()));
        drop(slot);
        if let Some(session) = self.session.read().upgrade() {
            session.line.answer(taken, &errno.to_le_bytes(), data);
        }
        Ok(())
    }

    fn say(&self, notice: Notice, data: &[u8]) {
        if !self.has_begun.load(Ordering::SeqCst) {
            return;
        }
        let Some(session) = self.session.read().upgrade() else { return };
        if data.len() > DATA_BYTES_MAX {
            return session.break_off("what it is to be told is too long");
        }
        session.line.notice(&wire::encode(&notice, Vec::new()).unwrap_or_default(), data);
    }
}

impl Mounted {
    /// What serves the mount that somebody asks for.
    pub fn begin(mounts: &dyn Mounts, of: MountOf<'_>) -> Result<Arc<Mounted>, String> {
        let slots = Arc::<Slots>::default();
        let server = mounts.begin(of, slots.clone())?;
        let (server, is_told) = (RwLock::new(Some(server.into())), AtomicBool::new(false));
        Ok(Arc::new(Mounted { server, is_told, slots, held_back: Mutex::default() }))
    }

    /// Whether it has to be told what is open and locked.
    pub fn is_new(&self) -> bool {
        !self.is_told.load(Ordering::SeqCst)
    }

    /// From now on it is connected there.
    pub fn connected(&self, session: &Arc<Session>) {
        self.slots.has_begun.store(false, Ordering::SeqCst);
        *self.slots.session.write() = Arc::downgrade(session);
    }

    /// It ends, when nothing of it is served any more.
    pub fn end(&self) {
        let server = self.server.write().take();
        drop((server, std::mem::take(&mut *self.held_back.lock())));
    }

    /// What is said of locks waits until those who had some are back: who gave up a request that
    /// waits says so behind it. `None`: too much waits.
    fn holds_back(self: &Arc<Self>, shared: &Shared, told: &Told, data: &[u8]) -> Option<bool> {
        let mut held_back = self.held_back.lock();
        let is_first = held_back.is_empty();
        if is_first && (*told != Told::Lock || shared.grace().locks_are_free()) {
            return Some(false);
        }
        if held_back.len() >= LOCKS_MAX {
            return None;
        }
        // what is said of a lock is short, and nothing else comes with data that matters
        let data = if *told == Told::Lock { data.to_vec() } else { Vec::new() };
        held_back.push_back((told.clone(), data));
        drop(held_back);
        if is_first {
            let own = Arc::downgrade(self);
            let go_on = move || own.upgrade().iter().for_each(|own| own.say_held_back());
            shared.grace().when_locks_are_free(Box::new(go_on));
        }
        Some(true)
    }

    /// Says what was held back. What comes meanwhile waits, and is said behind.
    fn say_held_back(&self) {
        let Some(server) = self.server() else { return };
        let mut held_back = self.held_back.lock();
        while let Some((told, data)) = held_back.pop_front() {
            if !makes_sense(&*server, &told, &data)
                && let Some(session) = self.slots.session.read().upgrade()
            {
                session.break_off(NONSENSE);
            }
        }
    }

    fn server(&self) -> Option<Arc<dyn MountServer>> {
        self.server.read().clone()
    }

    /// The forwarder says something by itself.
    pub fn told(self: &Arc<Mounted>, shared: &Arc<Shared>, (message, data): (&[u8], &[u8])) {
        let Some(session) = self.slots.session.read().upgrade() else { return };
        let told = wire::decode::<Told>(message).ok();
        if told == Some(Told::Ends) {
            shared.grace().has_its_locks(session.client);
            return shared.end_session(session.number);
        }
        let Some(server) = self.server() else { return };
        let Some(told) = told else { return session.break_off(NONSENSE) };
        if told == Told::Begin {
            self.slots.has_begun.store(true, Ordering::SeqCst);
            // those that it says it has among them
            session.has_locks();
        }
        let takes_lock = server.takes_lock(&told, data);
        if takes_lock || matches!(told, Told::Interrupt(_)) {
            match self.holds_back(shared, &told, data) {
                None => {
                    return session.break_off("it asks for more locks than may wait for others");
                }
                Some(true) if takes_lock => return,
                // what is given up may not be held back
                Some(_) => {}
            }
        }
        match makes_sense(&*server, &told, data) {
            true if told == Told::Begin => {
                self.is_told.store(true, Ordering::SeqCst);
                shared.grace().has_its_locks(session.client);
            }
            true => {}
            false => session.break_off(NONSENSE),
        }
    }

    /// Whether others should not wait for a request, which came as this message.
    pub fn may_take_long(&self, message: &[u8]) -> bool {
        let request = message.get(COUNT_BYTES..).unwrap_or_default();
        self.server().is_some_and(|server| server.may_take_long(request))
    }

    /// Serves a request, which came as this message and its data.
    pub fn serve(&self, session: &Session, taken: Taken, message: &[u8], data: &[u8]) {
        let refuse = |errno: i32| session.line.answer(taken, &errno.to_le_bytes(), &[]);
        let Some((count, head)) = message.split_first_chunk::<COUNT_BYTES>() else {
            return refuse(Errno::INVAL.raw_os_error());
        };
        let (unique, again) = match session.turn(taken.slot(), u64::from_le_bytes(*count)) {
            Turn::Next(id) => (id.sequence, false),
            Turn::Again(id) => (id.sequence, true),
            Turn::Past => return refuse(Errno::INVAL.raw_os_error()),
        };
        let mut slot = self.slots.slots[taken.slot()].lock();
        if again
            && slot.unique == unique
            && let Some((errno, bytes)) = &slot.kept
        {
            return session.line.answer(taken, &errno.to_le_bytes(), bytes);
        }
        *slot = Slot { unique, taken: Some(taken), kept: None };
        drop(slot);
        let mut request = [head, data].concat();
        if let Some(server) = self.server() {
            let serve = || server.serve(unique, again, &mut request);
            if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                tracing::error!(unique, "panic while serving a mount (please report it)");
            }
        }
        if session.has_ended() {
            // it was forgotten before this was made, perhaps
            let id = fs::RequestId { client: session.client, sequence: unique };
            session.pool.fs().acknowledge(id);
        }
        let mut slot = self.slots.slots[taken.slot()].lock();
        let left = slot.take(unique);
        drop(slot);
        if let Some(taken) = left {
            session.line.answer(taken, NOTHING, &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_is_short_whatever_came() {
        assert_eq!(joined(b"head", b"data"), b"headdata");
        assert_eq!(joined(&[1; 40], &[2; DATA_BYTES_MAX]).len(), 40 + APART_BYTES_MAX);
    }
}
