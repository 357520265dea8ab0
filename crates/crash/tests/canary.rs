//! The explorer is shown able to fail: engines with a fault made after the fact are caught.
#![allow(clippy::unwrap_used)]

mod common;

use common::clean;
use crash::catalog::find;
use crash::explore::{Settings, explore};
use crash::mutant::{Mutant, mutate, sites};
use crash::recording::{Recording, Start, Workload, record};

fn recording(op: &str) -> Recording {
    record(&Workload::single(Start::Logged, find(op).unwrap())).unwrap()
}

fn caught(recording: &Recording, mutant: Mutant) -> bool {
    !explore(&mutate(recording, mutant), &Settings::quick(5)).violations.is_empty()
}

#[test]
fn a_call_that_returns_before_its_fence_is_caught() {
    for op in ["create", "overwrite", "write-patch", "rename-replace-far", "truncate-middle"] {
        let recording = recording(op);
        clean(&recording, &Settings::quick(5));
        assert!(caught(&recording, Mutant::ReturnEarly), "{op}");
        assert!(caught(&recording, Mutant::DropFences), "{op}");
    }
}

#[test]
fn every_store_of_a_write_that_is_not_flushed_is_caught() {
    let recording = recording("overwrite-many");
    let (fences, stores) = sites(&recording);
    assert!(fences >= 1 && stores >= 4, "{fences} fences, {stores} stores");
    for store in 0..stores {
        assert!(caught(&recording, Mutant::DropFlush(store)), "store {store} of {stores}");
    }
}

#[test]
fn a_checkpoint_without_one_of_its_fences_is_caught() {
    let recording = recording("checkpoint");
    let (fences, _) = sites(&recording);
    assert!(fences >= 2, "{fences} fences");
    // without the last one the old roots are still there, and the log that they need
    for fence in 0..fences - 1 {
        assert!(caught(&recording, Mutant::DropFence(fence)), "fence {fence} of {fences}");
    }
}
