//! Every single operation, from every start, crashed at every point.

use crate::common::none;
use crash::catalog::catalog;
use crash::explore::{Settings, explore};
use crash::plan::{Job, mixed};
use crash::recording::{Start, Workload, record};
use crash::report::Report;

fn every_operation(start: Start) {
    let mut report = Report::default();
    for op in catalog() {
        let recording = record(&Workload::single(start, op)).unwrap();
        report.add(explore(&recording, &Settings::quick(1)));
    }
    eprintln!("{}: {} states in {} workloads", start.name(), report.states, report.workloads);
    none(&report);
}

#[test]
fn every_operation_on_a_logged_tree() {
    every_operation(Start::Logged);
}

#[test]
fn every_operation_on_a_folded_tree() {
    every_operation(Start::Folded);
}

#[test]
fn every_operation_on_a_recovered_tree() {
    every_operation(Start::Recovered);
}

#[test]
fn every_operation_on_a_log_of_long_lines() {
    every_operation(Start::LongLines);
}

/// The same seed makes the same workloads, and crashes them at the same points.
#[test]
fn a_run_is_repeated_by_its_seed() {
    for number in [0, 100, 3000, 3400, 3401, 3402] {
        let twice = [(); 2].map(|()| {
            let Job::Workload(workload, _) = mixed(11, number) else { return None };
            let recording = record(&workload).unwrap();
            let kinds: Vec<_> = recording.events.iter().map(|e| e.kind.shape()).collect();
            Some((workload.arguments(), kinds, recording.first))
        });
        assert_eq!(twice[0], twice[1], "{number}");
    }
}
