//! The locks of a forwarded mount: the service has them, and a copy of its journal lies here, with
//! the requests that are not answered.
//!
//! A lock request is no call: it waits for as long as it takes, in no slot. It is told to the
//! service, and again to the next one until its answer has come, under the number that the kernel
//! gave it. The answer is noted before the kernel gets it.

use std::collections::HashMap;

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
        Ok(Locks { asked, journal: Mutex::new(memory.journal), replies, owes })
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

    /// All requests that are not answered, in their order, and whether their callers want no answer
    /// any more.
    pub(super) fn pending(&self) -> Vec<(Ask, bool)> {
        self.asked.pending()
    }

    /// The journal's records.
    pub(super) fn records(&self) -> Result<Vec<u8>> {
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
        match set.locks.asked.begin(&ask) {
            Begun::New => {}
            // Whoever was asked first answers.
            Begun::Again => return reply.nothing(),
            Begun::Full => return reply.error(libc::ENOLCK),
            Begun::Interrupted => {
                set.locks.asked.end(ask.unique, reply.later(), Some(libc::EINTR));
                return;
            }
        }
        set.locks.replies.lock().insert(ask.unique, reply.later());
        if self.links.is_late() {
            set.locks.ended(ask.unique, libc::EIO);
            return;
        }
        // where there is none now, the next service is told all
        if let Some(forwards) = self.links.now() {
            let told = forwards.tell(&Told::Lock, ask.as_bytes());
            if told.is_ok() && set.locks.asked.is_signalled(ask.unique) {
                let _ = forwards.tell(&Told::Interrupt(ask.unique), &[]);
            }
        }
    }

    /// The caller of request `unique` got a signal. False if the kernel is to say it again.
    pub(super) fn interrupt(&self, set: &Set, unique: u64) -> bool {
        match set.locks.asked.interrupt(unique, &*set.locks.owes) {
            Signal::Full => false,
            Signal::Noted | Signal::Cancel(_) => {
                if set.locks.asked.is_signalled(unique) {
                    let now = self.links.now();
                    now.inspect(|it| drop(it.tell(&Told::Interrupt(unique), &[])));
                }
                true
            }
        }
    }
}
