//! Lanes over a real pool: what is committed there comes into the files, once, whoever ends when.
#![allow(clippy::unwrap_used)]

mod damaged;
mod unmade;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use fs::{Blocks, Creation, FileSystem, Handle, Ino, NewNode};
use lanes::{Files, Happened, LANE_BYTES, Lane, Ledger, Piece, Recovered, Stored, Target};
use pool::{FormatOptions, OpenOptions as PoolOptions, SliceSpec};

const CONNECTION: u128 = 0xfeed << 64 | 7;

fn scratch() -> (tempfile::TempDir, FileSystem) {
    let dir = tempfile::tempdir().unwrap();
    let slices = vec![SliceSpec::default()];
    let options =
        FormatOptions { slices, slice_bytes: 32 << 20, process: true, ..FormatOptions::default() };
    fs::format(dir.path(), &options).unwrap();
    let fs = open(dir.path());
    (dir, fs)
}

fn open(dir: &Path) -> FileSystem {
    FileSystem::open_pool(dir, &PoolOptions::default()).unwrap()
}

fn make(fs: &FileSystem, name: &str) -> Arc<Handle> {
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, by).unwrap();
    fs.open(attr.ino).unwrap()
}

fn content(fs: &FileSystem, name: &str) -> Vec<u8> {
    let attr = fs.lookup(Ino::ROOT, name.as_bytes()).unwrap();
    let mut bytes = vec![0; attr.size as usize];
    let read = fs.read(&fs.open(attr.ino).unwrap(), 0, &mut bytes).unwrap();
    assert_eq!(read, bytes.len());
    bytes
}

/// A connection, both sides of it.
struct Both {
    lane: Lane,
    ledger: Ledger,
}

fn connect(dir: &Path, fs: &FileSystem) -> Both {
    let info = fs.info();
    let (files, given) = Files::make(dir, pmem::Domain::Process, CONNECTION).unwrap();
    let ledger = Ledger::new(fs, files, &info.uuid, CONNECTION).unwrap();
    let shared = (given.lane, given.words);
    let lane = Lane::new(shared, given.domain, &info.uuid, CONNECTION).unwrap();
    Both { lane, ledger }
}

impl Both {
    fn lend(
        &mut self,
        slot: u8,
        handle: &Arc<Handle>,
        blocks: std::ops::RangeInclusive<u64>,
    ) -> u64 {
        let blocks = Blocks { ino: handle.ino(), blocks };
        let target = Target { handle: handle.clone(), caller: None };
        self.ledger.lend(slot, blocks, target).unwrap()
    }
}

fn piece(slot: u8, generation: u64, offset: u64, data: &[u8]) -> Piece<'_> {
    Piece { slot, generation, offset, data }
}

#[test]
fn what_is_committed_is_in_the_file_when_it_is_folded() {
    let (dir, fs) = scratch();
    let (one, two) = (make(&fs, "one"), make(&fs, "two"));
    let mut both = connect(dir.path(), &fs);
    let (first, second) = (both.lend(0, &one, 0..=u64::MAX), both.lend(1, &two, 1..=1));
    assert_eq!(both.lane.commit(&[piece(0, first, 5, b"hello")]), Stored::Done);
    let together = [piece(0, first, 10, b"!"), piece(1, second, 4096, b"there")];
    assert_eq!(both.lane.commit(&together), Stored::Done);
    assert_eq!(content(&fs, "one"), b"");
    both.ledger.fold(&fs).unwrap();
    assert_eq!(content(&fs, "one"), b"\0\0\0\0\0hello!");
    assert_eq!(content(&fs, "two")[4096..], *b"there");
    assert!(both.ledger.end_lease(&fs, 0).unwrap().is_some());
    assert_eq!(both.lane.commit(&[piece(0, first, 0, b"late")]), Stored::Closed);
    assert_eq!(both.lane.commit(&together), Stored::Closed, "one of two leases has ended");
    assert_eq!(both.lane.commit(&[piece(1, second, 4096, b"still")]), Stored::Done);
    assert_eq!(both.ledger.happened(0, first, 2), Happened::Yes);
    assert_eq!(both.ledger.happened(0, first, 3), Happened::No);
    let again = both.lend(0, &one, 0..=3);
    assert_eq!(again, first + 1);
    assert_eq!(both.ledger.happened(0, first, 2), Happened::Forgotten);
    assert_eq!(both.lane.commit(&[piece(0, first, 0, b"late")]), Stored::Closed);
}

/// Lap after lap, with records of all lengths: everything arrives, in its order.
#[test]
fn a_lane_is_used_again_and_again() {
    let (dir, fs) = scratch();
    let file = make(&fs, "file");
    let mut both = connect(dir.path(), &fs);
    let generation = both.lend(4, &file, 0..=u64::MAX);
    let mut shadow = vec![0u8; 1 << 18];
    let (mut state, mut full, mut written) = (9u64, 0, 0);
    for round in 0..3000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let len = 1 + (state >> 33) as usize % [64, 4096, lanes::BYTES_MAX][round as usize % 3];
        let offset = (state >> 20) as usize % (shadow.len() - len);
        let data = vec![round as u8; len];
        let write = [piece(4, generation, offset as u64, &data)];
        match both.lane.commit(&write) {
            Stored::Done => {}
            Stored::Full => {
                full += 1;
                both.ledger.fold(&fs).unwrap();
                both.ledger.give_room();
                assert!(both.lane.is_filling());
                assert_eq!(both.lane.commit(&write), Stored::Done);
                assert!(!both.lane.is_filling(), "all of it is folded");
            }
            other => panic!("{other:?}"),
        }
        written += len as u64;
        shadow[offset..offset + len].copy_from_slice(&data);
    }
    assert!(written > 5 * LANE_BYTES && full >= 5, "{written} bytes, {full} times full");
    both.ledger.fold(&fs).unwrap();
    let size = content(&fs, "file").len();
    assert!(content(&fs, "file") == shadow[..size]);
}

/// A service that was killed folds again from where it was noted: nothing is lost, nor is what
/// others wrote after a lease ended overwritten.
#[test]
fn the_next_service_folds_what_was_left() {
    let (dir, fs) = scratch();
    let (kept, freed) = (make(&fs, "kept"), make(&fs, "freed"));
    let mut both = connect(dir.path(), &fs);
    let (first, second) = (both.lend(0, &kept, 0..=9), both.lend(1, &freed, 0..=9));
    assert_eq!(
        both.lane.commit(&[piece(0, first, 0, b"old"), piece(1, second, 0, b"old")]),
        Stored::Done
    );
    both.ledger.fold(&fs).unwrap();
    both.ledger.end_lease(&fs, 1).unwrap();
    fs.write(&freed, 0, b"another's").unwrap();
    assert_eq!(both.lane.commit(&[piece(0, first, 0, b"new")]), Stored::Done);
    // killed: nothing more is noted or folded, and the process goes on
    let Both { lane, ledger } = both;
    drop(ledger);
    drop((kept, freed, fs));
    assert_eq!(lane.commit(&[piece(0, first, 3, b"er")]), Stored::Done);
    let fs = open(dir.path());
    let recovered = lanes::recover(dir.path(), &fs, false).unwrap();
    assert_eq!(recovered, Recovered { lanes: 1, leases: 1 });
    assert_eq!(
        (content(&fs, "kept"), content(&fs, "freed")),
        (b"newer".to_vec(), b"another's".to_vec())
    );
    assert_eq!(lane.commit(&[piece(0, first, 0, b"late")]), Stored::Closed);
    let ask = |number| lanes::happened(dir.path(), &fs.info().uuid, CONNECTION, (0, first, number));
    assert_eq!((ask(3), ask(4)), (Happened::Yes, Happened::No));
    assert_eq!(
        lanes::recover(dir.path(), &fs, false).unwrap(),
        Recovered::default(),
        "nothing is left"
    );
    assert_eq!(content(&fs, "kept"), b"newer");
}

/// What cannot be folded into a pool that is opened is not noted as if it were: a later open folds
/// it. And what was noted of its writer's rights counts then, too.
#[test]
fn what_a_recovery_could_not_fold_is_there_for_the_next_one() {
    let (dir, fs) = scratch();
    let file = make(&fs, "file");
    let set_id = fs::SetAttr { mode: Some(0o6777), ..fs::SetAttr::default() };
    let mut both = connect(dir.path(), &fs);
    let caller = Some(Arc::new(fs::Caller::new(1000, 1000, Vec::new())));
    let target = Target { handle: file.clone(), caller };
    let blocks = fs::Blocks { ino: file.ino(), blocks: 0..=u64::MAX };
    let generation = both.ledger.lend(0, blocks, target).unwrap();
    for block in 0..8 {
        let data = [block as u8; 4096];
        assert_eq!(both.lane.commit(&[piece(0, generation, block * 4096, &data)]), Stored::Done);
    }
    fs.setattr(file.ino(), &set_id).unwrap();
    drop((both.ledger, file, fs));
    // a full pool: what would have kept room for it is not there
    let fs = open(dir.path());
    let filler = make(&fs, "filler");
    let mut at = 0;
    while fs.write(&filler, at, &[1; 4096]).is_ok() {
        at += 4096;
    }
    lanes::recover(dir.path(), &fs, false).unwrap_err();
    lanes::recover(dir.path(), &fs, false).unwrap_err();
    let empty = fs::SetAttr { size: Some(0), ..fs::SetAttr::default() };
    fs.setattr(filler.ino(), &empty).unwrap();
    let recovered = lanes::recover(dir.path(), &fs, false).unwrap();
    assert_eq!(recovered, Recovered { lanes: 1, leases: 1 });
    let expected: Vec<u8> = (0..8).flat_map(|block| [block; 4096]).collect();
    assert!(content(&fs, "file") == expected);
    let found = fs.lookup(Ino::ROOT, b"file").unwrap();
    assert_eq!(found.mode & 0o6000, 0, "its writer was not root");
}

/// Whatever a process stores into its lane, it gets no further than its leases.
#[test]
fn a_hostile_process_reaches_nothing_but_what_it_leases() {
    let (dir, fs) = scratch();
    let (own, others) = (make(&fs, "own"), make(&fs, "others"));
    fs.write(&others, 0, &[7; 8192]).unwrap();
    fs.write(&own, 0, &[1; 8192]).unwrap();
    let mut both = connect(dir.path(), &fs);
    let generation = both.lend(0, &own, 1..=1);
    let refused = [
        piece(0, generation, 0, b"another block"),
        piece(0, generation, 8191, b"over the end"),
        piece(0, generation, u64::MAX - 2, b"wraps around"),
    ];
    for piece in refused {
        assert_eq!(both.lane.commit(&[piece]), Stored::Done, "it may say so");
        both.ledger.fold(&fs).unwrap();
    }
    assert_eq!(content(&fs, "own"), [1; 8192]);
    // and a record of which one piece is not its to write happens as little
    let both_pieces = [piece(0, generation, 4096, b"mine"), piece(0, generation, 0, b"not")];
    assert_eq!(both.lane.commit(&both_pieces), Stored::Done);
    both.ledger.fold(&fs).unwrap();
    assert_eq!(content(&fs, "own"), [1; 8192]);
    // random bytes, a lane that is cut short, and one that is longer
    let lane = dir.path().join(format!("lanes/{CONNECTION:032x}.lane"));
    let lane: File = OpenOptions::new().write(true).open(lane).unwrap();
    let noise: Vec<u8> = (0..LANE_BYTES).map(|at| ((at * 2_654_435_761) >> 7) as u8).collect();
    lane.write_all_at(&noise, 0).unwrap();
    both.ledger.fold(&fs).unwrap();
    for len in [100, 0, 2 * LANE_BYTES, LANE_BYTES] {
        lane.set_len(len).unwrap();
        both.ledger.fold(&fs).unwrap();
    }
    assert_eq!((content(&fs, "own"), content(&fs, "others")), (vec![1; 8192], vec![7; 8192]));
}

/// A request happens once, whatever is done to its record.
/// Numbers are drawn at random; a process that takes another one's gets none of his files, and
/// takes none away.
#[test]
fn who_takes_the_number_of_another_connection_gets_nothing() {
    let (dir, fs) = scratch();
    let handle = make(&fs, "f");
    let mut both = connect(dir.path(), &fs);
    let generation = both.lend(0, &handle, 0..=9);
    assert!(Files::make(dir.path(), pmem::Domain::Process, CONNECTION).is_err());
    let files = || std::fs::read_dir(dir.path().join("lanes")).unwrap().count();
    assert_eq!(files(), 3);
    let stored = both.lane.commit(&[piece(0, generation, 0, b"mine")]);
    assert_eq!(stored, Stored::Done);
    both.ledger.fold(&fs).unwrap();
    assert_eq!(content(&fs, "f"), b"mine");
    // nor what is noted of one that has ended
    let kept = dir.path().join("lanes").join(format!("{CONNECTION:032x}.leases"));
    for what in ["lane", "words"] {
        std::fs::remove_file(kept.with_extension(what)).unwrap();
    }
    assert!(Files::make(dir.path(), pmem::Domain::Process, CONNECTION).is_err());
    assert_eq!(files(), 1, "what is noted of it stays");
    assert!(kept.exists());
}

#[test]
fn a_record_that_is_stored_again_does_not_happen_again() {
    let (dir, fs) = scratch();
    let file = make(&fs, "file");
    let mut both = connect(dir.path(), &fs);
    let generation = both.lend(0, &file, 0..=0);
    assert_eq!(both.lane.commit(&[piece(0, generation, 0, b"one")]), Stored::Done);
    both.ledger.fold(&fs).unwrap();
    fs.write(&file, 0, b"two").unwrap();
    for _ in 0..3 {
        both.ledger.fold(&fs).unwrap();
    }
    assert_eq!(content(&fs, "file"), b"two");
}

/// What was committed finds room in a full pool.
#[test]
fn a_full_pool_has_room_for_what_was_committed() {
    let (dir, fs) = scratch();
    let (file, filler) = (make(&fs, "file"), make(&fs, "filler"));
    let mut both = connect(dir.path(), &fs);
    let generation = both.lend(0, &file, 0..=u64::MAX);
    let mut at = 0;
    while fs.write(&filler, at, &[1; 4096]).is_ok() {
        at += 4096;
    }
    let full = |error: fs::Error| error.errno() == 28;
    assert!(full(fs.write(&file, 0, &[2; 4096]).unwrap_err()));
    let mut blocks = 0;
    // every block is a new one, and full
    while both.lane.commit(&[piece(0, generation, blocks * 4096, &[2; 4096])]) == Stored::Done {
        blocks += 1;
    }
    assert!(blocks > 200, "{blocks} blocks wait");
    both.ledger.fold(&fs).unwrap();
    assert!(content(&fs, "file") == vec![2; blocks as usize * 4096]);
    // there is as much spare as may wait once more, and not for more
    assert!(both.ledger.is_secure());
    both.ledger.give_room();
    let mut laps = 0;
    while both.ledger.is_secure() {
        let before = blocks;
        while both.lane.commit(&[piece(0, generation, blocks * 4096, &[3; 4096])]) == Stored::Done {
            blocks += 1;
        }
        both.ledger.fold(&fs).unwrap();
        both.ledger.give_room();
        assert!(blocks > before + 200, "{blocks} blocks");
        assert_eq!(content(&fs, "file").len() as u64, blocks * 4096);
        laps += 1;
    }
    assert!((1..8).contains(&laps), "{laps} laps");
    both.ledger.end_lease(&fs, 0).unwrap();
    let empty = fs::SetAttr { size: Some(0), ..fs::SetAttr::default() };
    fs.setattr(filler.ino(), &empty).unwrap();
    assert!(both.ledger.is_secure(), "there is room again");
}

/// A process that goes on storing while its lane is folded is given room only as far as there are
/// blocks for what it stores: in a full pool, too, all that it was told happened is in the file.
#[test]
fn who_stores_while_a_full_pool_folds_loses_nothing() {
    let (dir, fs) = scratch();
    let (file, filler) = (make(&fs, "file"), make(&fs, "filler"));
    let Both { lane, mut ledger } = connect(dir.path(), &fs);
    let target = Target { handle: file.clone(), caller: None };
    let blocks = Blocks { ino: file.ino(), blocks: 0..=u64::MAX };
    let generation = ledger.lend(0, blocks, target).unwrap();
    let mut at = 0;
    while fs.write(&filler, at, &[1; 4096]).is_ok() {
        at += 4096;
    }
    let stored = std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            // each to a block of its own
            let mut blocks = 0;
            loop {
                match lane.commit(&[piece(0, generation, blocks * 4096, &[2; 64])]) {
                    Stored::Done => blocks += 1,
                    Stored::Full => std::thread::yield_now(),
                    _ => return blocks,
                }
            }
        });
        let mut folded = ledger.fold(&fs);
        while folded.is_ok() && ledger.give_room() {
            folded = ledger.fold(&fs);
        }
        // the writer ends with its lease, whatever was said
        let folded = folded.and(ledger.end_lease(&fs, 0).map(drop));
        let stored = writer.join().unwrap();
        folded.unwrap();
        stored
    });
    assert!(stored > 500, "{stored} stored");
    let bytes = content(&fs, "file");
    assert!((0..stored as usize).all(|block| bytes[block * 4096..][..64] == [2; 64]));
}
