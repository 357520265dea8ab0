//! Pools with a capacity tier, crashed at every point: what is on it, and what moves there.
#![allow(clippy::unwrap_used)]

mod common;

use common::none;
use crash::catalog::{Op, SYNC, catalog, find};
use crash::events::Kind as Happened;
use crash::explore::{Settings, explore};
use crash::moves::moves;
use crash::plan::{Job, Kind, job};
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

/// Every fourth workload of the kind, but for chains.
#[test]
fn blocks_that_move_while_others_change() {
    let (mut report, mut pairs, mut moved) = (Report::default(), 0, 0);
    for number in (0..48).map(|round| 4 * round + 3) {
        let Job::Pair(pair, settings) = job(Kind::Tiers, 1, number) else { continue };
        let recording = pair.record().unwrap();
        let slices = u32::try_from(recording.base.len()).unwrap() - 1;
        let is_below =
            |done: &Happened| matches!(done, Happened::Store { slice, .. } if *slice == slices);
        pairs += 1;
        let events = &recording.events[recording.first..];
        moved += u32::from(events.iter().any(|event| is_below(&event.kind)));
        report.add(explore(&recording, &settings));
    }
    eprintln!("{pairs} pairs, {moved} of them with moves: {} states", report.states);
    none(&report);
    // a few find nothing to be moved
    assert!(pairs > 30 && moved > pairs * 2 / 3, "{moved} of {pairs}");
}
