//! Pools with a capacity tier, crashed at every point: what is on it, and what moves there.
#![allow(clippy::unwrap_used)]

mod common;

use common::none;
use crash::catalog::{Op, SYNC, catalog, find};
use crash::explore::{Settings, explore};
use crash::moves::moves;
use crash::recording::{Start, Workload, record};
use crash::report::Report;
use pmem::Domain;

fn operations(domain: Domain, ops: impl Iterator<Item = Op>) {
    let mut report = Report::default();
    for op in ops {
        let mut workload = Workload { domain, ..Workload::single(Start::Tiered, op) };
        workload.ops.extend((domain == Domain::Sync).then(|| find(SYNC).unwrap()));
        let recording = record(&workload).unwrap();
        report.add(explore(&recording, &Settings::quick(1)));
    }
    eprintln!("{domain}: {} states in {} workloads", report.states, report.workloads);
    none(&report);
}

#[test]
fn every_operation_on_blocks_of_the_tier() {
    operations(Domain::CpuFlush, catalog().into_iter());
}

#[test]
fn blocks_that_move_to_the_tier() {
    for domain in [Domain::CpuFlush, Domain::Sync, Domain::CpuCache] {
        operations(domain, moves().into_iter());
    }
}

#[test]
fn operations_in_the_other_domains() {
    for domain in [Domain::Sync, Domain::CpuCache] {
        operations(domain, catalog().into_iter().step_by(3));
    }
}
