//! Whether the explorer would notice: every line of the engine that flushes, fences, syncs or
//! compares a checksum is made to do nothing, one after the other, and each time something must be
//! found wrong.

use crate::attached;
use crate::catalog::{SYNC, named};
use crate::explore::{Settings, explore, sites};
use crate::flipped::Flipped;
use crate::images::{Outcome, Shape};
use crate::mended;
use crate::mutant::Mutant;
use crate::recording::{Recorder, Recording, Start, Workload, record};
use crate::select::Budget;
use crate::unfinished::unfinished;
use crate::world::World;
use fs::NewNode;
use pmem::Domain;
use std::collections::{BTreeMap, BTreeSet};
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
struct Tried<'r> {
    recording: &'r Recording,
    /// And whether anything is different with them.
    mutants: BTreeMap<Mutant, bool>,
}

/// Runs all mutants on so many threads; `tell` is called with lines for the user.
pub fn adequacy(threads: usize, tell: &(dyn Fn(&str) + Sync)) -> Outcome<Adequacy> {
    let recordings = recordings()?;
    let tried = on_threads(threads, &recordings, tried);
    let tried = tried.into_iter().collect::<Outcome<Vec<_>>>()?;
    let flipped = on_threads(threads, &Flipped::ALL, |make| make());
    let flipped = flipped.into_iter().collect::<Outcome<Vec<_>>>()?;
    let mutants: BTreeSet<Mutant> = tried.iter().flat_map(|t| t.mutants.keys().copied()).collect();
    let mutants: Vec<Mutant> = mutants.into_iter().collect();
    let (short, long) = tried.split_at(WORKLOADS.len());
    let noticed = |tried: &[Tried<'_>], mutant| {
        let tried = tried.iter().find(|tried| kills(tried, mutant));
        tried.map(|tried| tried.recording.name.clone())
    };
    // what takes long comes last
    let killer = |mutant: &Mutant| {
        let flipped = || flipped.iter().find(|flipped| flipped.kills(*mutant));
        noticed(short, *mutant)
            .or_else(|| flipped().map(|flipped| flipped.name.to_owned()))
            .or_else(|| noticed(long, *mutant))
    };
    let killers = on_threads(threads, &mutants, killer);
    let mut found = Adequacy::default();
    for (mutant, killed) in mutants.into_iter().zip(killers) {
        match (killed, equivalent(&tried, mutant)) {
            (Some(killer), _) => found.killed.push((mutant, killer)),
            (None, Some(why)) => found.equivalent.push((mutant, why)),
            (None, None) => {
                tell(&format!("SURVIVED: {mutant}"));
                found.survived.push(mutant);
            }
        }
    }
    Ok(found)
}

/// What each of them gives, in their order.
fn on_threads<'a, T: Sync, R: Send>(
    threads: usize,
    all: &'a [T],
    run: impl Fn(&'a T) -> R + Sync,
) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(index) else { return };
                    let result = run(one);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// All that is explored with each mutant that is in it.
fn recordings() -> Outcome<Vec<Recording>> {
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
    Ok(recordings)
}

/// Explores it once: without a fault nothing is wrong.
fn tried(recording: &Recording) -> Outcome<Tried<'_>> {
    let (report, mut mutants) = sites(recording, &settings());
    if attached::begin_in(&recording.base).is_some() {
        // all else is run through by the others, in less time
        mutants.retain(|mutant, _| mutant.site().file().contains("crates/lanes/"));
    }
    match report.violations.first() {
        None => Ok(Tried { recording, mutants }),
        Some(violation) => Err(format!("without a fault:\n{violation}")),
    }
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

fn settings() -> Settings {
    let budget = Budget { exhaustive: 256, samples: 384 };
    Settings { budget, inner_every: 16, again_every: 8, use_every: 16, ..Settings::quick(1) }
}

fn kills(tried: &Tried<'_>, mutant: Mutant) -> bool {
    tried.mutants.get(&mutant) == Some(&true)
        && !explore(
            tried.recording,
            &Settings { mutant: Some(mutant), violations: 1, ..settings() },
        )
        .violations
        .is_empty()
}

/// Why nothing depends on a line, where that is so.
fn equivalent(tried: &[Tried<'_>], mutant: Mutant) -> Option<&'static str> {
    let fence = matches!(mutant, Mutant::Fence(_) | Mutant::Swap(_));
    if fence && mutant.site().file().ends_with("pool/src/mirror.rs") {
        return Some(
            "it orders copying to a stale file before what other threads store there; that all of \
             it is durable is seen to by the fences of who declares the file current",
        );
    }
    let orders =
        |t: &Tried<'_>| t.recording.domain != Domain::Sync && t.mutants.contains_key(&mutant);
    (fence && !tried.iter().any(orders)).then_some(
        "it runs in the sync domain only, where a fence orders what threads see, and nothing on \
         the medium",
    )
}
