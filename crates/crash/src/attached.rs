//! A process that is attached: what it commits to its lane, and what the service does with that.
//!
//! The process stores on a thread of its own, and the service on its: no fence of the one orders
//! what the other stored.

use crate::catalog::{Op, op};
use crate::images::{Images, Outcome, failed};
use crate::world::{World, pattern};
use fs::{Blocks, Caller, Error, FileSystem, Ino, Result, SetAttr};
use lanes::apart::{Apart, LEASES_BYTES};
use lanes::{LANE_BYTES, Lane, Ledger, Piece, Stored, Target};
use pmem::Mapping;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the memory in which its service notes its leases, and of its lane.
pub const BYTES: [usize; 2] = [LEASES_BYTES as usize, LANE_BYTES as usize];

const CONNECTION: lanes::Connection = 0x51;

/// Which image is the first of a process's, if there is a process: no slice or device is as small.
pub fn begin_in(images: &Images) -> Option<usize> {
    let first = images.len().checked_sub(BYTES.len())?;
    (images[first].len() == BYTES[0]).then_some(first)
}

/// Both sides of a connection.
#[derive(Debug)]
pub struct Attached {
    apart: Apart,
    lane: Lane,
    /// The lane, to be read by the service.
    read: Mapping,
    ledger: Ledger,
    /// Of each slot that is leased, the file and the generation.
    leases: BTreeMap<u8, (Ino, u64)>,
    /// How much was stored, so that nothing is stored twice.
    stores: u8,
}

fn apart(fs: &FileSystem) -> Outcome<Apart> {
    Apart::new(&fs.info().uuid, CONNECTION).map_err(|error| failed("a lane")(&error))
}

/// What the next service does, first of all, with what the memory of a process's holds.
pub fn recover(fs: &FileSystem, [leases, lane]: [Mapping; 2]) -> Outcome<()> {
    let apart = apart(fs)?;
    apart.see(&lane).map_err(|error| failed("reading a lane")(&error))?;
    apart.recover(fs, leases).map(drop).map_err(|error| failed("recovering a lane")(&error))
}

impl Attached {
    /// A new one: what is noted of its leases, and its lane, in such memory.
    pub fn new(fs: &FileSystem, [leases, lane]: [Mapping; 2], read: Mapping) -> Outcome<Attached> {
        let apart = apart(fs)?;
        let lane = apart.lane(lane).map_err(|error| failed("attaching")(&error))?;
        let ledger = apart.ledger(fs, leases).map_err(|error| failed("serving")(&error))?;
        Ok(Attached { apart, lane, read, ledger, leases: BTreeMap::new(), stores: 0 })
    }

    fn fold(&mut self, fs: &FileSystem) -> Result<()> {
        self.apart.see(&self.read).map_err(wrong)?;
        self.ledger.fold(fs).map_err(wrong)
    }

    fn recall(&mut self, fs: &FileSystem, slot: u8) -> Result<()> {
        self.apart.see(&self.read).map_err(wrong)?;
        self.leases.remove(&slot);
        self.ledger.end_lease(fs, slot).map(drop).map_err(wrong)
    }
}

fn wrong(error: lanes::Error) -> Error {
    match error {
        lanes::Error::Files(error) => error,
        _ => Error::Invalid("a lane does not work"),
    }
}

/// Whether it is one of [`stores`], in which the process and its service do all.
pub fn is_by_process(op: &Op) -> bool {
    op.name.starts_with("lane-")
}

/// What somebody else does: before that the service recalls the leases.
pub fn by_another(world: &mut World, op: &Op) -> Result<()> {
    world.recall_all()?;
    (op.run)(world)
}

/// Operations of a process that is attached, and of its service for it.
pub fn stores() -> Vec<Op> {
    vec![
        op!("lane-lend", |w| w.lend(0, "/file", None).map(drop)),
        op!("lane-lend-lapped", lapped, |w| w.lend(1, "/heavy", None).map(drop)),
        op!("lane-write", leased, |w| w.store(&[("/file", 100, 64)])),
        op!("lane-write-block", leased, |w| w.store(&[("/file", 4096, 4096)])),
        op!("lane-write-across", leased, |w| w.store(&[("/file", 700, 9000)])),
        op!("lane-write-long", leased, |w| w.store(&[("/file", 0, lanes::BYTES_MAX)])),
        op!("lane-write-two", leased, |w| w.store(&[("/file", 50, 5000), ("/fardir/far", 0, 9)])),
        // with a lease that is given in the same call
        op!("lane-write-first", |w| w.store(&[("/heavy", 4000, 700)])),
        op!("lane-extend", leased, |w| w.store(&[("/file", 20_000, 300)])),
        op!("lane-begin", |w| w.store(&[("/attrs", 0, 100)])),
        op!("lane-set-id", set_id, |w| w.store(&[("/file", 5, 5)])),
        op!("lane-fold", stored, |w| w.fold(false)),
        op!("lane-fold-many", many, |w| w.fold(true)),
        op!("lane-room", stored, |w| w.fold(true)),
        op!("lane-recall", stored, |w| w.recall_all()),
        op!("lane-recall-many", many, |w| w.recall_all()),
        op!("lane-recall-and-write", stored, |w| {
            w.recall_all().and_then(|()| w.write("/file", 120, &pattern(9, 300)))
        }),
        op!("lane-recall-and-lend", stored, |w| {
            w.recall_all().and_then(|()| w.store(&[("/file", 130, 30)]))
        }),
        op!("lane-unlink", stored, |w| w.unlink("/file")),
        op!("lane-checkpoint", stored, |w| w.fold(true).and_then(|()| w.fs.checkpoint())),
        // records go to the beginning of the lane again
        op!("lane-lap", nearly_lapped, |w| w.store(&[("/file", 9, lanes::BYTES_MAX)])),
        // where records of the lap before are, which were as long, or were not
        op!("lane-lapped", lapped, |w| w.store(&[("/file", 9, lanes::BYTES_MAX)])),
        op!("lane-lapped-other", lapped, |w| w.store(&[("/file", 3, 6000)])),
        op!("lane-lapped-short", lapped_short, |w| w.store(&[("/file", 100, 64)])),
    ]
}

fn leased(world: &mut World) -> Result<()> {
    world.lend(0, "/file", None).and_then(|_| world.lend(1, "/fardir/far", None)).map(drop)
}

fn stored(world: &mut World) -> Result<()> {
    leased(world)?;
    world.store(&[("/file", 100, 64)])?;
    world.store(&[("/file", 90, 5000), ("/fardir/far", 0, 100)])?;
    world.store(&[("/file", 8192, 4096)])
}

/// More records than the service folds in one change.
fn many(world: &mut World) -> Result<()> {
    (0..70).try_for_each(|number| world.store(&[("/file", number * 37, 50)]))
}

fn set_id(world: &mut World) -> Result<()> {
    let change = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
    world.fs.setattr(world.ino("/file")?, &change)?;
    let caller = Arc::new(Caller::new(7, 8, Vec::new()));
    world.lend(0, "/file", Some(caller)).map(drop)
}

/// The longest records, so many that no other fits in before the lane's end, and folded.
fn nearly_lapped(world: &mut World) -> Result<()> {
    (0..LONGEST).try_for_each(|_| world.store(&[("/file", 0, lanes::BYTES_MAX)]))?;
    world.fold(true)
}

/// So many again, but for two, from the lane's beginning on, and not folded.
fn lapped(world: &mut World) -> Result<()> {
    nearly_lapped(world)?;
    (0..LONGEST - 2).try_for_each(|_| world.store(&[("/file", 9, lanes::BYTES_MAX)]))
}

/// A short record at the lane's beginning, and others up to its very end, all folded.
fn lapped_short(world: &mut World) -> Result<()> {
    let whole = LANE_BYTES as usize;
    let (head, longest) = (64, LONGEST * (64 + lanes::BYTES_MAX));
    world.store(&[("/file", 100, 64)])?;
    (0..LONGEST).try_for_each(|_| world.store(&[("/file", 0, lanes::BYTES_MAX)]))?;
    world.store(&[("/file", 0, whole - (head + 64) - longest - head)])?;
    world.fold(true)
}

const LONGEST: usize = LANE_BYTES as usize / lanes::BYTES_MAX - 1;

const NOBODY: Error = Error::Invalid("no process is attached");

impl World {
    fn process(&mut self) -> Result<(&FileSystem, &mut Attached)> {
        Ok((&self.fs, self.attached.as_mut().ok_or(NOBODY)?))
    }

    /// Sees to it that all of a file is leased by this slot; its generation.
    fn lend(&mut self, slot: u8, path: &str, caller: Option<Arc<Caller>>) -> Result<u64> {
        let handle = self.open(path)?;
        let (fs, attached) = self.process()?;
        match attached.leases.get(&slot) {
            Some((ino, generation)) if *ino == handle.ino() => return Ok(*generation),
            Some(_) => attached.recall(fs, slot)?,
            None => {}
        }
        let ino = handle.ino();
        let blocks = Blocks { ino, blocks: 0..=u64::MAX };
        let lent = attached.ledger.lend(slot, blocks, Target { handle, caller });
        let generation = lent.ok_or(Error::Invalid("it is leased already"))?;
        attached.leases.insert(slot, (ino, generation));
        Ok(generation)
    }

    /// The process writes so many bytes at places of files, in one step.
    fn store(&mut self, writes: &[(&str, u64, usize)]) -> Result<()> {
        let mut leases = Vec::new();
        for (slot, (path, ..)) in (0..).zip(writes) {
            leases.push((slot, self.lend(slot, path, None)?));
        }
        let (_, attached) = self.process()?;
        attached.stores = attached.stores.wrapping_add(1);
        let seed = attached.stores;
        let data: Vec<Vec<u8>> =
            (seed..).zip(writes).map(|(seed, (.., len))| pattern(seed, *len)).collect();
        let places = leases.iter().zip(writes).zip(&data);
        let pieces: Vec<Piece<'_>> = places
            .map(|(((slot, generation), (_, offset, _)), data)| Piece {
                slot: *slot,
                generation: *generation,
                offset: *offset,
                data,
            })
            .collect();
        let commit = |world: &World| {
            world.on_thread(|world| world.attached.as_ref().map(|own| own.lane.commit(&pieces)))
        };
        let mut stored = commit(self);
        if stored == Some(Stored::Full) {
            self.fold(true)?;
            stored = commit(self);
        }
        match stored {
            Some(Stored::Done) => Ok(()),
            _ => Err(Error::Invalid("the lane takes nothing")),
        }
    }

    /// The service folds the lane, and tells of the room.
    fn fold(&mut self, gives_room: bool) -> Result<()> {
        let (fs, attached) = self.process()?;
        attached.fold(fs)?;
        match !gives_room || attached.ledger.give_room() {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// The service ends all leases.
    fn recall_all(&mut self) -> Result<()> {
        let (fs, attached) = self.process()?;
        let slots: Vec<u8> = attached.leases.keys().copied().collect();
        slots.into_iter().try_for_each(|slot| attached.recall(fs, slot))
    }
}
