//! The tree against a model, in pages that lie in memory.
#![allow(clippy::unwrap_used)]

mod crafted;
mod damage;
mod fill;
mod format;
mod model;
mod space;
mod speed;
mod store;

use super::{Change, Key, PagePtr, Root, TreeError, apply, scan, walk, walk_pointers};
use std::collections::{BTreeMap, BTreeSet};
use store::Store;

/// What the tree should hold.
type Model = BTreeMap<Key, Vec<u8>>;

/// Puts `changes` into the tree, none of which may fail.
fn change(
    store: &mut Store,
    root: &Root,
    changes: &[(Key, Change)],
    ranges: &[(Key, Key)],
) -> Root {
    apply(store, root, changes, ranges, &mut |_, _, _| ()).unwrap()
}

/// All entries of the tree.
fn contents(store: &Store, root: &Root) -> Model {
    let mut model = Model::new();
    scan(store, root, Key::MIN, Key::MAX, |key, value| {
        assert!(model.insert(key, value.to_vec()).is_none());
        Ok(true)
    })
    .unwrap();
    model
}

/// All pages of the tree; fails if one is met twice.
fn pages_of(store: &Store, root: &Root) -> Result<BTreeSet<u64>, TreeError> {
    let mut pages = BTreeSet::new();
    walk(store, root, &mut |ptr: &PagePtr, _| {
        assert!(pages.insert(ptr.addr.bits()), "a page is met twice");
        Ok(())
    })?;
    let mut named = BTreeSet::new();
    walk_pointers(store, root, &mut |ptr, _| {
        named.insert(ptr.addr.bits());
        Ok(())
    })?;
    assert_eq!(named, pages);
    Ok(pages)
}

/// A generator that is the same on each run (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
