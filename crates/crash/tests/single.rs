//! Every single operation, from every start, crashed at its points.
#![allow(clippy::unwrap_used)]

mod common;

use common::none;
use crash::catalog::catalog;
use crash::explore::{Settings, explore};
use crash::recording::{Start, Workload, record};
use crash::report::Report;

/// Every second operation, from the first or from the second on: two tests share the work.
fn operations(start: Start, from: usize) {
    let mut report = Report::default();
    for op in catalog().into_iter().skip(from).step_by(2) {
        // Files that share blocks make long workloads: every second of their points is crashed
        // here, and all of them by `nearside-crash run`.
        let shares = op.name.starts_with("copy") || op.name.starts_with("shared");
        let quick = Settings::quick(1);
        let point_every = if shares { quick.point_every * 2 } else { quick.point_every };
        let recording = record(&Workload::single(start, op)).unwrap();
        report.add(explore(&recording, &Settings { point_every, ..quick }));
    }
    eprintln!("{}: {} states in {} workloads", start.name(), report.states, report.workloads);
    none(&report);
}

#[test]
fn one_half_of_all_operations_on_a_logged_tree() {
    operations(Start::Logged, 0);
}

#[test]
fn the_other_half_on_a_logged_tree() {
    operations(Start::Logged, 1);
}

#[test]
fn one_half_of_all_operations_on_a_folded_tree() {
    operations(Start::Folded, 0);
}

#[test]
fn the_other_half_on_a_folded_tree() {
    operations(Start::Folded, 1);
}

#[test]
fn one_half_of_all_operations_on_a_recovered_tree() {
    operations(Start::Recovered, 0);
}

#[test]
fn the_other_half_on_a_recovered_tree() {
    operations(Start::Recovered, 1);
}

#[test]
fn one_half_of_all_operations_on_a_log_of_long_lines() {
    operations(Start::LongLines, 0);
}

#[test]
fn the_other_half_on_a_log_of_long_lines() {
    operations(Start::LongLines, 1);
}

/// The same seed makes the same workloads, and crashes them at the same points.
#[test]
fn a_run_is_repeated_by_its_seed() {
    let plan = crash::run::Plan {
        time: std::time::Duration::ZERO,
        seed: 11,
        ops_max: 3,
        threads: 1,
        singles: false,
    };
    for number in [0, 1, 17] {
        let twice = [(); 2].map(|()| {
            let workload = crash::run::workload(&plan, number);
            let recording = record(&workload).unwrap();
            let kinds: Vec<_> = recording.events.iter().map(|e| e.kind.shape()).collect();
            (workload.arguments(), kinds, recording.first)
        });
        assert_eq!(twice[0], twice[1], "{}", twice[0].0);
    }
}
