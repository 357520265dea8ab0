//! Those whose connection a network has lost: what they have open stays for a while, for them to
//! come back to over another one.
//!
//! A process that closes its connection, or that ends, says so by that; a network that loses one
//! says nothing, or resets it. A mount outlives the process that forwards what its kernel asks: it
//! says so when it ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::epoll::EventFlags;

use crate::session::Session;
use crate::shared::Shared;

/// Sessions whose connection is lost.
#[derive(Debug)]
pub struct Lost {
    /// How long they are waited for.
    linger: Duration,
    /// Since when, in that order.
    since: Mutex<VecDeque<(u64, Instant)>>,
}

impl Lost {
    /// None so far.
    pub fn new(linger: Duration) -> Lost {
        Lost { linger, since: Mutex::default() }
    }

    /// One that was waited for long enough; or how long it is until the next one was.
    fn next(&self) -> Result<u64, Option<Duration>> {
        let mut since = self.since.lock();
        let (number, lost) = *since.front().ok_or(None)?;
        let left = self.linger.saturating_sub(lost.elapsed());
        if !left.is_zero() {
            return Err(Some(left));
        }
        since.pop_front();
        Ok(number)
    }
}

impl Shared {
    /// The connection of this session is lost, if it is one that can be.
    pub fn lose(&self, session: &Session) -> bool {
        let is_lost = session.lose();
        if is_lost {
            self.grace().let_go(session);
        }
        is_lost
    }

    /// A process has ended, or said something, which none has to.
    pub fn end_session(&self, number: u64) {
        let Some(session) = self.take_session(number) else { return };
        self.identities().given_up.remove(session.client);
        self.finish(&session);
    }

    /// A process is not waited for any more whose connection was lost. It may come back all the
    /// same, when what it did is forgotten.
    pub fn give_up(&self, number: u64) {
        let Some(session) = self.take_session(number) else { return };
        if !self.identities().give_up(session.client) {
            tracing::warn!(session = number, "it may come back and not hear that it is not known");
        }
        self.finish(&session);
    }

    fn finish(&self, session: &Session) {
        self.forget_sockets(session);
        session.end();
        self.grace().let_go(session);
        let is_back = |client| self.session_of(client).is_some();
        self.holders().remove_unless(session.client, is_back);
        self.has_let_go();
        let mut idle_since = self.idle_since.lock();
        if self.is_idle() {
            *idle_since = Some(Instant::now());
            self.idles.notify_all();
        }
    }

    /// A socket says that its process has ended, or that the connection is lost.
    pub fn socket_ended(&self, number: u64, said: EventFlags) {
        let Some(session) = self.session(number) else { return };
        // a mount says when it ends; its forwarder may be another process by then
        let is_lost = session.mount.is_some() || said.intersects(EventFlags::ERR | EventFlags::HUP);
        if is_lost && self.lose(&session) {
            self.forget_sockets(&session);
            self.lost.since.lock().push_back((number, Instant::now()));
        } else {
            self.end_session(number);
        }
    }

    /// Ends those who have not come back for too long; gives the time until the next one has not.
    pub fn end_lost(&self) -> Option<Duration> {
        loop {
            match self.lost.next() {
                // not one that came back: it has another number by now
                Ok(number) => self.give_up(number),
                Err(left) => return left,
            }
        }
    }
}
