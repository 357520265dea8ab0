//! Pages that pass for others in all but one point, each of which must be found.

use super::{Change, Key, Root, Store, apply, change, walk};
use crate::tree::{BlockAddr, TreeError, get, scan};

const OFF_SLOTS: usize = 32;
const SLOT_BYTES: usize = 19;

/// A root over leaves with the keys 0, 10, 20, ..., and the addresses of the leaves.
fn two_levels() -> (Store, Root, Vec<BlockAddr>) {
    let mut store = Store::new();
    let puts: Vec<_> = (0..300).map(|i| (key(i * 10), Change::Put(vec![1; 50]))).collect();
    let root = change(&mut store, &Root::EMPTY, &puts, &[]);
    let mut leaves = Vec::new();
    walk(&store, &root, &mut |ptr, level| {
        leaves.extend((level == 0).then_some(ptr.addr));
        Ok(())
    })
    .unwrap();
    assert!(root.height == 2 && leaves.len() >= 3);
    store.verify = false;
    (store, root, leaves)
}

fn key(index: u64) -> Key {
    Key::new(0, 0, index)
}

fn key_at(store: &mut Store, addr: BlockAddr, i: usize) -> &mut [u8] {
    &mut store.page_mut(addr).unwrap()[OFF_SLOTS + i * SLOT_BYTES..][..17]
}

fn count(store: &mut Store, addr: BlockAddr) -> usize {
    let page = store.page_mut(addr).unwrap();
    usize::from(u16::from_le_bytes([page[6], page[7]]))
}

fn what<T>(result: Result<T, TreeError>) -> &'static str {
    match result {
        Err(TreeError::Damaged { what, .. }) => what,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not found"),
    }
}

/// What a walk, a scan and a batch that meets all pages say.
fn verdicts(store: &mut Store, root: &Root) -> [&'static str; 3] {
    let walked = walk(store, root, &mut |_, _| Ok(()));
    let scanned = scan(store, root, Key::MIN, Key::MAX, |_, _| Ok(true));
    let all = [(Key::MIN, Key::MAX)];
    let applied = apply(store, root, &[], &all, &mut |_, _, _| ());
    [what(walked), what(scanned), what(applied)]
}

#[test]
fn key_of_the_next_page_is_found() {
    let (mut store, root, leaves) = two_levels();
    let last = count(&mut store, leaves[0]) - 1;
    key_at(&mut store, leaves[0], last).copy_from_slice(&key(2995).encode());
    assert_eq!(verdicts(&mut store, &root), ["a key belongs to the next page"; 3]);
}

#[test]
fn keys_out_of_order_are_found() {
    let (mut store, root, leaves) = two_levels();
    key_at(&mut store, leaves[1], 5).copy_from_slice(&key(0).encode());
    assert_eq!(verdicts(&mut store, &root), ["keys are not in order"; 3]);
}

#[test]
fn page_that_is_its_own_child_is_found() {
    let (mut store, root, _) = two_levels();
    let at = OFF_SLOTS + SLOT_BYTES * count(&mut store, root.page.addr);
    let page = store.page_mut(root.page.addr).unwrap();
    page[at..at + 8].copy_from_slice(&root.page.addr.bits().to_le_bytes());
    assert_eq!(verdicts(&mut store, &root), ["not of the level below its parent"; 3]);
    assert_eq!(what(get(&store, &root, &key(0))), "not of the level below its parent");
}

#[test]
fn child_of_no_block_is_found() {
    let (mut store, root, _) = two_levels();
    let at = OFF_SLOTS + SLOT_BYTES * count(&mut store, root.page.addr);
    store.page_mut(root.page.addr).unwrap()[at..at + 8].fill(0);
    assert_eq!(verdicts(&mut store, &root), ["a pointer that names no block"; 3]);
    assert_eq!(what(get(&store, &root, &key(0))), "a pointer that names no block");
}

#[test]
fn value_over_the_slots_is_found() {
    let (mut store, root, leaves) = two_levels();
    let end = OFF_SLOTS + 17;
    store.page_mut(leaves[0]).unwrap()[end..end + 2].copy_from_slice(&40u16.to_le_bytes());
    assert_eq!(verdicts(&mut store, &root), ["a value lies outside the page"; 3]);
    for index in [0, 10] {
        assert_eq!(what(get(&store, &root, &key(index))), "a value lies outside the page");
    }
}

#[test]
fn bytes_that_must_be_zero_or_known_are_looked_at() {
    for (at, said) in [
        (0, "not a tree page"),
        (4, "a version of the page layout that is not known"),
        (5, "not of the level below its parent"),
        (7, "an impossible count of entries"),
        (8, "the bytes in use are not those of the entries"),
        (31, "the header's reserved bytes are in use"),
    ] {
        let (mut store, root, leaves) = two_levels();
        store.page_mut(leaves[1]).unwrap()[at] ^= 0x40;
        assert_eq!(what(walk(&store, &root, &mut |_, _| Ok(()))), said);
    }
}

#[test]
fn value_longer_than_allowed_is_found() {
    let mut store = Store::new();
    let root = change(&mut store, &Root::EMPTY, &[(key(1), Change::Put(vec![1; 1600]))], &[]);
    store.verify = false;
    let page = store.page_mut(root.page.addr).unwrap();
    let used = u16::from_le_bytes([page[8], page[9]]) + 1;
    page[8..10].copy_from_slice(&used.to_le_bytes());
    page[OFF_SLOTS + 17..OFF_SLOTS + 19].copy_from_slice(&used.to_le_bytes());
    assert_eq!(what(walk(&store, &root, &mut |_, _| Ok(()))), "a value is too long");
}
