//! Bits that a medium lost: an error, or nothing at all; never another answer.

use crash::flipped::TABLE_LINES;
use crash::flips::{Closed, unreadable_state};
use crash::images::Shape;

/// Of so many bits one is flipped here; odd, so that it meets each of a byte. All of them are by
/// `nearside-crash flips` and `nearside-crash flips --killed`.
const EVERY: usize = 23;

fn flips(closed: &Closed, bits: impl Iterator<Item = u64>) {
    let found = closed.flip(bits, None);
    assert_eq!(found.violations, Vec::<String>::new());
    assert!(found.bits > 10_000 && found.seen > found.bits / 2, "{found:?}");
}

#[test]
fn bits_of_a_closed_pool() {
    let closed = Closed::new(&Shape::SMALL).unwrap();
    flips(&closed, (0..closed.bits()).step_by(EVERY));
}

#[test]
fn bits_of_a_pool_that_was_killed() {
    let killed = Closed::killed(&Shape { slices: 1, ..Shape::SMALL }).unwrap();
    flips(&killed, (0..killed.bits()).step_by(EVERY));
}

/// Whatever bit is lost, another copy has it.
#[test]
fn bits_of_a_mirrored_pool() {
    let closed = Closed::new(&Shape::MIRRORED).unwrap();
    flips(&closed, (0..closed.bits()).step_by(2 * EVERY + 1));
    assert!(closed.opens_with_each_bit((0..closed.bits()).step_by(4 * EVERY + 3), None));
}

/// What is on the device is there once: a bit that is lost shows itself.
#[test]
fn bits_of_a_pool_with_a_tier() {
    let closed = Closed::new(&Shape::TIERED).unwrap();
    flips(&closed, (0..closed.bits()).step_by(2 * EVERY + 1));
    let table: Vec<u64> = TABLE_LINES.flat_map(|line| closed.bits_of_line(line)).collect();
    assert!(!table.is_empty());
    assert!(closed.opens_with_each_bit(table.into_iter().step_by(EVERY), None));
}

#[test]
fn bits_of_who_wrote_last() {
    assert_eq!(unreadable_state(None).unwrap(), Vec::<String>::new());
}
