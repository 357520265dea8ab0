//! Whether the explorer would notice: every line of the engine that flushes, fences, syncs or
//! compares a checksum is made to do nothing, one after the other, and each time something must be
//! found wrong.

use crate::attached;
use crate::catalog::{SYNC, named};
use crate::explore::{Settings, explore, sites};
use crate::flips::{Closed, unreadable_state};
use crate::images::{Outcome, Shape};
use crate::mended;
use crate::mutant::Mutant;
use crate::recording::{Recorder, Recording, Start, Workload, record};
use crate::select::Budget;
use crate::unfinished::unfinished;
use crate::world::World;
use fs::NewNode;
use pmem::Domain;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What became of the mutants.
#[derive(Clone, Debug, Default)]
pub struct Adequacy {
    /// Those that were noticed, and in which workload.
    pub killed: Vec<(Mutant, String)>,
    /// Those that nobody would notice, because nothing depends on that line where it is.
    pub equivalent: Vec<(Mutant, &'static str)>,
    /// Those that were not noticed, and should have been.
    pub survived: Vec<Mutant>,
}

impl Adequacy {
    /// Mutants that should be noticed.
    pub fn total(&self) -> usize {
        self.killed.len() + self.survived.len()
    }
}

/// The operations that the mutants are run with: few that do everything that is done to a medium.
const WORKLOADS: [(Domain, Start, &[&str]); 24] = [
    (Domain::CpuFlush, Start::Folded, &["overwrite-many"]),
    (Domain::CpuFlush, Start::Folded, &["write-across-unaligned"]),
    (Domain::CpuFlush, Start::Logged, &["checkpoint"]),
    (Domain::CpuFlush, Start::Folded, &["create"]),
    (Domain::CpuFlush, Start::Logged, &["write-patch", "checkpoint"]),
    (Domain::CpuFlush, Start::Folded, &["setxattr-large"]),
    (Domain::CpuFlush, Start::Recovered, &["rename-replace-far"]),
    (Domain::CpuFlush, Start::LongLines, &["write-patch", "overwrite"]),
    (Domain::Sync, Start::Folded, &["overwrite", SYNC]),
    (Domain::Sync, Start::Logged, &["append", "overwrite", "checkpoint", SYNC]),
    (Domain::Sync, Start::Logged, &["unlink-last", "create", SYNC]),
    (Domain::CpuCache, Start::Folded, &["overwrite-many"]),
    (Domain::CpuCache, Start::Logged, &["checkpoint"]),
    (Domain::CpuFlush, Start::Mirrored, &["overwrite-many"]),
    (Domain::CpuFlush, Start::LosesFirst, &["append", "checkpoint"]),
    (Domain::CpuFlush, Start::LosesSecond, &["create", "write-patch"]),
    (Domain::Sync, Start::Mirrored, &["overwrite", SYNC]),
    (Domain::CpuFlush, Start::Tiered, &["move-changed"]),
    (Domain::CpuFlush, Start::Tiered, &["move-twice", "checkpoint"]),
    (Domain::CpuCache, Start::Tiered, &["move-new", "checkpoint"]),
    (Domain::Sync, Start::Tiered, &["move", SYNC]),
    (Domain::CpuFlush, Start::Attached, &["lane-begin", "lane-write-across"]),
    (Domain::CpuFlush, Start::Attached, &["lane-lapped-short"]),
    (Domain::CpuFlush, Start::Attached, &["lane-recall-and-write"]),
];

/// A recording and the lines that it and its recovery run through.
struct Tried {
    recording: Recording,
    mutants: BTreeSet<Mutant>,
}

/// Runs all mutants on so many threads; `tell` is called with lines for the user.
pub fn adequacy(threads: usize, tell: &(dyn Fn(&str) + Sync)) -> Outcome<Adequacy> {
    let tried = tried()?;
    // one bit of them is flipped at a time
    let pools = Mutex::new([
        ("bits of a closed pool flipped", Closed::new(&Shape::SMALL)?),
        ("bits of a killed pool flipped", Closed::killed(&Shape::SMALL)?),
        ("bits of a mirrored pool flipped", Closed::new(&Shape::MIRRORED)?),
        ("bits of a pool with a tier flipped", Closed::new(&Shape::TIERED)?),
    ]);
    let mutants: BTreeSet<Mutant> = tried.iter().flat_map(|t| t.mutants.iter().copied()).collect();
    let mutants: Vec<Mutant> = mutants.into_iter().collect();
    let killer = |mutant: Mutant| {
        let tried = tried.iter().find(|tried| kills(tried, mutant));
        let name = tried.map(|tried| tried.recording.name.clone());
        name.or_else(|| {
            let pools = pools.lock().unwrap_or_else(PoisonError::into_inner);
            flipped(&*pools, mutant).map(str::to_owned)
        })
    };
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Adequacy::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let killed = killer(*mutant);
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    match (killed, equivalent(&tried, *mutant)) {
                        (Some(killer), _) => found.killed.push((*mutant, killer)),
                        (None, Some(why)) => found.equivalent.push((*mutant, why)),
                        (None, None) => {
                            tell(&format!("SURVIVED: {mutant}"));
                            found.survived.push(*mutant);
                        }
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.killed.sort();
    Ok(found)
}

/// The workloads, each explored once: without a fault nothing is wrong.
fn tried() -> Outcome<Vec<Tried>> {
    let mut recordings = Vec::new();
    for (domain, start, ops) in WORKLOADS {
        let ops = ops.iter().map(|name| named(name)).collect::<Outcome<Vec<_>>>()?;
        recordings.push(record(&Workload { start, domain, ops, cpu: 0 })?);
    }
    // a log that wraps, and blocks that a checkpoint writes
    recordings.push(rounds(Domain::CpuFlush, 12, &["setxattr-large", "overwrite", "write-patch"])?);
    recordings.push(rounds(Domain::Sync, 4, &["overwrite", SYNC, "checkpoint"])?);
    recordings.push(opened(Domain::CpuFlush)?);
    recordings.push(opened(Domain::Sync)?);
    recordings.push(unfinished(Domain::CpuFlush)?);
    recordings.push(unfinished(Domain::Sync)?);
    for domain in [Domain::CpuFlush, Domain::Sync] {
        recordings.push(mended::scrubbed(domain)?);
        recordings.push(mended::resilvered(domain)?);
    }
    recordings
        .into_iter()
        .map(|recording| {
            let (report, mut mutants) = sites(&recording, &settings());
            if attached::begin_in(&recording.base).is_some() {
                // all else is run through by the others, in less time
                mutants.retain(|mutant| mutant.site().file().contains("crates/lanes/"));
            }
            match report.violations.first() {
                None => Ok(Tried { recording, mutants }),
                Some(violation) => Err(format!("without a fault:\n{violation}")),
            }
        })
        .collect()
}

/// Operations again and again, those of each third round on another lane.
fn rounds(domain: Domain, rounds: u8, names: &[&str]) -> Outcome<Recording> {
    let mut recorder = Recorder::new(&Shape { slices: 1, domain, ..Shape::SMALL }, 0)?;
    recorder.plant()?;
    recorder.begin()?;
    for round in 0..rounds {
        for name in names {
            let op = named(name)?;
            let _ = match round % 3 {
                0 => recorder.operation(op.name, |world| world.elsewhere(op.run))?,
                _ => recorder.operation(op.name, op.run)?,
            };
        }
    }
    Ok(recorder.finish(format!("{rounds} rounds of {}, {domain}", names.join(", "))))
}

/// A pool that is opened, and changed by another thread than the one that opened it.
fn opened(domain: Domain) -> Outcome<Recording> {
    let mut recorder = Recorder::new(&Shape { slices: 1, domain, ..Shape::SMALL }, 0)?;
    recorder.begin_at_open()?;
    let create = |world: &mut World| {
        world.on_thread(|world| world.make("/d", NewNode::Directory).map(|_| ()))
    };
    let _ = recorder.operation("create", create)?;
    Ok(recorder.finish(format!("an open, {domain}")))
}

/// Who notices that a checksum is not looked at when bits of a medium are wrong.
fn flipped(pools: &[(&'static str, Closed)], mutant: Mutant) -> Option<&'static str> {
    mutant.blind()?;
    let seen = |(_, pool): &&(&str, Closed)| {
        let superblock = 0..512 * 8;
        let others = (superblock.end..pool.bits()).step_by(FLIP_EVERY);
        let members = MEMBERS_LINES.into_iter().flat_map(|line| pool.bits_of_line(line));
        let bits = superblock.chain(members).chain(others);
        // another slice says which devices there are
        let table = TABLE_LINES.flat_map(|line| pool.bits_of_line(line)).step_by(FLIP_EVERY);
        !pool.flip(bits, Some(mutant)).violations.is_empty()
            || !pool.opens_with_each_bit(table, Some(mutant))
    };
    if let Some((name, _)) = pools.iter().find(seen) {
        return Some(name);
    }
    let state = unreadable_state(Some(mutant)).unwrap_or_default();
    (!state.is_empty()).then_some("bits of the state flipped")
}

/// Where a mirrored pool says whose files are current, in both halves of a file (docs/FORMAT.md).
const MEMBERS_LINES: [u64; 2] = [6 * 64, (6 + 256) * 64];

/// Where slices say which devices their pool has (docs/FORMAT.md).
pub const TABLE_LINES: Range<u64> = 8 * 64..9 * 64;

/// Of so many bits behind the first superblock one is flipped; odd, so that it meets each of a
/// byte.
const FLIP_EVERY: usize = 67;

fn settings() -> Settings {
    let budget = Budget { exhaustive: 256, samples: 384 };
    Settings { budget, inner_every: 16, again_every: 8, use_every: 16, ..Settings::quick(1) }
}

fn kills(tried: &Tried, mutant: Mutant) -> bool {
    tried.mutants.contains(&mutant)
        && !explore(&tried.recording, &Settings { mutant: Some(mutant), ..settings() })
            .violations
            .is_empty()
}

/// Why nothing depends on a line, where that is so.
fn equivalent(tried: &[Tried], mutant: Mutant) -> Option<&'static str> {
    let fence = matches!(mutant, Mutant::Fence(_) | Mutant::Swap(_));
    if fence && mutant.site().file().ends_with("pool/src/mirror.rs") {
        return Some(
            "it orders copying to a stale file before what other threads store there; that all of \
             it is durable is seen to by the fences of who declares the file current",
        );
    }
    let orders = |t: &Tried| t.recording.domain != Domain::Sync && t.mutants.contains(&mutant);
    (fence && !tried.iter().any(orders)).then_some(
        "it runs in the sync domain only, where a fence orders what threads see, and nothing on \
         the medium",
    )
}
