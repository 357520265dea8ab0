//! Writing by oneself, under leases.
//!
//! The first small write of a file goes through the service. With the next one a lease is asked
//! for; while it lasts, writes that it covers are stored into the lane, and the service is not
//! asked. Where a lease is refused, or lost to somebody else, writes go through the service for a
//! while: twice as long each time that it happens again soon.
//!
//! What is stored under a lease of a file that is mapped here is stored into its copies, too: the
//! service does that for all other changes, and not for these. One writes at a time then, from the
//! lane to the copies, and nobody has pages brought meanwhile. So a write never comes into a page
//! that is newer than it is. Where a lease ends the service takes the pages away, and what comes
//! late is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lanes::{Piece, Stored};
use parking_lot::RwLock;
use smallvec::SmallVec;
use wire::{Reply, Request};

use crate::copies::Shows;
use crate::lane::Slot;
use crate::{Error, Result, Session};

/// Writes through the service before a lease is asked for, at first and at most.
const SKIPS: u32 = 1;
const SKIPS_MAX: u32 = 256;
/// How often a write tries to be stored, and begins anew as leases come and go.
const TRIES: u32 = 4;

/// What a process has leased of a file.
#[derive(Debug)]
pub struct FileLeases {
    /// The number of its inode.
    ino: u64,
    state: RwLock<State>,
    /// Writes that go through the service before a lease is asked for.
    skips: AtomicU32,
    /// How many it will be next time.
    next_skips: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    own: Vec<Own>,
    /// The copies of the file, by number.
    shown: Vec<(u64, Arc<dyn Shows>)>,
    /// Copies that are being made.
    coming: usize,
}

impl State {
    /// Whether the file is mapped, or is going to be.
    fn is_mapped(&self) -> bool {
        self.coming > 0 || !self.shown.is_empty()
    }

    /// Whether what is written can be stored into all copies.
    fn can_store(&self) -> bool {
        self.coming == 0 && self.shown.iter().all(|(_, shows)| shows.can_store())
    }
}

/// A lease.
#[derive(Debug)]
struct Own {
    slot: Slot,
    generation: u64,
    first: u64,
    last: u64,
}

/// Small writes of one file, which happen in one step.
#[derive(Clone, Copy, Debug)]
pub struct LeasedWrites<'w> {
    /// The file's number, open for writing.
    pub file: u64,
    /// Where, and the bytes; not in a region.
    pub all: &'w [(u64, &'w [u8])],
}

impl LeasedWrites<'_> {
    /// The blocks from the first one to the last.
    fn blocks(&self) -> (u64, u64) {
        let blocks = self.all.iter().map(|(offset, data)| lanes::blocks_of(*offset, data.len()));
        blocks.fold((u64::MAX, 0), |hull, blocks| {
            (hull.0.min(*blocks.start()), hull.1.max(*blocks.end()))
        })
    }

    /// Whether a record has room for them.
    fn fit(&self) -> bool {
        let bytes: usize = self.all.iter().map(|(_, data)| data.len()).sum();
        (1..=lanes::PIECES_MAX).contains(&self.all.len())
            && bytes <= lanes::BYTES_MAX
            && self.all.iter().all(|(_, data)| !data.is_empty())
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
    /// Nothing, of the file with this inode number.
    pub fn new(ino: u64) -> FileLeases {
        FileLeases {
            ino,
            state: RwLock::default(),
            skips: AtomicU32::new(0),
            next_skips: AtomicU32::new(0),
        }
    }

    /// Writes under a lease. False: it is to go through the service.
    ///
    /// # Errors
    /// Whether it was written is not known.
    pub fn write(&self, session: &Session, writes: &LeasedWrites<'_>) -> Result<bool> {
        // nothing is leased over a network
        if session.is_remote() || !writes.fit() {
            return Ok(false);
        }
        for _ in 0..TRIES {
            match self.try_write(session, writes)? {
                Tried::Done => return Ok(true),
                Tried::Again => {}
                Tried::NoLease if self.obtain(session, writes) => {}
                Tried::NoLease => return Ok(false),
            }
        }
        Ok(false)
    }

    fn try_write(&self, session: &Session, writes: &LeasedWrites<'_>) -> Result<Tried> {
        let state = self.state.read();
        if !state.is_mapped() {
            let tried = self.store(&state, session, writes)?;
            drop(state);
            return Ok(self.after(tried));
        }
        drop(state);
        let state = self.state.write();
        if !state.can_store() {
            return Ok(Tried::NoLease);
        }
        let tried = self.store(&state, session, writes)?;
        if tried == Outcome::Stored {
            for (offset, data) in writes.all {
                state.shown.iter().for_each(|(_, shows)| shows.store(*offset, data));
            }
        }
        drop(state);
        Ok(self.after(tried))
    }

    fn store(
        &self,
        state: &State,
        session: &Session,
        writes: &LeasedWrites<'_>,
    ) -> Result<Outcome> {
        let Some(own) = state.own.iter().find(|own| own.covers(writes.blocks())) else {
            return Ok(Outcome::NoLease);
        };
        let (slot, generation) = (own.slot.number, own.generation);
        let pieces = writes.all.iter();
        let pieces: SmallVec<[Piece<'_>; 2]> =
            pieces.map(|&(offset, data)| Piece { slot, generation, offset, data }).collect();
        let lane = &own.slot.lane;
        // nobody here reads what was there before, once somebody else may have seen what is new
        let _writing = session.shared.cache.write(self.ino, writes.all);
        match lane.commit(&pieces) {
            Stored::Done => Ok(Outcome::Stored),
            Stored::TooLong => Ok(Outcome::NoLease),
            Stored::Full => {
                // where there is no service, it says so, or a lease is not there any more
                session.ask(&Request::Fold, &[], &mut [])?;
                Ok(Outcome::Again)
            }
            Stored::Closed => Ok(Outcome::Lost),
            Stored::Unknown { number } => {
                // the slot is not used again before the answer: the leases are held
                let connection = lane.lane.connection();
                let request = Request::Happened { connection, slot, generation, number };
                match session.ask(&request, &[], &mut [])?.0 {
                    Reply::Number(1) => Ok(Outcome::Folded),
                    Reply::Number(0) => Ok(Outcome::Lost),
                    _ => Err(Error::Lost),
                }
            }
        }
    }

    fn after(&self, outcome: Outcome) -> Tried {
        match outcome {
            Outcome::Stored | Outcome::Folded => Tried::Done,
            Outcome::Again => Tried::Again,
            Outcome::NoLease => Tried::NoLease,
            Outcome::Lost => {
                self.state.write().own.retain(Own::is_open);
                self.wait_longer();
                Tried::NoLease
            }
        }
    }

    /// Asks for a lease; false: there is none now.
    fn obtain(&self, session: &Session, writes: &LeasedWrites<'_>) -> bool {
        // ordering: a guess
        let skips = self.skips.load(Ordering::Relaxed);
        if skips > 0 || self.next_skips.load(Ordering::Relaxed) == 0 {
            self.next_skips.fetch_max(SKIPS, Ordering::Relaxed);
            self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
            return false;
        }
        let mut state = self.state.write();
        if !state.can_store() {
            return false;
        }
        if state.own.iter().any(|own| own.covers(writes.blocks())) {
            // another thread's
            return true;
        }
        match self.ask(session, writes) {
            Some(own) => state.own.push(own),
            None => self.wait_longer(),
        }
        state.own.iter().any(|own| own.covers(writes.blocks()))
    }

    fn ask(&self, session: &Session, writes: &LeasedWrites<'_>) -> Option<Own> {
        let slot = session.lane()?.slot()?;
        let (first, last) = writes.blocks();
        let request = Request::Lease { slot: slot.number, file: writes.file, first, last };
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
        for own in std::mem::take(&mut self.state.write().own) {
            if own.is_open() {
                // where the service is gone, so is the lease
                let _ = session.ask(&Request::GiveBack(own.slot.number), &[], &mut []);
            }
        }
    }

    /// A copy of the file is being made: nothing is written under leases until it is there.
    pub(crate) fn expect_copy(&self) {
        self.state.write().coming += 1;
    }

    /// It is there; or not, after all.
    pub(crate) fn add_copy(&self, copy: Option<(u64, Arc<dyn Shows>)>) {
        let mut state = self.state.write();
        state.coming -= 1;
        state.shown.extend(copy);
    }

    /// Nobody loads from it any more.
    pub(crate) fn remove_copy(&self, copy: u64) {
        self.state.write().shown.retain(|(number, _)| *number != copy);
    }

    /// Has pages of a copy brought: nobody stores into it meanwhile.
    pub(crate) fn while_filling<T>(&self, fill: impl FnOnce() -> T) -> T {
        let _state = self.state.read();
        fill()
    }
}

/// What became of storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is written, and not folded so far.
    Stored,
    /// It is written, and folded; the lease has ended.
    Folded,
    /// It is not, and may be now.
    Again,
    /// It is not: no lease covers it.
    NoLease,
    /// It is not: there was a lease, which has ended.
    Lost,
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
