//! A connection whose lane and notes lie in memory that the caller gives, and not in files: for who
//! explores what a power cut leaves of them.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use fs::FileSystem;
use pmem::Mapping;
use shm::Words;

use crate::files::WORDS_BYTES;
use crate::recovery::end_leases;
use crate::state::{STATE_BYTES, State};
use crate::{Connection, Error, Files, LANE_BYTES, Lane, Ledger, Result, WORDS};

/// Bytes of the memory that what is noted of the leases needs.
pub const LEASES_BYTES: u64 = STATE_BYTES;
const COPIED_BYTES: usize = 4096;

/// What is lost with the power: the words, and what a service reads the lane through.
#[derive(Debug)]
pub struct Apart {
    pool: String,
    connection: Connection,
    read: File,
    words: File,
}

impl Apart {
    /// Of a connection to this pool.
    pub fn new(pool: &str, connection: Connection) -> Result<Apart> {
        let memory = |bytes| shm::create("nearside-lanes", bytes).map(File::from);
        let (read, words) = (memory(LANE_BYTES)?, memory(WORDS_BYTES)?);
        Ok(Apart { pool: pool.to_owned(), connection, read, words })
    }

    /// The side of the process, over the lane's memory.
    pub fn lane(&self, memory: Mapping) -> Result<Lane> {
        Lane::over(memory, &self.words, &self.pool, self.connection)
    }

    /// The side of the service, over the memory of what it notes: of a new connection.
    pub fn ledger(&self, fs: &FileSystem, leases: Mapping) -> Result<Ledger> {
        Ledger::new(fs, self.files(leases)?, &self.pool, self.connection)
    }

    /// What the lane's memory holds now is what the service reads from now on.
    pub fn see(&self, lane: &Mapping) -> Result<()> {
        let mut bytes = [0; COPIED_BYTES];
        for at in (0..LANE_BYTES).step_by(COPIED_BYTES) {
            lane.read(at, &mut bytes)?;
            // most of a lane has never been stored to
            if bytes != [0; COPIED_BYTES] {
                self.read.write_all_at(&bytes, at).map_err(Error::io("write"))?;
            }
        }
        Ok(())
    }

    /// What whoever opens the pool next does with it; how many leases there were.
    pub fn recover(&self, fs: &FileSystem, leases: Mapping) -> Result<usize> {
        let state = State::load(&leases, &self.pool, self.connection)?;
        end_leases(fs, (state, self.files(leases)?), &self.pool, self.connection)
    }

    fn files(&self, leases: Mapping) -> Result<Files> {
        let lane = self.read.try_clone().map_err(Error::io("dup"))?;
        let words = Words::to_store(self.words.as_fd(), WORDS)?;
        Ok(Files::apart(lane, words, leases, self.connection))
    }
}
