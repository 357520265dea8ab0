//! Blocks between owners under every order of steps: a retired block is not handed out while a
//! reader that pinned an epoch before may still hold it, nor, in the `sync` domain (with at most
//! three preemptions), before the epoch of syncs in which it was freed is closed.
//!
//! The source file is the engine's own. In place of `crossbeam_epoch` there is the least that it
//! promises: what is deferred runs as soon as all guards are gone that were there at the time.
//! Neither crossbeam's own code nor the bitmaps of `space.rs` are in the model.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

#[path = "../src/addr.rs"]
mod addr;
#[path = "common/mod.rs"]
mod locks;
#[path = "../src/reclaim.rs"]
mod reclaim;

mod error {
    pub use pool::{Error, Result};
}

/// What `reclaim.rs` is made of here.
mod sync {
    pub use super::locks::*;

    /// The whole model runs on one CPU, so that its steps are the same every time.
    pub fn recent_cpu() -> u32 {
        0
    }

    /// A pause without time.
    pub fn sleep(_: std::time::Duration) {
        loom::thread::yield_now();
    }

    /// The contract of `crossbeam_epoch`.
    pub mod epoch {
        use super::Mutex;

        type Work = Box<dyn FnOnce() + Send>;

        #[derive(Default)]
        struct Pins {
            next: u64,
            pinned: Vec<u64>,
            /// What waits, and for whom.
            deferred: Vec<(Vec<u64>, Work)>,
        }

        loom::lazy_static! {
            static ref PINS: Mutex<Pins> = Mutex::new(Pins::default());
        }

        pub struct Guard(u64);

        pub fn pin() -> Guard {
            let mut pins = PINS.lock();
            pins.next += 1;
            let number = pins.next;
            pins.pinned.push(number);
            Guard(number)
        }

        impl Guard {
            pub fn defer<F: FnOnce() + Send + 'static>(&self, work: F) {
                let mut pins = PINS.lock();
                let before = pins.pinned.clone();
                pins.deferred.push((before, Box::new(work)));
            }

            pub fn flush(&self) {}
        }

        impl Drop for Guard {
            fn drop(&mut self) {
                let mut pins = PINS.lock();
                pins.pinned.retain(|number| *number != self.0);
                for (waits_for, _) in &mut pins.deferred {
                    waits_for.retain(|number| *number != self.0);
                }
                let all = std::mem::take(&mut pins.deferred);
                let (ready, waiting) =
                    all.into_iter().partition(|(for_whom, _)| for_whom.is_empty());
                pins.deferred = waiting;
                drop(pins);
                let ready: Vec<(Vec<u64>, Work)> = ready;
                ready.into_iter().for_each(|(_, work)| work());
            }
        }
    }
}

/// Free blocks as a plain list.
mod space {
    use super::sync::Mutex;

    #[derive(Debug)]
    pub struct Run {
        pub first: u64,
        pub count: u64,
    }

    #[derive(Clone, Copy)]
    pub enum Purpose {
        Data,
        Exchange,
    }

    #[derive(Debug)]
    pub struct Space(Mutex<Vec<u64>>);

    impl Space {
        pub fn new(free: Vec<u64>) -> Space {
            Space(Mutex::new(free))
        }

        pub fn free(&self) -> u64 {
            self.0.lock().len() as u64
        }

        pub fn take(&self, want: u64, _purpose: Purpose, runs: &mut Vec<Run>) -> u64 {
            let mut free = self.0.lock();
            let count = want.min(free.len() as u64);
            runs.extend((0..count).filter_map(|_| free.pop()).map(|first| Run { first, count: 1 }));
            count
        }

        pub fn has_room(&self) -> bool {
            true
        }

        pub fn loan(&self) -> u64 {
            0
        }

        pub fn take_returned(&self) -> Option<Vec<u64>> {
            None
        }

        pub fn give(&self, blocks: &[u64]) {
            let mut free = self.0.lock();
            for block in blocks {
                assert!(!free.contains(block), "block {block} was freed twice");
                free.push(*block);
            }
        }

        pub fn give_batch(&self, blocks: Vec<u64>) {
            self.give(&blocks);
        }

        pub fn settle(&self) {}
    }
}

use addr::BlockAddr;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use reclaim::Reclaim;
use space::Space;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as StdAtomicU64;
use sync::epoch;

/// Blocks of the model, from 1.
const BLOCKS: u64 = 2;

struct World {
    reclaim: Arc<Reclaim>,
    space: Arc<Space>,
    /// What each block holds: the number of the write that filled it.
    data: Vec<AtomicU64>,
    /// The file's one slot: block and number of the write.
    slot: AtomicU64,
}

fn slot_of(block: u64, write: u64) -> u64 {
    block << 32 | write
}

impl World {
    /// A file whose one block is block 1, filled by write 1; the others are free.
    fn new(synced: bool) -> Arc<World> {
        let space = Arc::new(Space::new((2..=BLOCKS).collect()));
        let world = World {
            reclaim: Arc::new(Reclaim::new(vec![space.clone()], Vec::new(), 1, synced)),
            space,
            data: (0..=BLOCKS).map(|_| AtomicU64::new(0)).collect(),
            slot: AtomicU64::new(slot_of(1, 1)),
        };
        world.data[1].store(1, Ordering::Relaxed);
        Arc::new(world)
    }

    /// A write in the engine's order: data, publication, then the old block is retired.
    fn write(&self, write: u64) -> Option<u64> {
        self.write_and_free(write, 0)
    }

    /// The same; frees `others` blocks more, which nobody reads.
    fn write_and_free(&self, write: u64, others: u64) -> Option<u64> {
        let block = self.reclaim.allocate_one(0).ok()?.block();
        self.data[block as usize].store(write, Ordering::Relaxed);
        let old = self.slot.swap(slot_of(block, write), Ordering::AcqRel) >> 32;
        let others = (0..others).map(|other| BLOCKS + 1 + other);
        let freed: Vec<_> = [old].into_iter().chain(others).collect();
        self.reclaim
            .retire(&freed.iter().map(|block| BlockAddr::new(0, *block)).collect::<Vec<_>>());
        Some(block)
    }

    /// A read in the engine's order: pin, slot, data.
    fn read(&self) {
        let pin = epoch::pin();
        let slot = self.slot.load(Ordering::Acquire);
        let (block, write) = (slot >> 32, slot & 0xFFFF_FFFF);
        let found = self.data[block as usize].load(Ordering::Relaxed);
        assert_eq!(found, write, "block {block} was used again under a reader");
        drop(pin);
    }
}

/// Counts over all orders, so that a model that never gets there is no proof.
static REUSED: [StdAtomicU64; 3] = [const { StdAtomicU64::new(0) }; 3];

fn count(model: usize) {
    REUSED[model].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

fn counted(model: usize) -> u64 {
    REUSED[model].load(std::sync::atomic::Ordering::Relaxed)
}

/// The second write can only take the block that the first one retired.
#[test]
fn a_retired_block_is_not_used_again_under_a_reader() {
    loom::model(|| {
        let world = World::new(false);
        let other = world.clone();
        let reader = thread::spawn(move || other.read());
        assert_eq!(world.write(2), Some(2));
        world.reclaim.gather_all();
        if world.write(3) == Some(1) {
            count(0);
        }
        reader.join().unwrap();
        world.reclaim.gather_all();
        assert_eq!(world.reclaim.held(), 0);
    });
    assert!(counted(0) > 0, "no order used a block again");
}

/// A write and the closing of an epoch at once; with the written block's old one, `others` more
/// blocks are freed by the same record.
fn a_write_and_a_sync(model: usize, others: u64) {
    // more than three changes of thread that no step asks for take minutes
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(3);
    orders.check(move || {
        let world = World::new(true);
        let covered = Arc::new(AtomicU64::new(0));
        let closer = {
            let (world, covered) = (world.clone(), covered.clone());
            thread::spawn(move || {
                let freed = world.reclaim.take_open_epoch();
                // the sync
                covered.store(freed.len() as u64, Ordering::Relaxed);
                world.reclaim.epoch_closed(freed);
            })
        };
        world.write_and_free(2, others).unwrap();
        let again = world.reclaim.allocate_one(0);
        if again.is_ok() {
            let covered = covered.load(Ordering::Relaxed);
            assert_eq!(covered, 1 + others, "used again before its sync");
            count(model);
        }
        closer.join().unwrap();
        // the next epoch has what this one had not, and no block was in both
        world.reclaim.epoch_closed(world.reclaim.take_open_epoch());
        world.reclaim.gather_all();
        assert_eq!(world.reclaim.held(), 0);
        assert_eq!(world.space.free() + u64::from(again.is_ok()), 1 + others);
    });
    assert!(counted(model) > 0, "no order used a block again");
}

#[test]
fn in_the_sync_domain_a_freed_block_waits_for_the_sync() {
    a_write_and_a_sync(1, 0);
}

/// As many as pass on at once.
#[test]
fn in_the_sync_domain_a_batch_of_freed_blocks_waits_for_the_sync() {
    a_write_and_a_sync(2, 63);
}
