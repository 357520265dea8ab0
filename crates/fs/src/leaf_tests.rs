//! Tests of a leaf.

use super::*;
use crate::slot::SlotChange;

fn placed(block: u64) -> Placed {
    Placed { addr: BlockAddr::new(1, block), crc: block as u32 * 3 }
}

#[test]
fn a_leaf_with_runs_and_holes_round_trips() {
    let leaf = Leaf::new(127);
    let lock = leaf.lock().expect("alive");
    for slot in [0, 1, 2, 9, 10, 127] {
        lock.publish(slot, &SlotChange::Place(placed(1000 + slot as u64)));
    }
    drop(lock);
    let value = leaf.encode().expect("has blocks");
    assert_eq!(value.len(), 1 + 3 * 8 + 6 * 4);
    let again = Leaf::load(Some(&value), &[]).expect("just encoded");
    assert_eq!(again.encode(), Some(value));
    assert_eq!(again.view(9).addr, BlockAddr::new(1, 1009));
    assert!(again.view(8).addr.is_none());
    assert!(!again.view(9).verified, "stored blocks are verified at their first read");
}

#[test]
fn the_most_fragmented_leaf_fits_a_tree_value() {
    let leaf = Leaf::new(127);
    let lock = leaf.lock().expect("alive");
    for slot in 0..128 {
        lock.publish(slot, &SlotChange::Place(placed(10_000 - 2 * slot as u64)));
    }
    drop(lock);
    let value = leaf.encode().expect("has blocks");
    assert!(value.len() <= pool::tree::VALUE_BYTES_MAX);
    assert_eq!(leaf_value::decode(&value).map(|blocks| blocks.len()), Some(128));
}

#[test]
fn a_reader_notices_a_publication_and_a_dead_leaf() {
    let leaf = Leaf::new(3);
    let sequence = leaf.begin_read().expect("alive");
    assert!(leaf.still(sequence));
    let lock = leaf.lock().expect("alive");
    lock.publish(0, &SlotChange::Place(placed(5)));
    drop(lock);
    assert!(!leaf.still(sequence));
    leaf.lock().expect("alive").kill();
    assert!(leaf.begin_read().is_none());
    assert!(leaf.lock().is_none());
}

/// A block that is reserved is a hole to all, until it is written: then the slot has what it had.
#[test]
fn a_reserved_slot_is_a_hole_that_has_a_block() {
    let leaf = Leaf::new(3);
    let lock = leaf.lock().expect("alive");
    let addr = placed(77).addr;
    assert!(lock.publish(2, &SlotChange::Reserve(addr)).old.is_none());
    let view = leaf.view(2);
    assert!(view.is_hole() && view.reserved && !view.shared);
    assert_eq!((leaf.reserved(2), leaf.reserved(1)), (Some(addr), None));
    assert_eq!((leaf.plain(2), leaf.find(0, true), leaf.find(2, false)), (None, None, Some(2)));
    lock.publish(2, &SlotChange::Mark);
    leaf.set_verified(2, addr);
    assert!(leaf.plain(2).is_none() && !leaf.view(2).shared);
    assert_eq!(leaf.blocks().blocks, [addr]);
    let loaded = Leaf::load(leaf.encode().as_deref(), &[]).expect("just encoded");
    assert_eq!(loaded.reserved(2), Some(addr));
    assert_eq!(leaf.grown(100).reserved(2), Some(addr));
    let patches = [(2, Arc::new(Patches::whole(&[1; 4096])))];
    assert!(Leaf::load(leaf.encode().as_deref(), &patches).is_none(), "nobody patches it");
    let filled = lock.publish(2, &SlotChange::Place(placed(77)));
    assert!(filled.kept && filled.old.is_none());
    assert_eq!((leaf.reserved(2), leaf.plain(2)), (None, Some(addr)));
    lock.publish(3, &SlotChange::Reserve(placed(80).addr));
    let elsewhere = lock.publish(3, &SlotChange::Place(placed(81)));
    assert_eq!((elsewhere.old, elsewhere.kept), (placed(80).addr, false));
}
