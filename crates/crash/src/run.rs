//! Long runs: workloads one after the other, on a thread for each CPU, and the faults of the engine
//! that must be noticed.

use crate::explore::{Settings, explore};
use crate::plan::{Job, Kind, job, mixed};
use crate::recording::{Workload, record};
use crate::report::Report;
use crate::shrink::shrink;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// When to stop.
    pub deadline: Instant,
    /// Seed of all choices.
    pub seed: u64,
    /// The first workload's number.
    pub from: u64,
    /// The number behind the last one's.
    pub to: u64,
    /// Threads.
    pub threads: usize,
    /// Workloads of one kind only.
    pub kind: Option<Kind>,
}

/// Violations that are told; more are counted only.
const TOLD_MAX: usize = 20;
/// A workload that takes longer hangs.
const HANG: Duration = Duration::from_secs(600);

/// Runs until the time is up or all is done; `tell` is called with lines for the user. Gives the
/// number of the first workload that was not begun, too.
pub fn run(plan: &Plan, tell: &(dyn Fn(&str) + Sync)) -> (Report, u64) {
    let next = AtomicU64::new(plan.from);
    let total = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| {
                while Instant::now() < plan.deadline {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.to {
                        return;
                    }
                    let found = one(plan, number);
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    for violation in &found.violations {
                        if total.violations.len() < TOLD_MAX {
                            tell(&format!(
                                "{violation}\n  seed: {}, number: {number}\n",
                                plan.seed
                            ));
                        }
                        total.violations.push(violation.clone());
                    }
                    total.add(Report { violations: Vec::new(), ..found });
                }
            });
        }
    });
    let next = next.into_inner().min(plan.to);
    (total.into_inner().unwrap_or_else(PoisonError::into_inner), next)
}

fn one(plan: &Plan, number: u64) -> Report {
    let job = match plan.kind {
        Some(kind) => job(kind, plan.seed, number),
        None => mixed(plan.seed, number),
    };
    let deadline = Some(plan.deadline);
    match job {
        Job::Workload(workload, settings) => {
            let _watch = watch(workload.arguments());
            explored(&workload, &Settings { deadline, ..settings })
        }
        Job::Pair(pair, settings) => {
            let _watch = watch(pair.arguments());
            match pair.record() {
                Ok(recording) => explore(&recording, &Settings { deadline, ..settings }),
                Err(what) => Report::broken(&pair.arguments(), what),
            }
        }
        Job::Chain(chain) => {
            let _watch = watch(chain.name());
            chain.run(&Settings { deadline, ..chain.settings() })
        }
    }
}

fn explored(workload: &Workload, settings: &Settings) -> Report {
    let recording = match record(workload) {
        Ok(recording) => recording,
        Err(what) => return Report::broken(&workload.arguments(), what),
    };
    let mut report = explore(&recording, settings);
    if let Some(violation) = report.violations.first_mut() {
        *violation = shrink(workload, violation.clone(), settings);
    }
    report
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
