//! How many work at one time, and who comes next.

use super::{SLICES, patient, pattern, side, until, world};
use placement::{Kind, Side};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use workers::{BLOCK_BYTES, Task, Trouble};

/// Requests that take a while, and how many were served at one time, at most.
fn counted() -> (Arc<AtomicU32>, Trouble) {
    let (now, most) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
    let seen = most.clone();
    let trouble = move || {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(200));
        now.fetch_sub(1, Ordering::SeqCst);
    };
    (most, Arc::new(trouble))
}

#[test]
fn no_more_work_at_one_time_than_may() {
    let world = world();
    let (most, trouble) = counted();
    let workers = patient(4, [side(Some(4)), side(Some(1))], Some(trouble));
    let pieces = world.pieces(60, 1, 0);
    let data = pattern(1, 60 * BLOCK_BYTES);
    let mut sums = vec![0; 60];
    let _ = workers.copy(&mut Task::write(&data, &mut sums), &pieces, &[], || ()).unwrap();
    // one in each of the slices
    assert!(most.load(Ordering::SeqCst) <= SLICES as u32, "{most:?}");
    // who copies for himself counts
    let gauge = workers.gauge(0, Kind::Write).unwrap();
    let at_work = gauge.try_enter(1, BLOCK_BYTES as u64).unwrap();
    assert!(gauge.try_enter(1, BLOCK_BYTES as u64).is_none());
    drop(at_work);
    let mut read = vec![0; 60 * BLOCK_BYTES];
    let _ = workers.copy(&mut Task::read(&mut read), &pieces, &[], || ()).unwrap();
    assert!(read == data);
}

/// Workers that fell asleep while others worked at the limit wake when those are done.
#[test]
fn a_place_that_becomes_free_is_used() {
    let world = world();
    let workers = patient(2, [side(Some(1)); 2], None);
    for round in 0..30 {
        let gauges: Vec<_> =
            (0..SLICES as u8).map(|slice| workers.gauge(slice, Kind::Write).unwrap()).collect();
        let at_work: Vec<_> =
            gauges.iter().map(|gauge| gauge.enter(1, BLOCK_BYTES as u64)).collect();
        std::thread::scope(|threads| {
            let ended = Arc::new(AtomicBool::new(false));
            let (world, workers, end) = (&world, &workers, ended.clone());
            threads.spawn(move || {
                world.round_trip(workers, &world.pieces(9, 1, 0), round, false);
                end.store(true, Ordering::SeqCst);
            });
            // while it spins, about when it falls asleep, while it sleeps
            std::thread::sleep(Duration::from_micros(20 * round));
            assert!(!ended.load(Ordering::SeqCst), "nobody may write");
            drop(at_work);
            until("it is served", || ended.load(Ordering::SeqCst));
        });
    }
}

/// Each of two callers has the only turn at a slice and asks for the other one's.
#[test]
fn who_waits_keeps_nobody_from_working() {
    let world = world();
    let workers = patient(1, [side(Some(1)); 2], None);
    let all = world.pieces(2 * SLICES, 1, 0);
    let meet = std::sync::Barrier::new(2);
    for _ in 0..20 {
        std::thread::scope(|threads| {
            for own in [0, 1] {
                let (workers, all, meet) = (&workers, &all, &meet);
                threads.spawn(move || {
                    let turn =
                        workers.gauge(own as u8, Kind::Write).unwrap().enter(1, BLOCK_BYTES as u64);
                    meet.wait();
                    let data = pattern(7, 2 * SLICES * BLOCK_BYTES);
                    let mut sums = vec![0; 2 * SLICES];
                    let mut task = Task::write(&data, &mut sums);
                    let (theirs, own) = ([all[1 - own]], [all[SLICES + own]]);
                    let copied = workers.copy(&mut task, &theirs, &own, || drop(turn));
                    let _ = pmem::fence(copied.unwrap());
                });
            }
        });
    }
}

/// Of four turns a large piece takes two; and each is served though large and small are mixed.
#[test]
fn large_pieces_take_more_turns() {
    let world = world();
    let (most, trouble) = counted();
    let side = Side { limit: 4, large_turns: 2, ..Side::default() };
    let workers = patient(6, [side; 2], Some(trouble));
    // 16 KiB and more are large
    world.round_trip(&workers, &world.pieces(96, 4, 0), 5, false);
    assert!(most.load(Ordering::SeqCst) <= 2 * SLICES as u32, "{most:?}");
    std::thread::scope(|threads| {
        for (seed, piece) in [(1, 1), (2, 4), (3, 1), (4, 6)] {
            let (world, workers) = (&world, &workers);
            let pieces = world.pieces(60, piece, seed * 32 * BLOCK_BYTES as u64);
            threads.spawn(move || world.round_trip(workers, &pieces, seed, seed == 3));
        }
    });
    assert!(workers.stats().iter().all(|slice| slice.active == [0, 0]));
}
