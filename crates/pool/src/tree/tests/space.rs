//! Pages: shared, freed, and not to be had.

use super::{Change, Key, Random, Root, Store, apply, change, contents, pages_of};
use crate::tree::{TreeError, VALUE_BYTES_MAX, Work, apply_touching};

fn puts(keys: impl Iterator<Item = u64>, bytes: usize) -> Vec<(Key, Change)> {
    keys.map(|i| (Key::new(1, 2, i), Change::Put(vec![3; bytes]))).collect()
}

#[test]
fn full_pool_in_the_middle_leaves_the_old_tree() {
    let mut store = Store::new();
    let root = change(&mut store, &Root::EMPTY, &puts((0..4000).map(|i| i * 2), 50), &[]);
    let (before, live) = (contents(&store, &root), store.live());
    let batch = puts((0..4000).map(|i| i * 2 + 1), 50);
    let ranges = [(Key::new(1, 2, 100), Key::new(1, 2, 900))];
    for room in 0..200 {
        store.room = room;
        let result = apply(&mut store, &root, &batch, &ranges, &mut |_, _, _| ());
        if let Ok(after) = result {
            assert!(room > 100);
            assert_eq!(pages_of(&store, &after).unwrap(), store.live());
            return;
        }
        assert!(matches!(result, Err(TreeError::NoSpace)));
        assert_eq!(store.live(), live, "new pages are freed, old ones are not");
        assert!(contents(&store, &root) == before);
    }
    panic!("the batch never fits");
}

#[test]
fn unchanged_pages_are_shared_and_not_read() {
    let mut store = Store::new();
    let root = change(&mut store, &Root::EMPTY, &puts(0..100_000, 20), &[]);
    assert_eq!(root.height, 3);
    let before = pages_of(&store, &root).unwrap();
    store.reads.set(0);
    let after = change(&mut store, &root, &puts(50_000..50_001, 21), &[]);
    assert_eq!(store.reads.get(), 4, "one page a level, and the root once more");
    let after = pages_of(&store, &after).unwrap();
    assert_eq!(after.difference(&before).count(), 3);
}

/// With all that is above them; nothing of what the tree says changes.
#[test]
fn pages_of_touched_keys_are_written_anew() {
    let mut store = Store::new();
    let mut root = change(&mut store, &Root::EMPTY, &puts(0..100_000, 20), &[]);
    let said = contents(&store, &root);
    // two on one page, one on another, and one that is not there
    let touched = [Key::MIN, Key::new(1, 2, 50_000), Key::new(1, 2, 50_001), Key::MAX];
    for (touched, pages) in [(&touched[1..3], 3), (&touched[..1], 3), (&touched[..], 7)] {
        let before = pages_of(&store, &root).unwrap();
        let work = Work { changes: &[], ranges: &[], touched };
        let after = apply_touching(&mut store, &root, work, &mut |_, _, _| panic!("dropped"));
        root = after.unwrap();
        let after = pages_of(&store, &root).unwrap();
        assert_eq!(after.difference(&before).count(), pages, "{touched:?}");
        assert!(contents(&store, &root) == said);
    }
    let unsorted = Work { changes: &[], ranges: &[], touched: &[touched[3], touched[1]] };
    let refused = apply_touching(&mut store, &root, unsorted, &mut |_, _, _| ());
    assert!(matches!(refused, Err(TreeError::Unsorted(_))));
    let nothing = Work { changes: &[], ranges: &[], touched: &touched };
    let empty = apply_touching(&mut store, &Root::EMPTY, nothing, &mut |_, _, _| ());
    assert_eq!(empty.unwrap(), Root::EMPTY);
}

#[test]
fn batch_that_changes_nothing_writes_nothing() {
    let mut store = Store::new();
    let root = change(&mut store, &Root::EMPTY, &puts(0..5000, 20), &[]);
    let pages = store.pages.len();
    let mut same = puts(100..200, 20);
    same.push((Key::new(9, 9, 9), Change::Delete));
    let mut calls = 0;
    let ranges = [(Key::new(0, 0, 0), Key::new(1, 0, 0)), (Key::new(2, 0, 0), Key::MAX)];
    let after = apply(&mut store, &root, &same, &ranges, &mut |_, old, new| {
        assert_eq!(Some(old), new);
        calls += 1;
    });
    assert_eq!(after.unwrap(), root);
    assert_eq!((calls, store.pages.len()), (100, pages));
}

#[test]
fn tree_shrinks_as_entries_go() {
    let mut store = Store::new();
    let mut root = change(&mut store, &Root::EMPTY, &puts(0..100_000, 40), &[]);
    let mut random = Random(7);
    let mut order: Vec<u64> = (0..100_000).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    for part in order.chunks(500) {
        let mut deletes: Vec<_> =
            part.iter().map(|i| (Key::new(1, 2, *i), Change::Delete)).collect();
        deletes.sort_by_key(|delete| delete.0);
        root = change(&mut store, &root, &deletes, &[]);
        let pages = store.live().len() as u64;
        assert!(pages <= 5 + root.entries * 59 / (4064 / 5), "{pages} for {}", root.entries);
    }
    assert_eq!(root, Root::EMPTY);
    assert!(store.live().is_empty());
}

#[test]
fn pages_that_become_small_are_joined() {
    let mut store = Store::new();
    let mut root = change(&mut store, &Root::EMPTY, &puts(0..10_000, 40), &[]);
    // All but every 20th, a few at a time and far apart: no two changed pages are neighbours.
    let rest: Vec<u64> = (0..10_000).filter(|i| i % 20 != 0).collect();
    for start in 0..950 {
        let part = rest.iter().skip(start).step_by(950);
        let deletes: Vec<_> = part.map(|i| (Key::new(1, 2, *i), Change::Delete)).collect();
        root = change(&mut store, &root, &deletes, &[]);
    }
    assert_eq!(root.entries, 500);
    let (bytes, room) = (500 * 59, store.live().len() as u64 * 4064);
    assert!(bytes * 3 > room, "{bytes} bytes in {room}");
}

#[test]
fn range_that_ends_where_a_page_begins_does_not_read_it() {
    let mut store = Store::new();
    let root = change(&mut store, &Root::EMPTY, &puts(0..1000, 40), &[]);
    let mut firsts = Vec::new();
    for index in 1..1000 {
        store.reads.set(0);
        let empty = (Key::new(1, 2, index), Key::new(1, 2, index));
        change(&mut store, &root, &[], &[empty]);
        firsts.extend((store.reads.get() == 2).then_some(index));
    }
    assert_eq!(firsts.len() as u64, 14, "each page after the first has a first key");
}

#[test]
fn tall_tree_comes_down_to_one_leaf() {
    let mut store = Store::new();
    let mut root = Root::EMPTY;
    // Two entries a leaf: many pages for few entries.
    for part in 0..30 {
        let batch = puts(part * 1000..part * 1000 + 1000, VALUE_BYTES_MAX);
        root = change(&mut store, &root, &batch, &[]);
        store.pages.iter().for_each(|page| assert_eq!(&page[..4], b"NSTP"));
    }
    assert_eq!(root.height, 4);
    let ranges = [(Key::MIN, Key::new(1, 2, 15_000)), (Key::new(1, 2, 15_001), Key::MAX)];
    root = change(&mut store, &root, &[], &ranges);
    assert_eq!(root.entries, 1);
    let value = |fill| [(Key::new(1, 2, 15_000), Change::Put(vec![fill]))];
    root = change(&mut store, &root, &value(1), &[]);
    assert_eq!((root.height, store.live().len()), (1, 1));
}

#[test]
fn batches_out_of_order_are_refused() {
    let mut store = Store::new();
    let twice = [(Key::MIN, Change::Delete), (Key::MIN, Change::Delete)];
    let (a, b, c) = (Key::new(0, 0, 1), Key::new(0, 0, 2), Key::new(0, 0, 3));
    let mut refused = |changes: &[(Key, Change)], ranges: &[(Key, Key)]| {
        apply(&mut store, &Root::EMPTY, changes, ranges, &mut |_, _, _| ()).unwrap_err()
    };
    assert!(matches!(refused(&twice, &[]), TreeError::Unsorted(_)));
    assert!(matches!(refused(&[], &[(b, a)]), TreeError::Unsorted(_)));
    assert!(matches!(refused(&[], &[(a, c), (b, c)]), TreeError::Unsorted(_)));
    let long = [(a, Change::Put(vec![0; VALUE_BYTES_MAX + 1]))];
    assert!(matches!(refused(&long, &[]), TreeError::ValueTooLong { .. }));
}
