//! The file system against a model in ordinary maps: any sequence of calls, with kills, closes,
//! checkpoints and checks in between, in small pools whose log wraps and whose caches are evicted.

mod acls;
mod away;
mod compare;
mod content;
mod copies;
mod harness;
mod links;
mod ops;
mod reference;
mod reserve;
mod steps;
mod transactions;

use harness::{Harness, Setup};
use pool::Atime;
use proptest::prelude::*;

/// Of a pool with a capacity tier, a slice has at least twice the bytes that one piece of a write
/// may have.
const TIERED_SLICE_BYTES: u64 = 6 << 20;

/// Cases of each property, or what the environment says for a longer hunt.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("NEARSIDE_MODEL_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(cases),
        failure_persistence: None,
        max_shrink_iters: 3000,
        max_shrink_time: 20_000,
        ..ProptestConfig::default()
    }
}

fn setup(background: bool) -> impl Strategy<Value = Setup> {
    let memory_bytes = prop::option::of(prop_oneof![Just(4096u64), Just(200_000)]);
    let slice_bytes = prop_oneof![Just(1u64 << 20), Just(3 << 20), Just(16 << 20)];
    let log_line_bytes = prop_oneof![Just(64u32), Just(256)];
    let atime = prop_oneof![Just(Atime::Relatime), Just(Atime::Never)];
    let (mirrored, delegates) = (any::<bool>(), prop::bool::weighted(0.3));
    let kind = (atime, mirrored, delegates, 0usize..3);
    (1usize..4, slice_bytes, log_line_bytes, memory_bytes, kind).prop_map(
        move |(slices, slice_bytes, log_line_bytes, memory_bytes, kind)| {
            let (atime, mirrored, delegates, devices) = kind;
            // one call's blocks lie in slices first
            let least = if devices > 0 { TIERED_SLICE_BYTES } else { 0 };
            let slice_bytes = slice_bytes.max(least);
            Setup {
                devices,
                delegates,
                mirrored,
                atime,
                slices,
                slice_bytes,
                log_line_bytes,
                memory_bytes,
                background,
            }
        },
    )
}

proptest! {
    #![proptest_config(config(60))]
    #[test]
    fn calls_kills_and_checkpoints_behave_as_the_model(
        setup in setup(false),
        ops in prop::collection::vec(ops::op(), 1..150),
    ) {
        Harness::new(setup).run(&ops).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(config(20))]
    #[test]
    fn with_background_checkpoints_calls_behave_as_the_model(
        setup in setup(true),
        ops in prop::collection::vec(ops::op(), 1..300),
    ) {
        Harness::new(setup).run(&ops).map_err(TestCaseError::fail)?;
    }
}
