//! The side of the process that writes.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::Mutex;
use pmem::{Domain, InFlight, Mapping};
use shm::Words;

use crate::record::{encode, len_of, place};
use crate::{BLOCKS_MAX, Connection, FOLDED, LANE_BYTES, Piece, Result, WORDS, seed, word_of};

/// A process's lane: threads take turns.
#[derive(Debug)]
pub struct Lane {
    memory: Mapping,
    words: Words,
    connection: Connection,
    seed: u32,
    end: Mutex<End>,
    /// So much of the room is taken that it should be folded.
    is_filling: AtomicBool,
}

/// How far it is written.
#[derive(Debug, Default)]
struct End {
    position: u64,
    /// The last request's.
    number: u64,
    /// The last record.
    bytes: Vec<u8>,
    /// What waits to be folded: where a record ends, and how many blocks it may need.
    waiting: VecDeque<(u64, u64)>,
    /// Their sum.
    blocks: u64,
}

impl End {
    /// What is folded waits no more.
    fn folded(&mut self, to: u64) {
        while let Some((_, blocks)) = self.waiting.front().filter(|(behind, _)| *behind <= to) {
            self.blocks -= blocks;
            self.waiting.pop_front();
        }
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It has happened, and is durable.
    Done,
    /// It has not: a lease that it relies on has been recalled.
    Closed,
    /// It has not: the service is to fold the lane first.
    Full,
    /// It has not: it is longer than a record.
    TooLong,
    /// The service knows whether request `number` happened: a lease was recalled meanwhile.
    Unknown {
        /// The request.
        number: u64,
    },
}

impl Lane {
    /// Over what the service gave.
    pub fn new(
        (lane, words): (File, File),
        domain: Domain,
        pool: &str,
        connection: Connection,
    ) -> Result<Lane> {
        let memory = Mapping::of_file(lane, domain)?;
        Lane::over(memory, &words, pool, connection)
    }

    /// The same over memory that is mapped.
    pub(crate) fn over(
        memory: Mapping,
        words: &File,
        pool: &str,
        connection: Connection,
    ) -> Result<Lane> {
        let words = Words::to_load(words.as_fd(), WORDS)?;
        let (seed, end) = (seed(pool, connection), Mutex::default());
        match memory.len() {
            LANE_BYTES => {
                Ok(Lane { memory, words, connection, seed, end, is_filling: false.into() })
            }
            _ => Err(shm::Error::Foreign.into()),
        }
    }

    /// Which connection's it is.
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// Whether the lease is still this process's.
    #[inline]
    pub fn is_open(&self, slot: u8, generation: u64) -> bool {
        self.words.load(word_of(usize::from(slot))) == generation
    }

    /// Whether a quarter of the room was taken when it was last stored to: if it is folded now,
    /// nobody will have to wait for that.
    #[inline]
    pub fn is_filling(&self) -> bool {
        // ordering: a hint
        self.is_filling.load(Ordering::Relaxed)
    }

    /// Makes these writes in one atomic step, under leases that cover them: durable when it returns
    /// [`Stored::Done`].
    pub fn commit(&self, pieces: &[Piece<'_>]) -> Stored {
        let Some(len) = len_of(pieces) else { return Stored::TooLong };
        let is_open = |piece: &Piece<'_>| self.is_open(piece.slot, piece.generation);
        if !pieces.iter().all(is_open) {
            return Stored::Closed;
        }
        let mut end = self.end.lock();
        let position = place(end.position, len);
        let folded = self.words.load(FOLDED);
        let blocks = pieces.iter().map(|piece| piece.blocks());
        let blocks: u64 = blocks.map(|blocks| blocks.end() - blocks.start() + 1).sum();
        end.folded(folded);
        if position + len as u64 > folded + LANE_BYTES || end.blocks + blocks > BLOCKS_MAX {
            return Stored::Full;
        }
        end.number += 1;
        let number = end.number;
        let (start, mut in_flight) = (position % LANE_BYTES, InFlight::none());
        let place = (self.seed, position);
        encode(&mut end.bytes, place, number, (pieces, len), |at, data| {
            let (stored, crc) = self.memory.write_crc(start + at as u64, data);
            in_flight = std::mem::replace(&mut in_flight, InFlight::none()).and(stored);
            crc
        });
        // the one before is durable: its fence was made by who stored it, holding the end
        let _clean = pmem::fence(in_flight.and(self.memory.write(start, &end.bytes)));
        end.position = position + len as u64;
        let behind = end.position;
        end.waiting.push_back((behind, blocks));
        end.blocks += blocks;
        let is_filling = behind - folded > LANE_BYTES / 4 || end.blocks > BLOCKS_MAX / 4;
        if is_filling != self.is_filling() {
            // ordering: a hint
            self.is_filling.store(is_filling, Ordering::Relaxed);
        }
        drop(end);
        // ordering: the record is seen by others before the words are loaded: the service, which
        // closes a word and then reads the lane, sees the record, or this sees the word
        fence(Ordering::SeqCst);
        match pieces.iter().all(is_open) {
            true => Stored::Done,
            false => Stored::Unknown { number },
        }
    }
}
