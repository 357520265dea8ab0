//! The lanes of a log under every order of two appenders' and a cut's steps: no two records share a
//! byte, a lane starts a record only after the fence of its previous one, stamps grow along a lane
//! and along an object, a cut parts the records exactly, and a full log takes nothing and goes on
//! after a checkpoint.
//!
//! The source files are the engine's own; only locks and atomics are loom's. Between a record's
//! store and its fence no thread is changed: the hook of the stores would not know whose it is.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/log.rs"]
mod log;
#[path = "../src/record.rs"]
mod record;
#[path = "../src/scan.rs"]
mod scan;
#[path = "common/mod.rs"]
mod sync;

mod error {
    pub use pool::{Error, Result};
}

mod superblock {
    pub use pool::{BLOCK_BYTES, Superblock};
    /// As the format says.
    pub const LOG_BLOCK: u64 = 16;
}

use error::Error;
use gate::Gate;
use log::SliceLog;
use loom::sync::{Arc, Mutex};
use loom::thread;
use pmem::recorder::{Event, EventKind, Recorder};
use pmem::{Domain, InFlight, Mapping};
use record::{KIND_CHANGE, RecordBuffer, UNIT_BYTES};
use std::sync::Mutex as StdMutex;
use superblock::Superblock;

/// Room for the header and two records.
const CHUNK_BYTES: usize = 3 * UNIT_BYTES;
const LOG_START: u64 = superblock::LOG_BLOCK * superblock::BLOCK_BYTES;

/// Looks at every store: which units hold a record, which of these are not fenced yet.
#[derive(Default)]
struct Watch {
    taken: StdMutex<Vec<bool>>,
    unfenced: StdMutex<Vec<usize>>,
}

impl Watch {
    fn new(chunks: usize) -> Watch {
        let taken = vec![false; chunks * CHUNK_BYTES / UNIT_BYTES];
        Watch { taken: StdMutex::new(taken), unfenced: StdMutex::default() }
    }

    /// A checkpoint released all chunks.
    fn forget(&self) {
        self.taken.lock().unwrap().fill(false);
    }

    fn all_fenced(&self) -> bool {
        self.unfenced.lock().unwrap().is_empty()
    }

    fn stored(&self, offset: u64, len: usize) {
        let first = (offset - LOG_START) as usize / UNIT_BYTES;
        let mut taken = self.taken.lock().unwrap();
        for unit in first..first + len / UNIT_BYTES {
            assert!(!taken[unit], "unit {unit} of the log was written twice");
            taken[unit] = true;
            let chunk = unit * UNIT_BYTES / CHUNK_BYTES;
            let is_header = unit * UNIT_BYTES == chunk * CHUNK_BYTES;
            let mut unfenced = self.unfenced.lock().unwrap();
            if !is_header {
                assert!(!unfenced.contains(&chunk), "a record before the fence of the previous");
                unfenced.push(chunk);
            }
        }
    }
}

impl Recorder for Watch {
    fn event(&self, event: Event<'_>) {
        match event.kind {
            EventKind::Store { offset, data } | EventKind::NtStore { offset, data } => {
                self.stored(offset, data.len());
            }
            EventKind::Fence => self.unfenced.lock().unwrap().clear(),
            EventKind::Flush { .. } | EventKind::Sync => {}
        }
    }
}

/// What an append returned, and the stamp that it had to exceed.
#[derive(Clone, Copy, Debug)]
struct Appended {
    stamp: u64,
    after: u64,
}

struct World {
    gate: Gate,
    log: SliceLog,
    mapping: Mapping,
    superblock: Superblock,
    watch: std::sync::Arc<Watch>,
    /// The stamps of two objects, each with its lock.
    objects: [Mutex<u64>; 2],
}

impl World {
    fn new(chunks: usize, lanes: usize) -> Arc<World> {
        let mut superblock: Superblock = zerocopy::FromZeros::new_zeroed();
        superblock.chunk_bytes.set(CHUNK_BYTES as u32);
        superblock.log_bytes.set((chunks * CHUNK_BYTES) as u64);
        let mapping = Mapping::memory(LOG_START as usize + 4096, Domain::Process).unwrap();
        let watch = std::sync::Arc::new(Watch::new(chunks));
        mapping.set_recorder(Some(watch.clone()));
        Arc::new(World {
            gate: Gate::new(2),
            log: SliceLog::new(&superblock, lanes, 1, 1),
            mapping,
            superblock,
            watch,
            objects: Default::default(),
        })
    }

    /// A change of `object` by the thread on `cpu`, as the engine makes it.
    fn change(&self, cpu: usize, object: usize) -> Result<Appended, Error> {
        let _entered = self.gate.enter(cpu);
        let mut newest = self.objects[object].lock().unwrap();
        let after = *newest;
        let mut record = RecordBuffer::new(KIND_CHANGE, object as i64);
        let mut lane = self.log.lane(cpu);
        let appended = lane.append(&self.mapping, &mut record, after, InFlight::none());
        drop(lane);
        let (stamp, _clean) = appended?;
        assert!(self.watch.all_fenced(), "an append returned before its fence");
        *newest = stamp;
        Ok(Appended { stamp, after })
    }

    /// A checkpoint: all that is in the log is folded.
    fn checkpoint(&self) {
        let closed = self.gate.close();
        let floor = self.log.cut();
        self.watch.forget();
        drop(closed);
        self.log.release(floor, 2);
    }

    /// A change that makes a checkpoint itself when the log is full.
    fn change_at_last(&self, cpu: usize, object: usize) -> Appended {
        loop {
            match self.change(cpu, object) {
                Ok(appended) => return appended,
                Err(Error::LogFull) => self.checkpoint(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn chunks_used(&self) -> u64 {
        let (free, all) = self.log.chunks_free();
        (all - free) as u64
    }

    /// The stamps in the log from `floor` on, as recovery finds them, ascending.
    fn found(&self, floor: u64) -> Vec<u64> {
        let scan = scan::scan(0, &self.mapping, &self.superblock, floor).unwrap();
        assert!(scan.damage.is_empty(), "{:?}", scan.damage);
        for pair in scan.records.windows(2) {
            if pair[0].lane == pair[1].lane {
                assert!(pair[0].stamp < pair[1].stamp, "stamps fall along a lane");
            }
        }
        let mut stamps: Vec<u64> = scan.records.iter().map(|record| record.stamp).collect();
        stamps.sort_unstable();
        stamps
    }
}

fn sorted(mut stamps: Vec<u64>) -> Vec<u64> {
    stamps.sort_unstable();
    stamps
}

/// Two threads, two changes each, of one object or of two, over this many lanes.
fn two_appenders(lanes: usize, objects: [usize; 2]) {
    loom::model(move || {
        let world = World::new(4, lanes);
        let other = world.clone();
        let thread = thread::spawn(move || [0; 2].map(|_| other.change(1, objects[1]).unwrap()));
        let mine = [0; 2].map(|_| world.change(0, objects[0]).unwrap());
        let theirs = thread.join().unwrap();
        let all: Vec<Appended> = mine.into_iter().chain(theirs).collect();
        assert!(all.iter().all(|one| one.stamp > one.after), "{all:?}");
        assert_eq!(world.found(1), sorted(all.iter().map(|one| one.stamp).collect()));
        assert_eq!(world.log.cut(), 1 + world.chunks_used(), "a number twice");
    });
}

#[test]
fn appends_to_one_lane_follow_each_other() {
    two_appenders(1, [0, 1]);
}

#[test]
fn appends_to_two_lanes_share_no_byte() {
    two_appenders(2, [0, 1]);
}

#[test]
fn stamps_of_one_object_grow_over_the_lanes() {
    two_appenders(2, [0, 0]);
}

/// What a cut saw is below its floor, all else from it on.
#[test]
fn a_cut_parts_the_records_exactly() {
    loom::model(|| {
        let world = World::new(6, 2);
        let seen = [0, 1].map(|_| Arc::new(loom::sync::atomic::AtomicU64::new(0)));
        let threads = [0, 1].map(|cpu: usize| {
            let (world, seen) = (world.clone(), seen[cpu].clone());
            thread::spawn(move || {
                let _entered = world.gate.enter(cpu);
                let mut record = RecordBuffer::new(KIND_CHANGE, 0);
                let mut lane = world.log.lane(cpu);
                // stamps tell the two threads' records apart
                let after = cpu as u64 * 100;
                let (stamp, _clean) =
                    lane.append(&world.mapping, &mut record, after, InFlight::none()).unwrap();
                drop(lane);
                seen.store(stamp, loom::sync::atomic::Ordering::Relaxed);
            })
        });
        let closed = world.gate.close();
        let before: Vec<u64> =
            seen.iter().map(|seen| seen.load(loom::sync::atomic::Ordering::Relaxed)).collect();
        let tails = world.log.tails().len();
        let floor = world.log.cut();
        drop(closed);
        for thread in threads {
            thread.join().unwrap();
        }
        let before = sorted(before.into_iter().filter(|stamp| *stamp != 0).collect());
        assert_eq!(tails, before.len(), "a lane each");
        let behind = world.found(floor);
        let all = world.found(1);
        assert_eq!(all.len(), 2);
        world.log.release(floor, 2);
        assert_eq!(world.chunks_used(), behind.len() as u64, "released more or less than folded");
        assert_eq!(sorted([before, behind].concat()), all, "on neither side, or on both");
    });
}

/// A log of one chunk that two lanes want: who finds it full makes a checkpoint and goes on.
#[test]
fn a_full_log_takes_nothing_and_goes_on_after_a_checkpoint() {
    loom::model(|| {
        let world = World::new(1, 2);
        let other = world.clone();
        let thread = thread::spawn(move || other.change_at_last(1, 1));
        let mine = world.change_at_last(0, 0);
        let theirs = thread.join().unwrap();
        assert!(mine.stamp > mine.after && theirs.stamp > theirs.after);
        world.checkpoint();
        assert_eq!(world.log.chunks_free(), (1, 1));
        assert_eq!(world.log.used_bytes(), 0);
        let last = world.change(0, 0).unwrap();
        assert_eq!(world.log.cut(), 4, "a chunk for each record");
        assert_eq!(world.found(3), [last.stamp]);
    });
}
