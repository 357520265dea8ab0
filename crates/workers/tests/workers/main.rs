//! Workers that copy for others: what they copy is right, whatever becomes of them.
#![allow(clippy::unwrap_used)]

mod turns;

use placement::{Kind, NO_LIMIT, Side};
use pmem::{MapOptions, Mapping};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use workers::{BLOCK_BYTES, PIECES_MAX, Piece, Settings, SliceSettings, Task, Trouble, Workers};

const SLICES: usize = 3;
const SLICE_BYTES: usize = 4 << 20;

struct World {
    mappings: Vec<Mapping>,
    _dir: tempfile::TempDir,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let mapping = |index: usize| {
        let path = dir.path().join(index.to_string());
        std::fs::write(&path, vec![0; SLICE_BYTES]).unwrap();
        Mapping::open(&path, &MapOptions { process: true, ..MapOptions::default() }).unwrap()
    };
    World { mappings: (0..SLICES).map(mapping).collect(), _dir: dir }
}

fn side(limit: Option<u32>) -> Side {
    Side { limit: limit.unwrap_or(NO_LIMIT), ..Side::default() }
}

fn workers(count: u16, limits: [Option<u32>; 2], trouble: Option<Trouble>) -> Workers {
    let cpus = topology::allowed_cpus().unwrap();
    let slice = SliceSettings { cpus, workers: count, sides: limits.map(side) };
    Workers::new(&Settings { slices: vec![slice; SLICES], trouble, ..Settings::default() })
}

/// Their callers wait for them, however long: what they are asked for, they do.
fn patient(count: u16, sides: [Side; 2], trouble: Option<Trouble>) -> Workers {
    let cpus = topology::allowed_cpus().unwrap();
    let slice = SliceSettings { cpus, workers: count, sides };
    let (slices, patience) = (vec![slice; SLICES], Some(Duration::from_secs(3600)));
    Workers::new(&Settings { slices, patience, trouble, ..Settings::default() })
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len / 8).flat_map(|_| next().to_le_bytes()).collect()
}

impl World {
    /// Pieces of so many blocks each, one slice after the other, from `at` on in each.
    fn pieces(&self, blocks: usize, piece: usize, at: u64) -> Vec<Piece<'_>> {
        let mut next = [at; SLICES];
        let firsts = (0..blocks).step_by(piece).enumerate();
        let piece = firsts.map(|(index, first)| {
            let slice = index % SLICES;
            let len = piece.min(blocks - first) * BLOCK_BYTES;
            let at = next[slice];
            next[slice] += len as u64;
            let mapping = &self.mappings[slice];
            Piece { slice: slice as u8, mapping, at, from: first * BLOCK_BYTES, len }
        });
        piece.collect()
    }

    /// Writes and reads back; every second piece by the caller, if it `shares`. Gives the bytes
    /// that were for workers, and those of them that the caller took back.
    fn round_trip(
        &self,
        workers: &Workers,
        pieces: &[Piece<'_>],
        seed: u64,
        shares: bool,
    ) -> (usize, usize) {
        let len = pieces.iter().map(|piece| piece.len).sum();
        let data = pattern(seed, len);
        let is_own = |index: usize| shares && index % 2 == 1;
        let part = |own: bool| {
            let all = pieces.iter().enumerate();
            all.filter(|(index, _)| is_own(*index) == own).map(|(_, piece)| *piece).collect()
        };
        let (theirs, own): (Vec<Piece<'_>>, Vec<Piece<'_>>) = (part(false), part(true));
        let mut sums = vec![0; len / BLOCK_BYTES];
        let mut task = Task::write(&data, &mut sums);
        let _ = pmem::fence(workers.copy(&mut task, &theirs, &own, || ()).unwrap());
        let taken_back = |task: &Task<'_>| task.taken_back().iter().map(|it| it.1).sum::<usize>();
        let mut taken = taken_back(&task);
        for (block, sum) in data.chunks(BLOCK_BYTES).zip(&sums) {
            assert_eq!(*sum, pmem::crc32c(0, block));
        }
        for piece in pieces {
            let mut there = vec![0; piece.len];
            piece.mapping.read_own(piece.at, &mut there).unwrap();
            assert!(there == data[piece.from..piece.from + piece.len]);
        }
        let mut read = vec![0; len];
        let mut task = Task::read(&mut read);
        let _ = workers.copy(&mut task, &theirs, &own, || ()).unwrap();
        taken += taken_back(&task);
        assert!(read == data);
        (2 * theirs.iter().map(|piece| piece.len).sum::<usize>(), taken)
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_delegated_arrives() {
    let world = world();
    let workers = workers(2, [None; 2], None);
    assert!(workers.stats().iter().all(|slice| slice.seats.is_empty()), "nobody asked yet");
    let (mut seed, mut by_workers) = (0, 0);
    for (blocks, piece) in [(1, 1), (3, 1), (7, 2), (64, 64), (100, 9), (512, 16), (300, 1)] {
        for shares in [false, true] {
            seed += 1;
            let pieces = world.pieces(blocks, piece, seed % 5 * 4096);
            let (asked, taken) = world.round_trip(&workers, &pieces, seed, shares);
            by_workers += asked - taken;
        }
    }
    // more pieces than a job has
    let pieces = world.pieces(PIECES_MAX * 2 + 5, 1, 0);
    let (asked, taken) = world.round_trip(&workers, &pieces, 99, false);
    let stats = workers.stats();
    let counted: u64 = stats.iter().flat_map(|slice| slice.bytes).sum();
    assert_eq!(counted as usize, by_workers + asked - taken, "each byte has one who copied it");
    assert!(stats.iter().all(|slice| slice.seats.len() == 2));
}

/// Where the machine is busy, callers who do not wait may copy everything themselves.
#[test]
fn whose_callers_wait_copy_everything() {
    let world = world();
    let workers = patient(2, [side(None); 2], None);
    for (seed, piece) in [(1, 1), (2, 3), (3, 16)] {
        let pieces = world.pieces(96, piece, 0);
        assert_eq!(world.round_trip(&workers, &pieces, seed, false).1, 0);
    }
    let stats = workers.stats();
    let counted: u64 = stats.iter().flat_map(|slice| slice.bytes).sum();
    assert_eq!(counted, 3 * 2 * 96 * BLOCK_BYTES as u64);
    assert!(stats.iter().all(|slice| slice.bytes.iter().all(|it| *it > 0)));
    assert!(stats.iter().all(|slice| !slice.stalled && slice.active == [0, 0]));
}

#[test]
fn many_callers_share_the_workers() {
    let world = world();
    let workers = workers(2, [Some(1), Some(2)], None);
    ask_from_many(&world, &workers);
    let workers = patient(2, [side(Some(1)), side(Some(2))], None);
    ask_from_many(&world, &workers);
    assert!(workers.stats().iter().all(|slice| slice.active == [0, 0] && !slice.stalled));
}

fn ask_from_many(world: &World, workers: &Workers) {
    std::thread::scope(|threads| {
        for caller in 0..8u64 {
            threads.spawn(move || {
                for round in 0..60 {
                    let pieces = world.pieces(30, 3, caller * 512 * 1024 / 4);
                    world.round_trip(workers, &pieces, caller << 32 | round, round % 3 == 0);
                }
            });
        }
    });
}

/// Workers sleep when nobody asks, and wake for the next who does.
#[test]
fn idle_workers_sleep() {
    let world = world();
    let workers = workers(3, [None; 2], None);
    for round in 0..5 {
        world.round_trip(&workers, &world.pieces(9, 1, 0), round, false);
        until("they sleep", || workers.stats().iter().all(|slice| slice.asleep == 3));
    }
}

#[test]
fn what_a_worker_dies_of_its_caller_copies() {
    let world = world();
    let deaths = Arc::new(AtomicU32::new(0));
    let seen = deaths.clone();
    let trouble: Trouble = Arc::new(move || {
        if seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            std::panic::resume_unwind(Box::new("as the test wants it"));
        }
    });
    let workers = workers(2, [None; 2], Some(trouble));
    let mut round = 0;
    // On a busy machine callers also copy pieces that no worker took in time, so this takes rounds.
    until("ten have died, in twenty rounds or more", || {
        world.round_trip(&workers, &world.pieces(30, 3, 0), round, round % 2 == 0);
        round += 1;
        let stats = workers.stats();
        let noted: u64 = stats.iter().flat_map(|slice| &slice.seats).map(|seat| seat.deaths).sum();
        round >= 20 && noted >= 10
    });
}

#[test]
fn where_workers_are_stopped_others_serve() {
    let world = world();
    let stop = Arc::new(AtomicBool::new(true));
    let (free, freed) = mpsc::channel::<()>();
    let freed = std::sync::Mutex::new(freed);
    let seen = stop.clone();
    let trouble: Trouble = Arc::new(move || {
        if seen.load(Ordering::SeqCst) {
            // until the test ends its side
            let _ = freed.lock().unwrap().recv();
        }
    });
    let workers = workers(1, [None; 2], Some(trouble));
    for round in 0..3 {
        let (asked, taken) = world.round_trip(&workers, &world.pieces(30, 3, 0), round, false);
        assert_eq!(taken, asked, "nobody else was there");
    }
    // On a busy machine a worker may find that the caller took its request back; it then takes the
    // next one.
    until("each has taken one, and is stopped with it", || {
        let (asked, taken) = world.round_trip(&workers, &world.pieces(30, 3, 0), 3, false);
        assert_eq!(taken, asked, "nobody else was there");
        workers.stats().iter().all(|slice| slice.stalled && slice.seats[0].busy.is_some())
    });

    stop.store(false, Ordering::SeqCst);
    drop(free);
    // what they had taken is somebody else's by now; then they serve again
    until("they serve again", || {
        world.round_trip(&workers, &world.pieces(30, 3, 0), 7, false);
        workers.stats().iter().all(|slice| !slice.stalled)
    });
}

/// One worker is stopped with a request in its hand, while another one of the slice goes on.
#[test]
fn a_request_that_a_stopped_worker_took_is_its_callers() {
    let world = world();
    let (stopped, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let seen = (stopped.clone(), goes_on.clone());
    let trouble: Trouble = Arc::new(move || {
        if !seen.0.swap(true, Ordering::SeqCst) {
            until("the test ends", || seen.1.load(Ordering::SeqCst));
        }
    });
    let workers = workers(2, [None; 2], Some(trouble));
    std::thread::scope(|threads| {
        let done = Arc::new(AtomicBool::new(false));
        let (world, workers, end) = (&world, &workers, done.clone());
        threads.spawn(move || {
            world.round_trip(workers, &world.pieces(1, 1, 0), 1, false);
            end.store(true, Ordering::SeqCst);
        });
        until("it is stopped", || stopped.load(Ordering::SeqCst));
        // others are served all the time
        until("it is copied all the same", || {
            world.round_trip(workers, &world.pieces(SLICES, 1, 1 << 20), 2, false);
            done.load(Ordering::SeqCst)
        });
        goes_on.store(true, Ordering::SeqCst);
    });
}

#[test]
fn memory_that_cannot_be_read_is_its_caller_s_error() {
    let world = world();
    let workers = workers(1, [None; 2], None);
    let mut pieces = world.pieces(6, 1, 0);
    pieces[4].at = SLICE_BYTES as u64;
    let mut read = vec![0; 6 * BLOCK_BYTES];
    let result = workers.copy(&mut Task::read(&mut read), &pieces, &[], || ());
    assert!(matches!(result, Err(pmem::Error::OutOfRange { .. })), "{result:?}");
    pieces[4].at = 0;
    assert!(workers.copy(&mut Task::read(&mut read), &pieces, &[], || ()).is_ok());
}

#[test]
fn pieces_that_overlap_are_refused() {
    let world = world();
    let workers = workers(1, [None; 2], None);
    let pieces = world.pieces(4, 1, 0);
    let refused = |theirs: &[Piece<'_>], own: &[Piece<'_>]| {
        let mut read = vec![0; 4 * BLOCK_BYTES];
        let copy = || workers.copy(&mut Task::read(&mut read), theirs, own, || ());
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(copy)).is_err()
    };
    assert!(!refused(&pieces[..2], &pieces[2..]));
    assert!(refused(&pieces[..2], &pieces[1..3]));
    assert!(refused(&[pieces[1], pieces[0]], &[]));
    assert!(refused(&[Piece { from: 4 * BLOCK_BYTES, ..pieces[0] }], &[]), "outside the buffer");
}

/// Without any worker, or for a slice that has none, everybody copies for himself.
#[test]
fn without_workers_everything_is_copied() {
    let world = world();
    let workers = workers(0, [None; 2], None);
    assert!(workers.is_stalled(0, Kind::Read) && workers.is_stalled(99, Kind::Write));
    world.round_trip(&workers, &world.pieces(9, 2, 0), 5, true);
}
