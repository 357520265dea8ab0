//! The service's side of a connection: its leases, and folding its lane.

use std::ops::Range;
use std::sync::Arc;

use fs::{Blocks, Caller, FileSystem, Handle, Spare, Write};
use rustix::io::Errno;
use smallvec::SmallVec;

use crate::reader::{self, Part, Place};
use crate::record::Record;
use crate::state::State;
use crate::{
    BLOCKS_MAX, Connection, Error, FOLDED, Files, LANE_BYTES, Result, SLOTS, SPARE, seed, word_of,
};

/// Records that one change of the pool's folds.
const RECORDS_MAX: usize = 64;
/// Bytes that one change of the pool's folds, about.
const BYTES_MAX: usize = 48 << 10;
/// The words say that there is room when so much is folded more.
const ROOM_STEP: u64 = LANE_BYTES / 16;

/// A file of which something is leased.
#[derive(Clone, Debug)]
pub struct Target {
    /// The file.
    pub handle: Arc<Handle>,
    /// Who opened it for writing, and whose writes take set-id bits away.
    pub caller: Option<Arc<Caller>>,
}

/// Whether a request happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It did.
    Yes,
    /// It did not, and never will.
    No,
    /// Its leases are of before those that are known.
    Forgotten,
}

/// What the service knows of a connection. Its calls come one after the other.
#[derive(Debug)]
pub struct Ledger {
    files: Files,
    pool: String,
    seed: u32,
    state: State,
    /// How far the lane is folded, which may not be noted yet.
    folded: u64,
    targets: Vec<Option<Target>>,
    /// Of each slot, writes that were folded.
    writes: [u64; SLOTS],
    part: Part,
    spare: Spare,
    /// The pool takes no changes: what is in the lane is for whoever opens it next.
    is_stuck: bool,
}

/// What is known of a connection that has ended.
#[derive(Clone, Debug)]
pub struct Ended(Option<State>);

impl Ended {
    /// Whether request `number`, which relied on this lease, happened.
    pub fn happened(&self, slot: u8, generation: u64, number: u64) -> Happened {
        let known = self.0.as_ref().map(|state| state.happened(slot, generation, number));
        known.unwrap_or(Happened::Forgotten)
    }
}

/// A record that is to happen: of each piece the slot, the offset in the file, and where its bytes
/// are in the lane.
type Taken = SmallVec<[(usize, u64, Range<u64>); 2]>;

/// Records to be folded at once.
#[derive(Default)]
struct Batch {
    records: Vec<Taken>,
    bytes: usize,
    folded: u64,
    number: u64,
}

impl Ledger {
    /// Of a new connection.
    ///
    /// # Errors
    /// There is no room for what may wait in a lane.
    pub fn new(
        fs: &FileSystem,
        files: Files,
        pool: &str,
        connection: Connection,
    ) -> Result<Ledger> {
        let mut ledger = Ledger::of(fs, files, pool, connection, State::new(connection));
        if let Err(error) = ledger.spare.refill(SPARE) {
            ledger.files.remove();
            return Err(error.into());
        }
        // both copies are there before anything relies on what they say
        ledger.note();
        ledger.note();
        Ok(ledger)
    }

    pub(crate) fn of(
        fs: &FileSystem,
        files: Files,
        pool: &str,
        connection: Connection,
        state: State,
    ) -> Ledger {
        Ledger {
            files,
            pool: pool.to_owned(),
            seed: seed(pool, connection),
            folded: state.folded,
            state,
            targets: vec![None; SLOTS],
            writes: [0; SLOTS],
            part: Part::default(),
            spare: Spare::new(fs),
            is_stuck: false,
        }
    }

    /// Of which file a slot's lease is.
    pub(crate) fn is_of(&mut self, slot: u8, target: Target) {
        if let Some(own) = self.targets.get_mut(usize::from(slot)) {
            *own = Some(target);
        }
    }

    /// Notes a lease of `blocks` and lets the process write there; gives its generation. `None`:
    /// the slot has one, or the pool takes no changes.
    pub fn lend(&mut self, slot: u8, blocks: Blocks, target: Target) -> Option<u64> {
        let index = usize::from(slot);
        let slots = Some(&mut self.state.slots).filter(|_| !self.is_stuck)?;
        let own = slots.get_mut(index).filter(|slot| !slot.is_leased)?;
        own.generation += 1;
        own.blocks = blocks;
        own.is_leased = true;
        own.drops_set_id = target.caller.as_ref().is_some_and(|caller| !caller.is_root());
        let generation = own.generation;
        self.targets[index] = Some(target);
        self.note();
        self.files.words.store(word_of(index), generation);
        Some(generation)
    }

    /// Ends a lease: the lane is folded, and what comes later does not happen. Durable when it
    /// returns. Gives the file that it was of.
    ///
    /// # Errors
    /// The lane could not be folded: the lease has ended all the same; but in a pool that takes no
    /// changes any more, where only the process may not use it.
    pub fn end_lease(&mut self, fs: &FileSystem, slot: u8) -> Result<Option<Target>> {
        let index = usize::from(slot);
        if !self.state.slots.get(index).is_some_and(|slot| slot.is_leased) {
            return Ok(None);
        }
        // a record that is stored after this names a lease that nobody has
        self.files.words.store(word_of(index), 0);
        let folded = self.fold(fs);
        if self.is_stuck {
            return folded.map(|()| None);
        }
        let number = self.state.number;
        let own = &mut self.state.slots[index];
        own.is_leased = false;
        own.closed_at = number;
        self.note();
        let target = self.targets[index].take();
        folded.map(|()| target)
    }

    /// Folds all that is in the lane.
    ///
    /// # Errors
    /// Something could not be folded: a failed medium. It is kept beside the pool, and what follows
    /// it is folded. A pool that takes no changes any more leaves all in the lane, for its next
    /// open.
    pub fn fold(&mut self, fs: &FileSystem) -> Result<()> {
        let mut result = Ok(());
        // a process that goes on storing keeps nobody here: what was there when this was called
        // ends before that
        let end = self.folded + LANE_BYTES;
        while self.folded < end
            && let Some(batch) = self.next_batch()?
        {
            let folded = self.fold_batch(fs, &batch, true);
            if self.is_stuck {
                return folded;
            }
            result = result.and(folded);
            self.pass(&batch);
            if self.folded - self.state.folded >= ROOM_STEP {
                self.give_room();
            }
        }
        // who asks for the next fold may have stored one record, or none
        self.part.clear();
        result
    }

    /// Folds what was left of a connection whose process and service have ended, and then ends all
    /// of its leases: nothing is noted before all of it is in the pool.
    ///
    /// # Errors
    /// Something could not be folded. Nothing is lost: it can be tried again. What never could be,
    /// for the medium has failed, is no error: it is kept beside the pool.
    pub(crate) fn end_all(&mut self, fs: &FileSystem) -> Result<()> {
        // a process that lives on learns that what it stores after this does not happen
        (0..SLOTS).for_each(|slot| self.files.words.store(word_of(slot), 0));
        while let Some(batch) = self.next_batch()? {
            match self.fold_batch(fs, &batch, false) {
                Err(Error::Kept { .. }) | Ok(()) => self.pass(&batch),
                failed => return failed,
            }
        }
        for slot in self.state.slots.iter_mut().filter(|slot| slot.is_leased) {
            (slot.is_leased, slot.closed_at) = (false, self.state.number);
        }
        self.note();
        Ok(())
    }

    /// Tells the process of all the room that there is. False: there are too few blocks for what it
    /// would store there, and it is told nothing; the leases are to be ended.
    pub fn give_room(&mut self) -> bool {
        if !self.is_secure() {
            return false;
        }
        if self.folded != self.state.folded {
            self.note();
        }
        self.files.words.store(FOLDED, self.folded);
        true
    }

    /// How many writes under leases of this slot were folded: the same number as before, there was
    /// none.
    pub fn writes(&self, slot: u8) -> u64 {
        self.writes.get(usize::from(slot)).copied().unwrap_or(0)
    }

    /// Finds spare blocks in the place of those that folding took. False: there are too few for
    /// what may come; the leases are to be ended.
    pub fn is_secure(&mut self) -> bool {
        self.spare.refill(SPARE).is_ok() || self.spare.blocks() >= BLOCKS_MAX as usize
    }

    /// Notes how far the lane is folded.
    fn note(&mut self) {
        self.state.folded = self.folded;
        self.state.store(&self.files.leases, &self.pool);
    }

    /// Whether request `number`, which relied on this lease, happened; the lane is folded.
    pub fn happened(&self, slot: u8, generation: u64, number: u64) -> Happened {
        match self.is_stuck {
            true => Happened::Forgotten,
            false => self.state.happened(slot, generation, number),
        }
    }

    /// Whether the slot has a lease.
    pub fn has_lease(&self, slot: u8) -> bool {
        self.state.slots.get(usize::from(slot)).is_some_and(|slot| slot.is_leased)
    }

    /// All leases have ended: the lane goes, and what is noted stays for who asks.
    pub(crate) fn end(&self) {
        self.files.end();
    }

    /// All leases have ended: the files go, unless the next open is to fold what they have. What is
    /// known of them is for who asks.
    pub fn remove(&mut self) -> Ended {
        if !self.is_stuck {
            self.files.remove();
        }
        self.part = Part::default();
        Ended((!self.is_stuck).then(|| self.state.clone()))
    }

    /// What is in the batch is folded.
    fn pass(&mut self, batch: &Batch) {
        (self.folded, self.state.number) = (batch.folded, batch.number);
    }

    /// The next records, judged.
    fn next_batch(&mut self) -> Result<Option<Batch>> {
        let mut batch =
            Batch { folded: self.folded, number: self.state.number, ..Batch::default() };
        let place = Place { position: self.folded, end: self.state.folded + LANE_BYTES };
        let state = &self.state;
        let each = &mut |record: &Record<'_>, at, behind| {
            if state.covers(record, batch.number) {
                batch.add(record, at);
            }
            batch.folded = behind;
            batch.records.len() < RECORDS_MAX && batch.bytes < BYTES_MAX
        };
        reader::read(&self.files.lane, self.seed, place, &mut self.part, each)?;
        Ok(Some(batch).filter(|batch| batch.folded != self.folded))
    }

    /// Folds a batch. What the medium refuses is kept beside the pool, and, if `keeps_all`, what is
    /// refused for any other reason, too; without that it is an error to go on after.
    fn fold_batch(&mut self, fs: &FileSystem, batch: &Batch, keeps_all: bool) -> Result<()> {
        if batch.records.is_empty() || self.fold_records(fs, &batch.records).is_ok() {
            return Ok(());
        }
        // more than one change may be, or one that fails: each for itself
        let mut result = Ok(());
        for record in &batch.records {
            let Err(error) = self.fold_records(fs, std::slice::from_ref(record)) else { continue };
            self.is_stuck |= error.is_poisoned();
            if self.is_stuck || !keeps_all && error.errno() != Errno::IO.raw_os_error() {
                return Err(error.into());
            }
            let error = self.keep(record, error);
            let is_kept = matches!(error, Error::Kept { .. });
            result = Err(error);
            if !keeps_all && !is_kept {
                break;
            }
        }
        result
    }

    /// Keeps a record that cannot be folded, for this reason, beside the pool, and says so.
    fn keep(&self, record: &Taken, source: fs::Error) -> Error {
        let pieces = record.iter().map(|(slot, offset, place)| {
            (self.state.slots[*slot].blocks.ino, *offset, self.part.bytes(place))
        });
        match self.files.keep(pieces) {
            Ok(path) => {
                let error = Error::Kept { path, source };
                tracing::error!("{error}");
                error
            }
            Err(error) => {
                tracing::error!(
                    "what an attached process had committed is lost: {source}; {error}"
                );
                source.into()
            }
        }
    }

    fn fold_records(&mut self, fs: &FileSystem, records: &[Taken]) -> fs::Result<()> {
        let mut writes = Vec::with_capacity(records.len());
        // a lane is one process's
        let mut caller = None;
        for (slot, offset, place) in records.iter().flatten() {
            self.writes[*slot] += 1;
            let Some(target) = &self.targets[*slot] else { continue };
            caller = target.caller.clone().or(caller);
            let data = self.part.bytes(place);
            fs.expect_write(&target.handle, *offset, data.len());
            writes.push(Write { file: &target.handle, offset: *offset, data });
        }
        let commit = || fs.commit(&writes, &[]);
        fs::folding(&mut self.spare, || fs::changing_by(caller.as_ref(), commit))
    }
}

impl Batch {
    fn add(&mut self, record: &Record<'_>, at: u64) {
        let places = record.pieces.iter().zip(record.places(at)).map(|(piece, place)| {
            self.bytes += piece.data.len();
            (usize::from(piece.slot), piece.offset, place)
        });
        self.records.push(places.collect());
        self.number = record.number;
    }
}
