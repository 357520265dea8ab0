//! One attached process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use fs::LockTicket;
use nearside::Pool;
use parking_lot::Mutex;
use wire::{Channel, Reply, Served, Taken};

use crate::opened::Table;

/// One attached process.
#[derive(Debug)]
pub struct Session {
    /// Its number among the sessions of this service; it is that of its socket and of its bell in
    /// what the workers wait for.
    pub number: u64,
    /// The pool as this process may use it.
    pub pool: Pool,
    /// What it asks.
    pub calls: Served,
    /// What it has open.
    pub opened: Table,
    /// The waits of calls for locks, by slot; also of some that are over.
    waits: Mutex<[Option<LockTicket>; wire::SLOTS]>,
    channel: Channel,
    bell: OwnedFd,
    has_ended: AtomicBool,
}

impl Session {
    pub fn new(number: u64, pool: Pool, calls: Served, channel: Channel, bell: OwnedFd) -> Session {
        Session {
            number,
            pool,
            calls,
            opened: Table::default(),
            waits: Mutex::default(),
            channel,
            bell,
            has_ended: AtomicBool::new(false),
        }
    }

    /// Rings when the process asks while nobody looks.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Its end is the process's.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Says something to the process.
    pub fn send(
        &self,
        message: &impl serde::Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> std::io::Result<()> {
        self.channel.send(message, descriptors)
    }

    /// Silences the bell.
    pub fn silence(&self) {
        // it may not have rung
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }

    /// Whether the process is gone.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Answers a call.
    pub fn answer(&self, taken: Taken, reply: &Reply, data: &[u8]) {
        let message = wire::encode(reply, Vec::new()).unwrap_or_default();
        self.calls.answer(taken, &message, data);
    }

    /// The wait of a call for a lock, to be ended with the session.
    pub fn add_wait(&self, taken: Taken, ticket: LockTicket) {
        self.waits.lock()[taken.slot()] = Some(ticket);
        if self.has_ended() {
            self.cancel_waits();
        }
    }

    fn cancel_waits(&self) {
        let waits = std::mem::take(&mut *self.waits.lock());
        for ticket in waits.into_iter().flatten() {
            self.pool.fs().cancel_lock(ticket);
        }
    }

    /// The process is gone, or is to go: what it had open is closed, and its locks end.
    pub fn end(&self) {
        if self.has_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        self.cancel_waits();
        drop(self.opened.clear());
        let _ = rustix::net::shutdown(self.channel.as_fd(), rustix::net::Shutdown::Both);
    }
}
