//! The explorer is shown able to fail: engines with a fault are caught.
#![allow(clippy::unwrap_used)]

mod common;

use common::clean;
use crash::adequacy::adequacy;
use crash::catalog::find;
use crash::explore::{Settings, explore};
use crash::mutant::return_early;
use crash::recording::{Start, Workload, record};

#[test]
fn a_call_that_returns_before_its_fence_is_caught() {
    for op in ["create", "overwrite", "write-patch", "rename-replace-far", "truncate-middle"] {
        let mut recording = record(&Workload::single(Start::Logged, find(op).unwrap())).unwrap();
        clean(&recording, &Settings::quick(5));
        return_early(&mut recording.events, recording.first);
        assert!(!explore(&recording, &Settings::quick(5)).violations.is_empty(), "{op}");
    }
}

#[test]
fn every_line_that_flushes_fences_syncs_or_compares_checksums_is_needed() {
    let found = adequacy(2, &|line| eprintln!("{line}")).unwrap();
    for (mutant, workload) in &found.killed {
        eprintln!("killed: {mutant}, by {workload}");
    }
    for (mutant, why) in &found.equivalent {
        eprintln!("equivalent: {mutant}: {why}");
    }
    assert!(found.survived.is_empty(), "{:?}", found.survived);
    assert!(found.killed.len() >= 20, "{}", found.killed.len());
}
