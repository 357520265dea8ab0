//! Requests whose answer is late: each crash leaves with every change the word that it was made.

use crate::common::clean;
use crash::catalog::{find, plant};
use crash::explore::Settings;
use crash::images::Shape;
use crash::recording::Recorder;

/// Runs these operations, each a request, one after the other.
fn requests(shape: Shape, ops: &[&str], seed: u64) {
    let mut recorder = Recorder::new(&shape, 0).unwrap();
    recorder.world.at_home(plant).unwrap();
    let ops: Vec<_> = ops.iter().map(|name| find(name).unwrap()).collect();
    ops.iter().for_each(|op| recorder.world.at_home(op.prepare).unwrap());
    recorder.ask();
    recorder.begin().unwrap();
    for op in &ops {
        recorder.operation(op.name, op.run).unwrap().unwrap();
    }
    let recording = recorder.finish(format!("requests {}", shape.slices));
    let changes = ops.iter().filter(|op| op.name != "checkpoint").count();
    assert_eq!(recording.requests.iter().filter(|made| **made).count(), changes);
    clean(&recording, &Settings { point_every: 2, ..Settings::quick(seed) });
}

const OPS: [&str; 19] = [
    "create",
    "append",
    "overwrite",
    "checkpoint",
    "append-small",
    "write-patch",
    "setxattr-large",
    "checkpoint",
    "mkdir",
    "write-inside",
    "unlink-not-last",
    "overwrite-many",
    "truncate-patched",
    "link-far",
    "rename-replace-far",
    "punch-patched",
    "checkpoint",
    "exchange-dirs",
    "symlink",
];

#[test]
fn a_crash_keeps_a_change_and_the_word_that_it_was_made_or_neither() {
    requests(Shape { slices: 1, ..Shape::SMALL }, &OPS, 21);
}

#[test]
fn the_same_in_two_slices_with_long_lines() {
    requests(Shape::LONG_LINES, &OPS, 22);
}
