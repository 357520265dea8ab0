//! The time after a service that did not end in order, in which those who were attached to it come
//! back.
//!
//! For a moment nobody gets a lock but those who had it: they say so when they come back, and who
//! is faster would take it from them. For longer it is remembered what each of them did last, and
//! files without a name stay. Then who has not come back is forgotten: that is written down first,
//! so that neither this service nor a later one takes him for somebody whose calls it knows.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use wire::Taken;

use crate::serve;
use crate::service::Shared;
use crate::session::Session;

/// A call for a lock that waits: whose, which, and what it says.
type HeldBack = (Arc<Session>, Taken, Vec<u8>);

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
    held_back: Vec<HeldBack>,
    /// The service ends.
    is_cut_off: bool,
}

impl Grace {
    /// `awaits`: somebody may come back.
    pub fn new(awaits: bool) -> Grace {
        let state = State { is_over: !awaits, locks_are_free: !awaits, ..State::default() };
        Grace { state: Mutex::new(state), turned: Condvar::new() }
    }

    /// A process comes back: whether it is known what it did, as far as that is remembered.
    pub fn welcome(&self, client: u128, is_remembered: bool) -> bool {
        let mut state = self.state.lock();
        // what it does from now on is not to be forgotten with what it did before
        state.returned.insert(client);
        !state.is_over && is_remembered
    }

    /// Whether a call for a lock has to wait; then it is served later.
    pub fn holds_back(&self, session: &Arc<Session>, taken: Taken, message: &[u8]) -> bool {
        let mut state = self.state.lock();
        let waits = !state.locks_are_free;
        if waits {
            state.held_back.push((session.clone(), taken, message.to_vec()));
        }
        waits
    }

    /// The service ends.
    pub fn cut_off(&self) {
        self.state.lock().is_cut_off = true;
        self.turned.notify_all();
    }

    /// Waits for that long since `start`; false: it is cut off.
    fn wait(&self, start: Instant, time: Duration) -> bool {
        let mut state = self.state.lock();
        while !state.is_cut_off {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return true;
            }
            let _ = self.turned.wait_for(&mut state, left);
        }
        false
    }

    fn free_locks(&self, shared: &Arc<Shared>) {
        let mut state = self.state.lock();
        state.locks_are_free = true;
        let held_back = std::mem::take(&mut state.held_back);
        drop(state);
        let mut room = serve::Room::default();
        for (session, taken, message) in held_back {
            room.message = message;
            serve::serve(shared, &session, taken, &mut room);
        }
    }
}

/// The times of a grace.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub locks: Duration,
    pub all: Duration,
}

/// Sees a grace through, of those who made calls `before`. `end`: nobody is awaited any more.
pub fn run(shared: &Arc<Shared>, before: &HashSet<u128>, times: Times, end: impl FnOnce(&Shared)) {
    let grace = shared.grace();
    let start = Instant::now();
    if !grace.wait(start, times.locks) {
        return;
    }
    grace.free_locks(shared);
    if !grace.wait(start, times.all) {
        return;
    }
    // held to the end: who comes later does nothing that would be forgotten here
    let mut state = grace.state.lock();
    state.is_over = true;
    let returned = std::mem::take(&mut state.returned);
    if !shared.identities().forget() {
        // they cannot be told from those whom it knows: so it goes on to know them
        return;
    }
    let gone: HashSet<u128> = before.difference(&returned).copied().collect();
    tracing::info!(returned = returned.len(), gone = gone.len(), "who was attached is back");
    shared.pool().fs().forget_clients(&gone);
    drop(state);
    end(shared);
}
