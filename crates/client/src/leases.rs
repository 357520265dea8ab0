//! Writing by oneself, under leases.
//!
//! The first small write of a file goes through the service. With the next one a lease is asked
//! for; while it lasts, writes that it covers are stored into the lane, and the service is not
//! asked. Where a lease is refused, or lost to somebody else, writes go through the service for a
//! while: twice as long each time that it happens again soon.

use std::sync::atomic::{AtomicU32, Ordering};

use lanes::{Piece, Stored};
use parking_lot::RwLock;
use wire::{Reply, Request};

use crate::lane::Slot;
use crate::{Error, Result, Session};

/// Writes through the service before a lease is asked for, at first and at most.
const SKIPS: u32 = 1;
const SKIPS_MAX: u32 = 256;
/// How often a write tries to be stored, and begins anew as leases come and go.
const TRIES: u32 = 4;

/// What a process has leased of a file.
#[derive(Debug, Default)]
pub struct FileLeases {
    own: RwLock<Vec<Own>>,
    /// Writes that go through the service before a lease is asked for.
    skips: AtomicU32,
    /// How many it will be next time.
    next_skips: AtomicU32,
}

/// A lease.
#[derive(Debug)]
struct Own {
    slot: Slot,
    generation: u64,
    first: u64,
    last: u64,
}

/// A small write of one file.
#[derive(Clone, Copy, Debug)]
pub struct LeasedWrite<'w> {
    /// The file's number, open for writing.
    pub file: u64,
    /// Where.
    pub offset: u64,
    /// The bytes.
    pub data: &'w [u8],
}

impl LeasedWrite<'_> {
    fn blocks(&self) -> (u64, u64) {
        lanes::blocks_of(self.offset, self.data.len()).into_inner()
    }
}

impl Own {
    fn covers(&self, (first, last): (u64, u64)) -> bool {
        self.first <= first && last <= self.last
    }

    fn is_open(&self) -> bool {
        self.slot.lane.lane.is_open(self.slot.number, self.generation)
    }
}

impl FileLeases {
    /// Writes under a lease. False: it is to go through the service.
    ///
    /// # Errors
    /// Whether it was written is not known.
    pub fn write(&self, session: &Session, write: &LeasedWrite<'_>) -> Result<bool> {
        if write.data.is_empty() || write.data.len() > lanes::BYTES_MAX {
            return Ok(false);
        }
        // no page of a region is waited for while the lane is held
        let write = &LeasedWrite { data: &fs::outside(write.data), ..*write };
        for _ in 0..TRIES {
            match self.try_write(session, write)? {
                Tried::Done => return Ok(true),
                Tried::Again => {}
                Tried::NoLease if self.obtain(session, write) => {}
                Tried::NoLease => return Ok(false),
            }
        }
        Ok(false)
    }

    fn try_write(&self, session: &Session, write: &LeasedWrite<'_>) -> Result<Tried> {
        let leases = self.own.read();
        let Some(own) = leases.iter().find(|own| own.covers(write.blocks())) else {
            return Ok(Tried::NoLease);
        };
        let (slot, generation) = (own.slot.number, own.generation);
        let piece = Piece { slot, generation, offset: write.offset, data: write.data };
        let lane = &own.slot.lane;
        match lane.commit(&[piece]) {
            Stored::Done => return Ok(Tried::Done),
            Stored::TooLong => return Ok(Tried::NoLease),
            Stored::Full => {
                // where there is no service, it says so, or a lease is not there any more
                session.ask(&Request::Fold, &[], &mut [])?;
                return Ok(Tried::Again);
            }
            Stored::Closed => {}
            Stored::Unknown { number } => {
                // the slot is not used again before the answer: the leases are held
                let connection = lane.lane.connection();
                let request = Request::Happened { connection, slot, generation, number };
                match session.ask(&request, &[], &mut [])?.0 {
                    Reply::Number(1) => return Ok(Tried::Done),
                    Reply::Number(0) => {}
                    _ => return Err(Error::Lost),
                }
            }
        }
        drop(leases);
        self.own.write().retain(Own::is_open);
        self.wait_longer();
        Ok(Tried::NoLease)
    }

    /// Asks for a lease; false: there is none now.
    fn obtain(&self, session: &Session, write: &LeasedWrite<'_>) -> bool {
        // ordering: a guess
        let skips = self.skips.load(Ordering::Relaxed);
        if skips > 0 || self.next_skips.load(Ordering::Relaxed) == 0 {
            self.next_skips.fetch_max(SKIPS, Ordering::Relaxed);
            self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
            return false;
        }
        let mut leases = self.own.write();
        if leases.iter().any(|own| own.covers(write.blocks())) {
            // another thread's
            return true;
        }
        match self.ask(session, write) {
            Some(own) => leases.push(own),
            None => self.wait_longer(),
        }
        leases.iter().any(|own| own.covers(write.blocks()))
    }

    fn ask(&self, session: &Session, write: &LeasedWrite<'_>) -> Option<Own> {
        let slot = session.lane()?.slot()?;
        let (first, last) = write.blocks();
        let request = Request::Lease { slot: slot.number, file: write.file, first, last };
        match session.ask(&request, &[], &mut []).ok()?.0 {
            Reply::Leased(generation, first, last) => Some(Own { slot, generation, first, last }),
            _ => None,
        }
    }

    /// A lease was refused, or lost.
    fn wait_longer(&self) {
        let skips = self.next_skips.load(Ordering::Relaxed).max(SKIPS);
        self.skips.store(skips, Ordering::Relaxed);
        self.next_skips.store((2 * skips).min(SKIPS_MAX), Ordering::Relaxed);
    }

    /// Gives all leases back: the file is closed.
    pub fn give_back(&self, session: &Session) {
        for own in std::mem::take(&mut *self.own.write()) {
            if own.is_open() {
                // where the service is gone, so is the lease
                let _ = session.ask(&Request::GiveBack(own.slot.number), &[], &mut []);
            }
        }
    }
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// It is written.
    Done,
    /// It is not, and may be now.
    Again,
    /// It is not: no lease covers it.
    NoLease,
}
