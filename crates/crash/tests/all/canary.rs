//! The explorer is shown able to fail: engines with a fault are caught.

use crate::common::clean;
use crash::adequacy::adequacy;
use crash::catalog::find;
use crash::explore::{Settings, explore, sites};
use crash::mutant::{Mutant, return_early};
use crash::recording::{Start, Workload, record};
use crash::shrink::shrink;

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

/// Blocks that are not flushed are those of the checkpoint at the workload's beginning, too: one of
/// three operations is enough, whichever, and of the lines one that is lost.
#[test]
fn what_goes_wrong_is_made_small() {
    let ops = ["mkdir", "overwrite", "symlink"].map(|name| find(name).unwrap()).to_vec();
    let workload = Workload { ops, ..Workload::single(Start::Folded, find("mkdir").unwrap()) };
    let recording = record(&workload).unwrap();
    let (_, mutants) = sites(&recording, &Settings::quick(3));
    let writes_blocks = |mutant: &Mutant| match mutant {
        Mutant::Flush(site) => site.file().ends_with("pool/src/blocks.rs"),
        _ => false,
    };
    let mutant = mutants.into_keys().find(writes_blocks);
    assert!(mutant.is_some());
    let settings = Settings { mutant, ..Settings::quick(3) };
    let found = explore(&recording, &settings).violations.remove(0);
    let small = shrink(&workload, found, &settings);
    assert!(!small.workload.contains(','), "one operation is enough: {small}");
    assert_eq!(small.lost().matches(" of ").count(), 1, "one line is enough: {small}");
    assert!(small.to_string().contains("repeat --domain cpu-flush --start folded"), "{small}");
}
