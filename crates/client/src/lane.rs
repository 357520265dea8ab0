//! The lane of a process: what it was given, and which slots of leases it uses.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lanes::{Lane, Piece, SLOTS, Stored};
use parking_lot::Mutex;
use pmem::Domain;

use crate::folder::Wakes;

/// How long a lane that was promised is waited for.
pub const ARRIVES: Duration = Duration::from_secs(1);
/// How long a full lane is looked at again and again, before its folding is asked for and waited
/// for.
const FOLDS_SOON: Duration = Duration::from_micros(100);
/// Pauses between two looks.
const SPINS: u32 = 32;
/// When there was no lane it is asked for again after so long.
const ASKS_AGAIN: Duration = Duration::from_secs(1);

/// The lane of one attachment.
#[derive(Debug)]
pub struct OwnLane {
    pub lane: Lane,
    /// A bit for each slot that is in use.
    used: Mutex<u32>,
    folder: Wakes,
}

const _: () = assert!(SLOTS == u32::BITS as usize);

impl OwnLane {
    /// Of what was given.
    pub fn new(
        (domain, files): (String, Vec<OwnedFd>),
        pool: &str,
        connection: u128,
        folder: Wakes,
    ) -> lanes::Result<OwnLane> {
        let domain = Domain::named(&domain).filter(|domain| *domain != Domain::Sync);
        let files = <[OwnedFd; 2]>::try_from(files);
        let (Some(domain), Ok([lane, words])) = (domain, files) else {
            return Err(lanes::Error::LessDurable);
        };
        let lane = Lane::new((File::from(lane), File::from(words)), domain, pool, connection)?;
        Ok(OwnLane { lane, used: Mutex::new(0), folder })
    }

    /// Makes writes in one step ([`Lane::commit`]), and has the lane folded in time. Where it is
    /// full, the service is most likely at it: a little is waited for.
    pub fn commit(&self, pieces: &[Piece<'_>]) -> Stored {
        let stored = self.lane.commit(pieces);
        if !self.lane.is_filling() {
            return stored;
        }
        self.folder.wake();
        if stored != Stored::Full {
            return stored;
        }
        let start = Instant::now();
        loop {
            for _ in 0..SPINS {
                std::hint::spin_loop();
            }
            // the service may need this CPU
            std::thread::yield_now();
            match self.lane.commit(pieces) {
                Stored::Full if start.elapsed() < FOLDS_SOON => self.folder.wake(),
                stored => return stored,
            }
        }
    }

    /// A slot that nobody uses.
    pub fn slot(self: &Arc<OwnLane>) -> Option<Slot> {
        let mut used = self.used.lock();
        let number = used.trailing_ones();
        if number as usize == SLOTS {
            return None;
        }
        *used |= 1 << number;
        Some(Slot { lane: self.clone(), number: number as u8 })
    }
}

/// A slot, in use until this is dropped.
#[derive(Debug)]
pub struct Slot {
    pub lane: Arc<OwnLane>,
    pub number: u8,
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.lane.used.lock() &= !(1 << self.number);
    }
}

/// Whether there is a lane.
#[derive(Debug, Default)]
pub enum LaneState {
    /// Nobody has asked.
    #[default]
    Unasked,
    /// There was none, at that time.
    None(Instant),
    /// Of the attachment of this number.
    Some(u64, Arc<OwnLane>),
}

impl LaneState {
    /// The lane of the attachment `number`; made by `make`, if it is time.
    pub fn get(
        &mut self,
        number: u64,
        make: impl FnOnce() -> Option<OwnLane>,
    ) -> Option<Arc<OwnLane>> {
        match self {
            LaneState::Some(of, lane) if *of == number => return Some(lane.clone()),
            LaneState::None(since) if since.elapsed() < ASKS_AGAIN => return None,
            _ => {}
        }
        let lane = make().map(Arc::new);
        *self = match &lane {
            Some(lane) => LaneState::Some(number, lane.clone()),
            None => LaneState::None(Instant::now()),
        };
        lane
    }
}
