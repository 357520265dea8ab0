//! Jobs under every order of steps that the memory model allows: a piece is one thread's, the
//! caller sees what was copied when the job is over, and who is late finds another job.
//!
//! The source file is the engine's own; only atomics are loom's.
#![allow(clippy::unwrap_used, dead_code)]

#[path = "../src/slots.rs"]
mod slots;

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use slots::{PieceId, Slots};

struct World {
    slots: Slots,
    /// What is copied, a cell for each piece: loom sees whoever uses one beside another.
    bytes: [UnsafeCell<u32>; 2],
}

fn world() -> Arc<World> {
    let bytes = [UnsafeCell::new(0), UnsafeCell::new(0)];
    Arc::new(World { slots: Slots::new(1), bytes })
}

fn copy(world: &World, piece: u16) {
    // SAFETY: the piece is claimed; loom fails the test where it is somebody else's, too.
    world.bytes[usize::from(piece)].with_mut(|byte| unsafe { *byte += 1 });
}

fn serve(world: &World, id: PieceId) {
    if let Some(slot) = world.slots.claim(id) {
        copy(world, id.piece);
        slot.finished(id.piece, true);
    }
}

#[test]
fn a_piece_is_copied_once_and_seen_when_the_job_is_over() {
    loom::model(|| {
        let world = world();
        let job = world.slots.begin(1, 0).unwrap();
        let id = job.id(0);
        let workers: Vec<_> = [(); 2]
            .map(|()| {
                let world = world.clone();
                thread::spawn(move || serve(&world, id))
            })
            .into();
        // the caller loses its patience at any moment
        if job.claim(0) {
            copy(&world, 0);
            job.slot().finished(0, true);
        }
        while !job.is_over() {
            thread::yield_now();
        }
        // SAFETY: nobody has it any more; loom fails the test where that is not so.
        assert_eq!(world.bytes[0].with(|byte| unsafe { *byte }), 1);
        drop(job);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn who_is_late_does_not_touch_the_next_job() {
    loom::model(|| {
        let world = world();
        let job = world.slots.begin(1, 0).unwrap();
        let id = job.id(0);
        let late = {
            let world = world.clone();
            thread::spawn(move || serve(&world, id))
        };
        if job.claim(0) {
            copy(&world, 0);
            job.slot().finished(0, true);
        }
        while !job.is_over() {
            thread::yield_now();
        }
        drop(job);
        // the slot's next job has two pieces, and nobody but the caller knows of it
        let next = world.slots.begin(2, 0).unwrap();
        assert_ne!(next.id(0), id);
        for piece in 0..2 {
            assert!(next.claim(piece), "nobody else has it");
            copy(&world, piece as u16);
            next.slot().finished(piece as u16, piece == 0);
        }
        assert!(next.is_over() && !next.failed(0) && next.failed(1));
        late.join().unwrap();
    });
}

#[test]
fn two_callers_do_not_share_a_slot() {
    loom::model(|| {
        let world = world();
        let other = {
            let world = world.clone();
            thread::spawn(move || world.slots.begin(0, 0).is_some())
        };
        let own = world.slots.begin(0, 0);
        let had = own.is_some();
        drop(own);
        assert!(other.join().unwrap() || had);
        assert!(world.slots.begin(0, 0).is_some());
    });
}
