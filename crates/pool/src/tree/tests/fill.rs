//! How full pages are after batches of different shapes.

use super::{Change, Key, Random, Root, Store, change, walk};

/// Bytes of entries per byte of room in the leaves.
fn leaf_fill(store: &mut Store, root: &Root) -> f64 {
    let mut leaves = Vec::new();
    walk(store, root, &mut |ptr, level| {
        leaves.extend((level == 0).then_some(ptr.addr));
        Ok(())
    })
    .unwrap();
    let used = |addr| {
        let page: &[u8; 4096] = store.page_mut(addr).unwrap();
        f64::from(u16::from_le_bytes([page[8], page[9]]) - 32)
    };
    let pages = leaves.len() as f64;
    leaves.into_iter().map(used).sum::<f64>() / (pages * 4064.0)
}

/// Fill after all of `keys`, in their order, `batch` at a time.
fn fill_after(keys: &[Key], batch: usize, value_bytes: impl Fn(&Key) -> usize) -> f64 {
    let (mut store, mut root) = (Store::new(), Root::EMPTY);
    for part in keys.chunks(batch) {
        let mut puts: Vec<_> =
            part.iter().map(|key| (*key, Change::Put(vec![5; value_bytes(key)]))).collect();
        puts.sort_by_key(|put| put.0);
        puts.dedup_by_key(|put| put.0);
        root = change(&mut store, &root, &puts, &[]);
    }
    leaf_fill(&mut store, &root)
}

#[test]
fn sequential_inserts_fill_pages() {
    let keys: Vec<_> = (0..20_000).map(|i| Key::new(1, 1, i)).collect();
    for batch in [1, 7, 100, 20_000] {
        let fill = fill_after(&keys, batch, |_| 40);
        assert!(fill > 0.95, "{fill} in batches of {batch}");
    }
}

#[test]
fn long_values_fill_three_fifths_at_least() {
    let keys: Vec<_> = (0..3_000).map(|i| Key::new(1, 1, i)).collect();
    let fill = fill_after(&keys, 50, |key| 1200 + (key.index * 7919 % 401) as usize);
    assert!(fill > 0.6, "{fill}");
}

#[test]
fn interleaved_files_that_grow_fill_pages() {
    let keys: Vec<_> = (0..20_000).map(|i| Key::new(i / 8 % 50, 1, i / 400 * 8 + i % 8)).collect();
    let fill = fill_after(&keys, 400, |_| 40);
    assert!(fill > 0.6, "{fill}");
    let fill = fill_after(&keys, 8, |_| 40);
    assert!(fill > 0.6, "{fill} in small batches");
}

#[test]
fn random_and_descending_inserts_leave_no_more_than_half_empty() {
    let mut random = Random(8);
    let keys: Vec<_> =
        (0..20_000).map(|_| Key::new(random.below(1000), 1, random.next())).collect();
    for batch in [1, 10, 1000] {
        let fill = fill_after(&keys, batch, |key| 20 + (key.index % 60) as usize);
        assert!(fill > 0.55, "{fill} in batches of {batch}");
    }
    let keys: Vec<_> = (0..20_000).rev().map(|i| Key::new(1, 1, i)).collect();
    for batch in [1, 100] {
        let fill = fill_after(&keys, batch, |_| 40);
        // One at a time, each split leaves a half behind that is never added to.
        assert!(fill > 0.45, "{fill} descending in batches of {batch}");
    }
}
