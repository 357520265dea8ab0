//! The fuzz targets with their seeds and their kept corpus, and without libFuzzer.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use fuzz::targets::{TARGETS, Target};
use std::path::Path;

/// The seeds of a target and the files of its kept corpus, by name.
fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    let seeds = (target.seeds)().into_iter().enumerate();
    let mut inputs: Vec<_> = seeds.map(|(at, seed)| (format!("seed {at}"), seed)).collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    for file in std::fs::read_dir(&dir).unwrap().map(Result::unwrap) {
        inputs.push((file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()));
    }
    inputs.sort();
    inputs
}

/// What is sound and what is not come this far: neither the checksums nor the magics stop an input.
#[test]
fn no_seed_and_no_kept_input_makes_the_engine_panic() {
    for target in TARGETS {
        let mut sound = 0;
        let inputs = inputs(&target);
        for (name, bytes) in &inputs {
            println!("{} {name}", target.name);
            sound += usize::from((target.run)(bytes));
        }
        println!("{}: {} inputs, {sound} of them sound", target.name, inputs.len());
        assert!((3..inputs.len() - 3).contains(&sound), "{}: {sound} are sound", target.name);
    }
}
