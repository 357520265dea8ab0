//! kill -9 of a process that uses a pool, again and again, on the same pool.
//!
//! Several threads make changes, each in a directory of its own, and all append to one file. Each
//! change that returned is told of through a pipe; at some count of them the process is killed.
//! Then everything that was told of is there, and of each thread the one change that was on its
//! way is there entirely or not at all. Once on a pool of slices alone, once on one whose slices
//! are smaller than what is written, with two devices of a capacity tier, so that blocks are moved
//! there all the time. `NEARSIDE_KILLS` says how often (500, and 100 with a tier; four
//! times that where `NEARSIDE_TESTS` is `long`, as in `./test --all`), and
//! `NEARSIDE_KILLS_FROM` with which round to begin: each has a seed of its own. In the directory
//! `NEARSIDE_KILLS_KEEP` the pool is kept as the last kill left it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod library;
mod model;

use model::{Model, Op, Random};
use nearside::{FormatOptions, OpenFlags, OpenOptions, Pool, SliceSpec};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Tells the child its pool and the number of the round.
const CHILD: &str = "NEARSIDE_KILLS_CHILD";
const THREADS: u64 = 4;
/// Lines of the child begin with this; the test harness writes others.
const MARK: &str = "@ ";
/// A record of the shared file: round, thread, number.
const RECORD: usize = 24;

/// What is killed: the test's name, its pool, and how many times.
struct Kind {
    name: &'static str,
    slice_bytes: u64,
    devices: usize,
    rounds: u64,
}

const SLICES: Kind = Kind {
    name: "what_was_acknowledged_survives_every_kill",
    slice_bytes: 8 << 20,
    devices: 0,
    rounds: 500,
};

const TIER: Kind = Kind {
    name: "so_it_does_while_blocks_move_to_a_capacity_tier",
    slice_bytes: 2 << 20,
    devices: 2,
    rounds: 100,
};

#[test]
fn what_was_acknowledged_survives_every_kill() {
    run(&SLICES);
}

#[test]
fn so_it_does_while_blocks_move_to_a_capacity_tier() {
    let moved = run(&TIER);
    // how many depends on what else the machine does; what is tested is that there are some
    assert!(moved > TIER.rounds / 4, "only {moved} blocks were on the tier after a kill");
}

impl Kind {
    fn format(&self, dir: &Path) {
        let options = FormatOptions {
            slices: vec![SliceSpec::default(); 2],
            slice_bytes: self.slice_bytes,
            virtual_nodes: Some(2),
            process: true,
            capacity: vec![SliceSpec { path: None, bytes: Some(16 << 20) }; self.devices],
            ..FormatOptions::default()
        };
        Pool::format(dir, &options).unwrap();
        let pool = self.open(dir);
        (0..THREADS).for_each(|thread| pool.create_dir(root(thread)).unwrap());
        pool.create_file("/shared").unwrap();
    }

    fn open(&self, dir: &Path) -> Pool {
        let options = OpenOptions {
            write_back_percent: Some(1),
            tier_cache_bytes: Some(256 << 10),
            ..OpenOptions::default()
        };
        Pool::open_with(dir, &options).unwrap()
    }
}

/// All rounds; gives how many blocks of the tier were in use after them, in all.
fn run(kind: &Kind) -> u64 {
    if let Ok(words) = std::env::var(CHILD) {
        let (round, dir) = words.split_once(' ').unwrap();
        tell("opening");
        child(&kind.open(Path::new(dir)), round.parse().unwrap());
    }
    let number = |name: &str, or: u64| {
        std::env::var(name).map_or(or, |text| text.parse().expect("a number"))
    };
    let is_long = std::env::var_os("NEARSIDE_TESTS").is_some_and(|length| length == "long");
    let rounds = number("NEARSIDE_KILLS", if is_long { 4 * kind.rounds } else { kind.rounds });
    let from = number("NEARSIDE_KILLS_FROM", 0);
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    kind.format(scratch.path());
    let mut models = vec![Model::default(); THREADS as usize];
    let (mut acknowledged, mut moved) = (0, 0);
    for round in from..from + rounds {
        let done = kill_once(kind, scratch.path(), round, &mut models);
        acknowledged += done.acknowledged;
        moved += done.blocks_on_tier;
    }
    println!("kills={rounds} acknowledged={acknowledged} moved={moved} next={}", from + rounds);
    assert!(acknowledged > rounds, "the processes did nothing");
    moved
}

fn root(thread: u64) -> String {
    format!("/thread{thread}")
}

fn random(round: u64, thread: u64) -> Random {
    Random::new(round * 16 + thread + 1)
}

/// What one thread does next: a change of its own, or a record at the end of the shared file.
fn next(random: &mut Random) -> Option<Op> {
    (random.below(6) > 0).then(|| Op::pick(random))
}

fn record(round: u64, thread: u64, number: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (place, word) in bytes.chunks_exact_mut(8).zip([round, thread, number]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Changes the pool until it is killed.
fn child(pool: &Pool, round: u64) -> ! {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let shared = pool.open_file("/shared", &OpenFlags::new().write(true)).unwrap();
                let mut random = random(round, thread);
                for number in 0.. {
                    let done = match next(&mut random) {
                        Some(op) => library::make(&op, pool, &root(thread)),
                        None => shared.append(&record(round, thread, number)).map(|_| ()),
                    };
                    let errno = done.err().map_or(0, |error| error.errno());
                    tell(&format!("{thread} {errno}"));
                }
            });
        }
    });
    unreachable!("the threads never end");
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{MARK}{line}").and_then(|()| out.flush()).is_err() {
        // the parent is gone
        std::process::exit(1);
    }
}

fn start(kind: &Kind, dir: &Path, round: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", kind.name, "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{round} {}", dir.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What each thread told of: the errno of each change, 0 if it was made. The child is dead.
fn acknowledgements(kind: &Kind, dir: &Path, round: u64) -> Vec<Vec<i32>> {
    let mut dice = Random::new(round ^ 0xDEAD);
    // some die before they are open or a little after, some after several checkpoints
    let limit = match dice.below(8) {
        0 => 1 + dice.below(3),
        1..6 => dice.below(900),
        _ => dice.below(9000),
    };
    let mut child = start(kind, dir, round);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = vec![Vec::new(); THREADS as usize];
    let mut count = 0;
    // what is in the pipe when the child dies counts, too
    for line in lines {
        let line = line.unwrap();
        let Some(words) = line.strip_prefix(MARK) else { continue };
        if let Some((thread, errno)) = words.split_once(' ') {
            told[thread.parse::<usize>().unwrap()].push(errno.parse().unwrap());
        }
        count += 1;
        if count == limit.max(1) {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(status.code().is_none(), "round {round}: the child ended by itself, {status}");
    told
}

/// Copies the pool as the kill left it, to be looked at if it is not right.
fn keep_pool(dir: &Path, keep: &Path) {
    std::fs::create_dir_all(keep).unwrap();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        std::fs::copy(entry.path(), keep.join(entry.file_name())).unwrap();
    }
}

/// What came of a round.
struct Round {
    acknowledged: u64,
    blocks_on_tier: u64,
}

/// One round.
fn kill_once(kind: &Kind, dir: &Path, round: u64, models: &mut [Model]) -> Round {
    let told = acknowledgements(kind, dir, round);
    if let Some(keep) = std::env::var_os("NEARSIDE_KILLS_KEEP") {
        keep_pool(dir, Path::new(&keep));
    }
    let report = nearside::check(dir).unwrap();
    assert!(report.findings.is_empty(), "round {round}: {:#?}", report.findings);
    let pool = kind.open(dir);
    let tier = pool.fs().tier_stats();
    let mut appended = Vec::new();
    for (thread, model) in (0..).zip(models.iter_mut()) {
        let mut random = random(round, thread);
        let mut own = Vec::new();
        for (number, errno) in (0..).zip(&told[thread as usize]) {
            match next(&mut random) {
                Some(op) => {
                    let expected = model.apply(&op);
                    assert_eq!(expected, *errno == 0, "round {round}: {op:?} gave errno {errno}");
                }
                None => {
                    assert_eq!(*errno, 0, "round {round}: an append to the shared file");
                    own.push(record(round, thread, number));
                }
            }
        }
        let pending = next(&mut random);
        let last = record(round, thread, told[thread as usize].len() as u64);
        appended.push((own, pending.is_none().then_some(last)));
        verify(&pool, round, thread, model, pending.as_ref());
    }
    verify_shared(&pool, round, &appended);
    if round.is_multiple_of(2) {
        pool.close().unwrap();
    }
    Round {
        acknowledged: told.iter().map(|told| told.len() as u64).sum(),
        blocks_on_tier: tier.map_or(0, |tier| tier.device_blocks - tier.device_blocks_free),
    }
}

/// The thread's directory is what its model says, or that with the pending change.
fn verify(pool: &Pool, round: u64, thread: u64, model: &mut Model, pending: Option<&Op>) {
    let found = library::read(pool, &root(thread)).unwrap();
    if found == *model {
        return;
    }
    let differing = model.differing(&found);
    if let Some(op) = pending {
        model.apply(op);
    }
    let fine = found == *model;
    assert!(fine, "round {round}, thread {thread}, pending {pending:?}: {differing:?} differ");
}

/// Records that a thread appended for certain, and the one that it may have.
type Appended = (Vec<[u8; RECORD]>, Option<[u8; RECORD]>);

/// Everything appended is there once, whole and in the order of each thread; then all of it goes.
fn verify_shared(pool: &Pool, round: u64, appended: &[Appended]) {
    let content = pool.read("/shared").unwrap();
    let (records, rest) = content.as_chunks::<RECORD>();
    assert!(rest.is_empty(), "round {round}: {} bytes of a record", rest.len());
    let mut expected = 0;
    for (thread, (own, pending)) in (0u64..).zip(appended) {
        let of_thread = |record: &&[u8; RECORD]| record[8..16] == thread.to_le_bytes();
        let found: Vec<[u8; RECORD]> = records.iter().filter(of_thread).copied().collect();
        let with_pending = || own.iter().chain(pending).eq(&found);
        assert!(found == *own || with_pending(), "round {round}: appends of thread {thread}");
        expected += found.len();
    }
    assert_eq!(records.len(), expected, "round {round}: records of nobody");
    let shared = pool.open_file("/shared", &OpenFlags::new().write(true)).unwrap();
    shared.set_len(0).unwrap();
}
