//! Long runs: every single operation, then sequences by a seed, on a thread for each CPU.

use crate::catalog::catalog;
use crate::chain::Chain;
use crate::explore::{Settings, explore};
use crate::images::Shape;
use crate::recording::{Start, Workload, record};
use crate::report::Report;
use crate::rng::{Rng, mix};
use pmem::Domain;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How long.
    pub time: Duration,
    /// Seed of all choices.
    pub seed: u64,
    /// Operations of the longest sequences.
    pub ops_max: usize,
    /// Threads.
    pub threads: usize,
    /// Begin with every single operation.
    pub singles: bool,
}

/// Violations that are told; more are counted only.
const TOLD_MAX: usize = 20;
/// A workload that takes longer hangs.
const HANG: Duration = Duration::from_secs(600);

/// Workload number `number` of a plan.
pub fn workload(plan: &Plan, number: u64) -> Workload {
    let ops = catalog();
    let singles = singles(plan);
    let cpu = (number % 2) as usize;
    if number < singles {
        let start = Start::ALL[number as usize / ops.len()];
        let op = ops[number as usize % ops.len()];
        return Workload { start, domain: Domain::CpuFlush, ops: vec![op], cpu };
    }
    let mut rng = Rng::new(mix(plan.seed ^ mix(number)));
    let start = Start::ALL[rng.below(Start::ALL.len())];
    let longest = plan.ops_max.max(2);
    let len = 2 + rng.below(longest - 1);
    let ops = (0..len).map(|_| ops[rng.below(ops.len())]).collect();
    Workload { start, domain: Domain::CpuFlush, ops, cpu }
}

/// How many workloads of one operation come first.
fn singles(plan: &Plan) -> u64 {
    if plan.singles { (catalog().len() * Start::ALL.len()) as u64 } else { 0 }
}

/// Runs until the time is up; `tell` is called with lines for the user.
pub fn run(plan: &Plan, tell: &(dyn Fn(&str) + Sync)) -> Report {
    let deadline = Instant::now() + plan.time;
    let next = AtomicU64::new(0);
    let total = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| {
                while Instant::now() < deadline {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let found = one(plan, number, deadline);
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    for violation in &found.violations {
                        if total.violations.len() < TOLD_MAX {
                            tell(&format!("{violation}\n  seed: {}\n", plan.seed));
                        }
                        total.violations.push(violation.clone());
                    }
                    total.add(Report { violations: Vec::new(), ..found });
                }
            });
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One of so many workloads, after the single operations, is a chain.
const CHAIN_EVERY: u64 = 8;

fn one(plan: &Plan, number: u64, deadline: Instant) -> Report {
    if number % CHAIN_EVERY == CHAIN_EVERY - 1 && number >= singles(plan) {
        return chain(plan, number, deadline);
    }
    let workload = workload(plan, number);
    let seed = mix(plan.seed.wrapping_add(number));
    let settings =
        if workload.ops.len() == 1 { Settings::thorough(seed) } else { Settings::quick(seed) };
    let watch = watch(workload.arguments());
    let report = match record(&workload) {
        Ok(recording) => explore(&recording, &Settings { deadline: Some(deadline), ..settings }),
        Err(what) => Report::broken(&workload.arguments(), what),
    };
    drop(watch);
    report
}

fn chain(plan: &Plan, number: u64, deadline: Instant) -> Report {
    let seed = mix(plan.seed.wrapping_add(number)) >> 32;
    let shape = Shape { slices: 1 + (number / CHAIN_EVERY % 3) as usize, ..Shape::SMALL };
    let chain = Chain { shape, crashes: 6, ops: 6, seed };
    let _watch = watch(chain.name());
    chain.run(&Settings { deadline: Some(deadline), ..Chain::settings(seed) })
}

/// Ends the program if a workload hangs: an engine that never returns is a violation, too.
fn watch(workload: String) -> std::sync::mpsc::Sender<()> {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if wait.recv_timeout(HANG) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("VIOLATION: hangs for {HANG:?}\n  workload: {workload}");
            std::process::exit(1);
        }
    });
    done
}
