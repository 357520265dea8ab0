//! The time after a service that did not end in order, in which those who were attached to it come
//! back.
//!
//! Until all who had locks are back nobody else gets one: they say so when they come back, and who
//! is faster would take it from them. Processes of this machine are back at once, or not at all;
//! others are waited for as long as anybody. It is remembered what each of them did last, and files
//! without a name stay. Then who has not come back is forgotten: that is written down first, so
//! that neither this service nor a later one takes him for somebody whose calls it knows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use wire::Taken;

use crate::data::Data;
use crate::holders::Side;
use crate::serve;
use crate::session::Session;
use crate::shared::Shared;

/// A call for a lock that waits: whose, which, and what it says.
type HeldBack = (Arc<Session>, Taken, Vec<u8>);

/// A lock request of a mount that waits.
struct Waiting(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Waiting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Waiting")
    }
}

/// Who may still come back.
#[derive(Debug)]
pub struct Grace {
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Nobody is awaited any more.
    is_over: bool,
    /// Anybody may get locks.
    locks_are_free: bool,
    /// Who has come back.
    returned: HashSet<u128>,
    /// Who had locks, and has not said which. None: that is not known.
    holders: Option<HashMap<u128, Side>>,
    held_back: Vec<HeldBack>,
    /// The same of mounts.
    waiting: Vec<Waiting>,
    /// The service ends.
    is_cut_off: bool,
}

impl State {
    /// Whether it is known that nobody has locks who has not said which.
    fn has_all_locks(&self) -> bool {
        self.holders.as_ref().is_some_and(HashMap::is_empty)
    }
}

impl Grace {
    /// `awaits`: somebody may come back, and of those these had locks.
    pub fn new(awaits: bool, holders: Option<HashMap<u128, Side>>) -> Grace {
        let (is_over, locks_are_free) = (!awaits, !awaits);
        let state = State { is_over, locks_are_free, holders, ..State::default() };
        Grace { state: Mutex::new(state), turned: Condvar::new() }
    }

    /// A process comes back: whether it is known what it did, as far as that is remembered.
    pub fn welcome(&self, client: u128, is_remembered: bool) -> bool {
        let mut state = self.state.lock();
        // what it does from now on is not to be forgotten with what it did before
        state.returned.insert(client);
        !state.is_over && is_remembered
    }

    /// A process has opened again what it had open, and has the locks that it had.
    pub fn has_its_locks(&self, client: u128) {
        let mut state = self.state.lock();
        // who is left may be waited for for a shorter time
        if state.holders.as_mut().is_some_and(|all| all.remove(&client).is_some()) {
            self.turned.notify_all();
        }
    }

    /// Whether it is known that nobody has locks who has not said which.
    #[cfg(test)]
    pub fn has_all_locks(&self) -> bool {
        self.state.lock().has_all_locks()
    }

    /// Somebody is awaited, too, who is no process that attaches.
    pub fn awaits(&self, somebody: u128) {
        let mut state = self.state.lock();
        if let Some(holders) = &mut state.holders {
            holders.insert(somebody, Side::Here);
        }
    }

    /// Whether a call for a lock has to wait; then it is served later.
    pub fn holds_back(&self, session: &Arc<Session>, taken: Taken, message: &[u8]) -> bool {
        let mut state = self.state.lock();
        let waits = !state.locks_are_free;
        if waits && session.is_gone() {
            session.line.forget(taken);
        } else if waits {
            state.held_back.push((session.clone(), taken, message.to_vec()));
        }
        waits
    }

    /// A session is gone, or its connection: its calls do not wait any longer, which is known to
    /// be so before.
    pub fn let_go(&self, session: &Session) {
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        let is_its = |held: &mut HeldBack| held.0.number == session.number;
        gone.extend(state.held_back.extract_if(.., is_its));
        drop(state);
        gone.into_iter().for_each(|(session, taken, _)| session.line.forget(taken));
    }

    /// Whether anybody may get locks.
    pub fn locks_are_free(&self) -> bool {
        self.state.lock().locks_are_free
    }

    /// Has a mount ask for locks: now, or when anybody may get some.
    pub fn when_locks_are_free(&self, ask: Box<dyn FnOnce() + Send>) {
        let mut state = self.state.lock();
        if state.locks_are_free {
            drop(state);
            return ask();
        }
        state.waiting.push(Waiting(ask));
    }

    /// The service ends.
    pub fn cut_off(&self) {
        self.state.lock().is_cut_off = true;
        self.turned.notify_all();
    }

    /// Waits for as long since `start` as it takes, with what there is; false: it is cut off.
    fn wait(&self, start: Instant, time: impl Fn(&State) -> Duration) -> bool {
        let mut state = self.state.lock();
        while !state.is_cut_off {
            let left = time(&state).saturating_sub(start.elapsed());
            if left.is_zero() {
                return true;
            }
            let _ = self.turned.wait_for(&mut state, left);
        }
        false
    }

    /// From now on anybody may get locks.
    pub fn free_locks(&self, shared: &Arc<Shared>) {
        let mut state = self.state.lock();
        state.locks_are_free = true;
        let held_back = std::mem::take(&mut state.held_back);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|Waiting(ask)| ask());
        let mut answer = Vec::new();
        for (session, taken, message) in held_back {
            serve::serve(shared, &session, taken, (&message, Data::Here(&[])), &mut answer);
        }
    }
}

/// The times of a grace.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// What those of this machine are waited for who had locks, and whoever had where that is not
    /// known.
    pub locks: Duration,
    /// What all are waited for.
    pub all: Duration,
}

/// Sees a grace through, of those who made calls `before`. `end`: nobody is awaited any more.
pub fn run(shared: &Arc<Shared>, before: &HashSet<u128>, times: Times, end: impl FnOnce(&Shared)) {
    let grace = shared.grace();
    let start = Instant::now();
    let until_locks_are_free = |state: &State| match &state.holders {
        None => times.locks,
        Some(_) if state.has_all_locks() => Duration::ZERO,
        Some(holders) if holders.values().all(|side| *side == Side::Here) => times.locks,
        Some(_) => times.all,
    };
    if !grace.wait(start, until_locks_are_free) {
        return;
    }
    tracing::info!(after_ms = start.elapsed().as_millis() as u64, "anybody may have locks");
    grace.free_locks(shared);
    if !grace.wait(start, |_| times.all) {
        return;
    }
    if forget_the_absent(shared, before) {
        end(shared);
    }
}

/// Nobody is awaited any more, of those who made calls `before`. False: they are known on, since it
/// could not be written down that they are not.
pub fn forget_the_absent(shared: &Shared, before: &HashSet<u128>) -> bool {
    let mut state = shared.grace().state.lock();
    // held to the end: who comes later does nothing that would be forgotten here
    state.is_over = true;
    let returned = std::mem::take(&mut state.returned);
    if !shared.identities().forget() {
        // they cannot be told from those whom it knows: so it goes on to know them
        return false;
    }
    let gone: HashSet<u128> = before.difference(&returned).copied().collect();
    tracing::info!(returned = returned.len(), gone = gone.len(), "who was attached is back");
    shared.pool().fs().forget_clients(&gone);
    drop(state);
    // nobody is between two sessions meanwhile
    let _alone = shared.admission.lock();
    shared.holders().keep_only(|client| shared.session_of(client).is_some());
    true
}
