//! Transactions: writes that happen together or not at all, and reads that see them before.

use crate::error::{Error, Result};
use crate::overlay::Overlay;
use crate::region::{Inner, Of, Region};
use crate::regions::Regions;
use crate::transaction_there::SeenThere;
use fs::{Expected, FileSystem, Handle, Watch, Write};
use std::borrow::Borrow;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What reads of a transaction see of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// What is committed when it is read; each read by itself is of one moment.
    #[default]
    Committed,
    /// All reads are of one moment; and what it writes, nobody else wrote since then.
    Snapshot,
    /// It is as if no other transaction had happened from its first read to its commit.
    Serialisable,
}

/// Bytes of a file, and where they lie in the transaction's own memory.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) region: Arc<Inner>,
    /// Where in the file.
    pub(crate) offset: u64,
    /// Where in the transaction's memory.
    pub(crate) at: Range<usize>,
    /// Of bytes that were read: they must be there still when it commits.
    pub(crate) is_expected: bool,
}

impl Piece {
    fn file(&self) -> Result<&Handle> {
        self.region.here().map(|file| &**file)
    }
}

/// Memory that a thread keeps for its next transaction.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) writes: Vec<Piece>,
    pub(crate) reads: Vec<Piece>,
    /// The files that were read, and how far they had changed when all that was read was there.
    watches: Vec<(Watch, u64)>,
    /// The same of files that a service has.
    pub(crate) seen: SeenThere,
    pub(crate) bytes: Vec<u8>,
    /// Of a long transaction: so many of its writes by place.
    overlay: Overlay,
    in_overlay: usize,
}

/// Writes that a read looks at one by one.
const LINEAR_MAX: usize = 32;

/// Memory that is kept, at most.
const ROOM_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static ROOM: Cell<Option<Room>> = const { Cell::new(None) };
}

/// A transaction: ends when it is committed, aborted or dropped. Nothing that it writes is seen by
/// others, or durable, before it has committed.
#[derive(Debug)]
pub struct Transaction<R: Borrow<Regions>> {
    regions: R,
    isolation: Isolation,
    room: Room,
    /// What it read has changed: it cannot commit.
    is_doomed: bool,
}

impl<R: Borrow<Regions>> Drop for Transaction<R> {
    fn drop(&mut self) {
        let mut room = std::mem::take(&mut self.room);
        room.writes.clear();
        room.reads.clear();
        room.watches.clear();
        room.seen.clear();
        room.bytes.clear();
        if room.in_overlay > 0 {
            (room.overlay, room.in_overlay) = (Overlay::default(), 0);
        }
        if room.bytes.capacity() <= ROOM_BYTES_MAX {
            ROOM.set(Some(room));
        }
    }
}

impl Regions {
    /// Begins a transaction whose reads see what is committed.
    #[inline]
    pub fn begin(&self) -> Result<Transaction<&Regions>> {
        self.begin_with(Isolation::Committed)
    }

    /// Begins a transaction.
    #[inline]
    pub fn begin_with(&self, isolation: Isolation) -> Result<Transaction<&Regions>> {
        Transaction::begin(self, isolation)
    }

    /// Runs `act` in a transaction and commits it; again, while another one was faster. `act` must
    /// have no other effects, and nothing is committed where it fails.
    pub fn transact<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        mut act: impl FnMut(&mut Transaction<&Regions>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut tries = 0u32;
        loop {
            let mut transaction = self.begin_with(isolation)?;
            let value = act(&mut transaction);
            let done = match (value, transaction.is_doomed) {
                (Ok(value), false) => transaction.commit().map(|()| value),
                (Err(error), false) => return Err(error),
                (_, true) => Err(Error::File(fs::Error::Conflict)),
            };
            match done {
                Ok(value) => return Ok(value),
                Err(error) if error.is_conflict() => {
                    tries += 1;
                    back_off(tries);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Reads bytes, and all of what was read before again, while nobody can change any of it. False:
/// not all of that is there any more.
fn see_again(
    fs: &FileSystem,
    reads: &[Piece],
    before: &[u8],
    new: (&Handle, u64, &mut [u8]),
) -> Result<bool> {
    let mut now: Vec<Vec<u8>> = reads.iter().map(|read| vec![0; read.at.len()]).collect();
    let again = reads.iter().zip(&mut now);
    let again = again.map(|(read, now)| Ok((read.file()?, read.offset, now.as_mut_slice())));
    let all: Result<Vec<(&Handle, u64, &mut [u8])>> = again.chain([Ok(new)]).collect();
    let mut all = all?;
    fs.read_together(&mut all)?;
    Ok(reads.iter().zip(&now).all(|(read, now)| before[read.at.clone()] == **now))
}

/// Waits a while, longer each time: of several that are in each other's way one gets through.
fn back_off(tries: u32) {
    if tries < 4 {
        return std::thread::yield_now();
    }
    let spread = std::process::id().wrapping_mul(tries).wrapping_mul(2_654_435_761) >> 24;
    let most = 1u64 << tries.min(10);
    std::thread::sleep(std::time::Duration::from_micros(most + u64::from(spread) % most));
}

impl<R: Borrow<Regions>> Transaction<R> {
    /// Begins a transaction that holds its regions itself, for who keeps it for a while.
    #[inline]
    pub fn begin(regions: R, isolation: Isolation) -> Result<Transaction<R>> {
        regions.borrow().check_process()?;
        let room = ROOM.take().unwrap_or_default();
        Ok(Transaction { regions, isolation, room, is_doomed: false })
    }

    /// Puts bytes at `offset` of the region when it commits, over what is there.
    #[inline]
    pub fn write(&mut self, region: &Region, offset: usize, data: &[u8]) -> Result<()> {
        self.write_in(region.inner(), offset, data)
    }

    /// The same at an address inside a region.
    pub fn write_at(&mut self, address: *const u8, data: &[u8]) -> Result<()> {
        self.regions.borrow().check_process()?;
        let (region, at) = self.regions.borrow().find(address as usize).ok_or(Error::Outside)?;
        self.write_in(&region, at, data)
    }

    /// Puts a value there.
    #[inline]
    pub fn put<T: IntoBytes + Immutable>(
        &mut self,
        region: &Region,
        offset: usize,
        value: &T,
    ) -> Result<()> {
        self.write(region, offset, value.as_bytes())
    }

    fn write_in(&mut self, region: &Arc<Inner>, offset: usize, data: &[u8]) -> Result<()> {
        self.check(region, offset, data.len())?;
        if !region.is_writable {
            return Err(Error::ReadOnly);
        }
        if data.is_empty() {
            return Ok(());
        }
        if self.isolation == Isolation::Snapshot {
            // what it replaces must be there still
            self.see(region, offset, data.len(), true)?;
        }
        // what the commit will look at and store to is on its way meanwhile
        region.expect_store(offset, data.len());
        let place = region.offset + offset as u64;
        if let (Of::Here(file), Some(fs)) = (&region.of, region.shared.fs()) {
            fs.expect_write(file, place, data.len());
        }
        let from = self.room.bytes.len();
        self.room.bytes.extend_from_slice(data);
        let piece = Piece {
            region: region.clone(),
            offset: region.offset + offset as u64,
            at: from..from + data.len(),
            is_expected: false,
        };
        self.room.writes.push(piece);
        Ok(())
    }

    fn check(&self, region: &Arc<Inner>, offset: usize, len: usize) -> Result<()> {
        self.regions.borrow().check_process()?;
        if !Arc::ptr_eq(&region.shared, self.regions.borrow().shared()) {
            return Err(Error::OtherPool);
        }
        let end = offset.checked_add(len).filter(|end| *end <= region.bytes);
        if end.is_some() { Ok(()) } else { Err(Error::Outside) }
    }

    /// Reads the bytes at `offset` of the region, with what this transaction wrote there.
    ///
    /// # Errors
    /// A conflict ([`Error::is_conflict`]): not all that was read can be of one moment any more.
    pub fn read(&mut self, region: &Region, offset: usize, buffer: &mut [u8]) -> Result<()> {
        self.read_in(region.inner(), offset, buffer)
    }

    /// The same at an address inside a region.
    pub fn read_at(&mut self, address: *const u8, buffer: &mut [u8]) -> Result<()> {
        self.regions.borrow().check_process()?;
        let (region, at) = self.regions.borrow().find(address as usize).ok_or(Error::Outside)?;
        self.read_in(&region, at, buffer)
    }

    /// Reads a value from there.
    pub fn get<T: FromBytes + IntoBytes>(&mut self, region: &Region, offset: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read(region, offset, value.as_mut_bytes())?;
        Ok(value)
    }

    fn read_in(&mut self, region: &Arc<Inner>, offset: usize, buffer: &mut [u8]) -> Result<()> {
        self.check(region, offset, buffer.len())?;
        if buffer.is_empty() {
            return Ok(());
        }
        if fs::is_region_memory(buffer) {
            return Err(Error::File(fs::Error::RegionMemory));
        }
        let place = region.offset + offset as u64;
        if self.isolation == Isolation::Committed {
            let read = match region.shared.fs() {
                Some(fs) => fs.read(region.here()?, place, buffer)?,
                None => region.read_there(place, buffer)?,
            };
            buffer[read..].fill(0);
        } else {
            let is_expected = self.isolation == Isolation::Serialisable;
            let at = self.see(region, offset, buffer.len(), is_expected)?;
            buffer.copy_from_slice(&self.room.bytes[at]);
        }
        self.add_own(region, place, buffer);
        Ok(())
    }

    /// Puts what was written over what was read.
    fn add_own(&mut self, region: &Arc<Inner>, place: u64, buffer: &mut [u8]) {
        if self.room.writes.len() > LINEAR_MAX {
            return self.add_from_overlay(region, place, buffer);
        }
        let end = place + buffer.len() as u64;
        for write in &self.room.writes {
            let stop = write.offset + write.at.len() as u64;
            let (low, high) = (write.offset.max(place), stop.min(end));
            if low < high && write.region.ino() == region.ino() {
                let from = write.at.start + (low - write.offset) as usize;
                let bytes = &self.room.bytes[from..from + (high - low) as usize];
                buffer[(low - place) as usize..(high - place) as usize].copy_from_slice(bytes);
            }
        }
    }

    #[cold]
    fn add_from_overlay(&mut self, region: &Arc<Inner>, place: u64, buffer: &mut [u8]) {
        let Room { writes, bytes, overlay, in_overlay, .. } = &mut self.room;
        for write in &writes[*in_overlay..] {
            let range = write.offset..write.offset + write.at.len() as u64;
            overlay.put(write.region.ino(), range, write.at.start);
        }
        *in_overlay = writes.len();
        let range = place..place + buffer.len() as u64;
        overlay.within(region.ino(), range, &mut |part, at| {
            let to = (part.start - place) as usize..(part.end - place) as usize;
            buffer[to.clone()].copy_from_slice(&bytes[at..at + to.len()]);
        });
    }

    /// Reads bytes that are to be of the same moment as all that were read before.
    fn see(
        &mut self,
        region: &Arc<Inner>,
        offset: usize,
        len: usize,
        is_expected: bool,
    ) -> Result<Range<usize>> {
        let from = self.room.bytes.len();
        let at = from..from + len;
        let place = region.offset + offset as u64;
        let Room { reads, watches, bytes, .. } = &mut self.room;
        let Some(fs) = region.shared.fs() else {
            let seen = self.room.see_there(region, place, at.clone(), is_expected)?;
            self.is_doomed = !seen;
            return if seen { Ok(at) } else { Err(Error::File(fs::Error::Conflict)) };
        };
        let file = region.here()?;
        if !watches.iter().any(|(watch, _)| watch.is_of(file)) {
            let watch = fs.watch(file);
            let changes = watch.changes();
            watches.push((watch, changes));
        }
        bytes.resize(at.end, 0);
        let (before, new) = bytes.split_at_mut(from);
        fs.read_together(&mut [(file, place, &mut *new)])?;
        // where nothing changed since all of the others were there, all are of this moment
        if watches.iter().any(|(watch, seen)| watch.changes() != *seen) {
            watches.iter_mut().for_each(|(watch, seen)| *seen = watch.changes());
            if !see_again(fs, reads, before, (file, place, new))? {
                self.is_doomed = true;
                return Err(Error::File(fs::Error::Conflict));
            }
        }
        reads.push(Piece { region: region.clone(), offset: place, at: at.clone(), is_expected });
        Ok(at)
    }

    /// Makes all that was written happen, in one step, durably: no later than when this returns,
    /// others see it, and no crash takes it away.
    ///
    /// # Errors
    /// A conflict ([`Error::is_conflict`]): another transaction was faster, and this one did not
    /// happen. Any other error: it did not happen either; but where a pool in the `sync` domain
    /// could not be synced, it happened, the pool takes nothing more, and a power cut may undo it.
    pub fn commit(mut self) -> Result<()> {
        self.regions.borrow().check_process()?;
        if self.is_doomed {
            return Err(Error::File(fs::Error::Conflict));
        }
        let caller = self.regions.borrow().caller.clone();
        fs::changing_by(caller.as_ref(), || self.apply())
    }

    fn apply(&mut self) -> Result<()> {
        let Room { writes, reads, bytes, .. } = &self.room;
        let Some(fs) = self.regions.borrow().fs() else {
            return self.room.commit_there(self.regions.borrow());
        };
        if let ([one], []) = (&writes[..], &reads[..]) {
            let data = &bytes[one.at.clone()];
            fs.commit(&[Write { file: one.file()?, offset: one.offset, data }], &[])?;
        } else if writes.is_empty() {
            return Ok(()); // reads were of one moment
        } else {
            let of = |it: &'_ Piece| (it.offset, it.at.clone());
            let all = writes.iter().map(|it| {
                let (file, (offset, at)) = (it.file()?, of(it));
                Ok(Write { file, offset, data: &bytes[at] })
            });
            let expected = reads.iter().filter(|it| it.is_expected).map(|it| {
                let (file, (offset, at)) = (it.file()?, of(it));
                Ok(Expected { file, offset, data: &bytes[at] })
            });
            let all: Vec<_> = all.collect::<Result<_>>()?;
            fs.commit(&all, &expected.collect::<Result<Vec<_>>>()?)?;
        }
        Ok(fs.sync()?)
    }

    /// Ends it: nothing of it happened.
    pub fn abort(self) {}
}
