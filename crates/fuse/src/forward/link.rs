//! The connection to the service, of which there is one, or none for now.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Forwards;
use parking_lot::{Condvar, Mutex};
use wire::Told;

/// Time that a service has to let the mount go when it ends.
const END_MAX: Duration = Duration::from_secs(5);

/// The connections of a mount, one after the other.
#[derive(Debug)]
pub(super) struct Links {
    away_max: Duration,
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Debug)]
struct State {
    now: Option<Arc<Forwards>>,
    /// Counts them.
    number: u64,
    /// The last one of a service that did not know which requests had been served.
    unknown: u64,
    /// When there was none any more.
    lost: Instant,
    /// What is to be told by who has nothing else to do.
    told: VecDeque<Told>,
    ends: Option<Ends>,
}

/// How the forwarder ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// Another one goes on.
    Left,
    /// The mount has gone.
    Over,
}

/// One of the connections.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) forwards: Arc<Forwards>,
    pub(super) number: u64,
    /// Of requests that were sent over one before this it is not known whether they were served.
    pub(super) unknown: u64,
}

impl Links {
    pub(super) fn new(away_max: Duration) -> Links {
        let lost = Instant::now();
        let state =
            State { now: None, number: 0, unknown: 0, lost, told: VecDeque::new(), ends: None };
        Links { away_max, state: Mutex::new(state), turned: Condvar::new() }
    }

    /// There is one again.
    pub(super) fn stands(&self, forwards: &Arc<Forwards>, knows: bool) {
        let mut state = self.state.lock();
        state.number += 1;
        if !knows {
            state.unknown = state.number;
        }
        state.now = Some(forwards.clone());
        if state.ends.is_some() {
            forwards.shut();
        }
        self.turned.notify_all();
    }

    /// This one is lost.
    pub(super) fn lose(&self, forwards: &Arc<Forwards>) {
        let mut state = self.state.lock();
        if state.now.as_ref().is_some_and(|now| Arc::ptr_eq(now, forwards)) {
            state.now = None;
            state.lost = Instant::now();
            self.turned.notify_all();
        }
    }

    /// The one that there is, or comes in time.
    pub(super) fn wait(&self) -> Option<Link> {
        let mut state = self.state.lock();
        loop {
            if let Some(forwards) = &state.now {
                let (number, unknown) = (state.number, state.unknown);
                return Some(Link { forwards: forwards.clone(), number, unknown });
            }
            let left = self.away_max.saturating_sub(state.lost.elapsed());
            if left.is_zero() || state.ends.is_some() {
                return None;
            }
            self.turned.wait_for(&mut state, left);
        }
    }

    /// The one that there is.
    pub(super) fn now(&self) -> Option<Arc<Forwards>> {
        self.state.lock().now.clone()
    }

    /// Has this told by another thread: who hears what comes waits for nobody.
    pub(super) fn tell_later(&self, told: Told) {
        self.state.lock().told.push_back(told);
        self.turned.notify_all();
    }

    /// Tells what is to be told, until the connection is lost.
    pub(super) fn tell_until_lost(&self, forwards: &Forwards) {
        let mut state = self.state.lock();
        while state.now.is_some() {
            match state.told.pop_front() {
                Some(told) => {
                    parking_lot::MutexGuard::unlocked(&mut state, || {
                        // lost: the next service is told what counts
                        let _ = forwards.tell(&told, &[]);
                    });
                }
                None => self.turned.wait(&mut state),
            }
        }
        state.told.clear();
    }

    /// Whether this one is not the one that there is.
    pub(super) fn is_lost(&self, number: u64) -> bool {
        let state = self.state.lock();
        state.now.is_none() || state.number != number
    }

    /// Whether there has been none for longer than anybody waits.
    pub(super) fn is_late(&self) -> bool {
        let state = self.state.lock();
        state.now.is_none() && state.lost.elapsed() >= self.away_max
    }

    /// How the forwarder ends, if it does.
    pub(super) fn ends(&self) -> Option<Ends> {
        self.state.lock().ends
    }

    /// Waits until this one is lost, or so long.
    pub(super) fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        if state.ends.is_none() {
            self.turned.wait_for(&mut state, time);
        }
    }

    /// Another forwarder goes on.
    pub(super) fn leave(&self) {
        let mut state = self.state.lock();
        state.ends = Some(Ends::Left);
        if let Some(forwards) = &state.now {
            forwards.shut();
        }
        self.turned.notify_all();
    }

    /// The mount has gone, unless another forwarder goes on: the service is told, and has let go of
    /// all when it ends the connection.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        let left = state.ends.is_some();
        state.ends.get_or_insert(Ends::Over);
        self.turned.notify_all();
        let Some(forwards) = state.now.clone().filter(|_| !left) else { return };
        let until = Instant::now() + END_MAX;
        if forwards.tell(&Told::Ends, &[]).is_ok() {
            while state.now.is_some() && Instant::now() < until {
                self.turned.wait_until(&mut state, until);
            }
        }
        forwards.shut();
    }
}
