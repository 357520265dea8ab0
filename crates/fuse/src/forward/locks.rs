//! The locks of a forwarded mount: the service has them, and a copy of its journal lies here, with
//! the requests that are not answered.
//!
//! A lock request is no call: it waits for as long as it takes, in no slot. It is told to the
//! service, and again to the next one until its answer has come, under the number that the kernel
//! gave it. The answer is noted before the kernel gets it.
//!
//! Over one connection each request is told once: twice, a lock could be taken again that its
//! program has let go of meanwhile. So one mutex ([`Locks::told_over`]) orders what is noted and
//! what is told.

use std::collections::HashMap;
use std::sync::Arc;

use client::Forwards;
use parking_lot::Mutex;
use shm::Area;
use wire::Told;
use zerocopy::IntoBytes;

use super::{Set, Shared};
use crate::locks::{self, Ask, Asked, Begun, Mirrored, Signal};
use crate::server::Owes;
use crate::state::LockMemory;
use crate::wire::{LateReply, Lock, Reply, RequestHead};
use crate::{Connected, Result};

pub(super) struct Locks {
    asked: Asked,
    journal: Mutex<Area>,
    replies: Mutex<HashMap<u64, LateReply>>,
    owes: Owes,
    /// The connection over which all that is noted was told. Held from a note to its telling.
    told_over: Mutex<Option<Arc<dyn Tells>>>,
}

/// A connection to a service.
pub(super) trait Tells: Send + Sync {
    /// Says something that is no request.
    fn tell(&self, told: &Told, data: &[u8]) -> client::Result<()>;
}

impl Tells for Forwards {
    fn tell(&self, told: &Told, data: &[u8]) -> client::Result<()> {
        Forwards::tell(self, told, data)
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Locks").finish_non_exhaustive()
    }
}

impl Locks {
    /// Goes on with what a forwarder before left in `memory`.
    pub(super) fn take_over(memory: LockMemory, connected: &Connected) -> Result<Locks> {
        let (asked, left) = Asked::take_over(memory.asked, &connected.owed)?;
        for (unique, errno) in left.answers {
            connected.late_reply(unique).answer(errno);
            asked.told(unique);
        }
        let waiting = left.asks.iter().map(|ask| (ask.unique, connected.late_reply(ask.unique)));
        let replies = Mutex::new(waiting.collect());
        let owes = connected.owes.clone();
        let (journal, told_over) = (Mutex::new(memory.journal), Mutex::default());
        Ok(Locks { asked, journal, replies, owes, told_over })
    }

    /// No forwarder will be given request `unique` again.
    pub(super) fn released(&self, unique: u64) {
        self.asked.released(unique);
    }

    /// What waits is the next forwarder's.
    pub(super) fn leave(&self) {
        self.asked.leave();
        self.replies.lock().drain().for_each(|(_, reply)| reply.leave());
    }

    /// Tells a service what it has to know of locks before any request: which requests, beside
    /// those that are `owed`, are not answered; where it is new, the journal; and what waits. From
    /// then on it is told what comes.
    pub(super) fn tell_all(
        &self,
        forwards: &Arc<dyn Tells>,
        owed: &[u64],
        is_new: bool,
    ) -> Result<()> {
        let mut told_over = self.told_over.lock();
        let pending = self.asked.pending();
        let asked: Vec<u64> = pending.iter().map(|(ask, _)| ask.unique).collect();
        forwards.tell(&Told::Asked, [&asked[..], owed].concat().as_bytes())?;
        let journal = if is_new { self.records()? } else { Vec::new() };
        forwards.tell(&Told::Begin, &journal)?;
        for (ask, is_signalled) in pending {
            forwards.tell(&Told::Lock, ask.as_bytes())?;
            if is_signalled {
                forwards.tell(&Told::Interrupt(ask.unique), &[])?;
            }
        }
        *told_over = Some(forwards.clone());
        Ok(())
    }

    /// The connection is lost: the next service is told all.
    pub(super) fn lost(&self) {
        *self.told_over.lock() = None;
    }

    /// The journal's records.
    fn records(&self) -> Result<Vec<u8>> {
        Ok(locks::records(&self.journal.lock())?.to_vec())
    }

    /// The service says what becomes of its journal.
    pub(super) fn mirror(&self, mirrored: Mirrored<'_>) {
        if let Err(error) = locks::put(&mut self.journal.lock(), mirrored) {
            tracing::error!("locks may not outlive the service: {error}");
        }
    }

    /// A request has ended. True: that is noted, and the service need not know it any more.
    pub(super) fn ended(&self, unique: u64, errno: i32) -> bool {
        let Some(reply) = self.replies.lock().remove(&unique) else { return true };
        self.asked.end(unique, reply, Some(errno).filter(|errno| *errno != 0))
    }

    /// There has been no service for longer than anybody waits.
    pub(super) fn give_up(&self) {
        let all: Vec<u64> = self.replies.lock().keys().copied().collect();
        for unique in all {
            self.ended(unique, libc::EIO);
        }
    }

    /// Takes or lets go of a lock. `is_late`: no service comes in time.
    fn ask(&self, ask: &Ask, reply: Reply<'_>, is_late: bool) {
        let told_over = self.told_over.lock();
        match self.asked.begin(ask) {
            Begun::New => {}
            // Whoever was asked first answers.
            Begun::Again => return reply.nothing(),
            Begun::Full => return reply.error(libc::ENOLCK),
            Begun::Interrupted => {
                self.asked.end(ask.unique, reply.later(), Some(libc::EINTR));
                return;
            }
        }
        self.replies.lock().insert(ask.unique, reply.later());
        if is_late {
            self.ended(ask.unique, libc::EIO);
        } else if let Some(forwards) = &*told_over {
            // lost: the next service is told all
            let _ = forwards.tell(&Told::Lock, ask.as_bytes());
        }
    }

    /// The caller of request `unique` got a signal. False if the kernel is to say it again.
    pub(super) fn interrupt(&self, unique: u64) -> bool {
        match self.asked.interrupt(unique, &*self.owes) {
            Signal::Full => false,
            Signal::Noted | Signal::Cancel(_) => {
                // of a lock, which the service knows by then, or is told of with its signal
                if self.asked.is_signalled(unique)
                    && let Some(forwards) = &*self.told_over.lock()
                {
                    let _ = forwards.tell(&Told::Interrupt(unique), &[]);
                }
                true
            }
        }
    }
}

impl Shared {
    /// Takes or lets go of a lock.
    pub(super) fn lock(
        &self,
        set: &Set,
        (head, lock, waits): (&RequestHead, &Lock, bool),
        reply: Reply<'_>,
    ) {
        let ask = Ask::new(head, lock, waits).kept();
        set.locks.ask(&ask, reply, self.links.is_late());
    }
}

#[cfg(test)]
#[path = "lock_order_tests.rs"]
mod order_tests;
