//! Figures, not tests: `cargo test --release -p nearside-pool --lib tree -- --ignored --nocapture`.

use super::{Change, Key, Random, Root, Store, change, scan};
use crate::tree::{get, get_with};
use std::time::Instant;

#[test]
#[ignore = "measures; wants a release build and an idle machine"]
fn measure() {
    let puts: Vec<_> =
        (0..100_000).map(|i| (Key::new(i / 100, 1, i), Change::Put(vec![5; 40]))).collect();
    for _ in 0..3 {
        let mut store = Store::new();
        let start = Instant::now();
        let root = change(&mut store, &Root::EMPTY, &puts, &[]);
        let load = start.elapsed();
        let pages = store.live().len();
        println!("apply, 100k sorted puts into an empty tree: {load:?}, {pages} pages");
        measure_one(&mut store, root, &puts);
    }
}

fn measure_one(store: &mut Store, root: Root, puts: &[(Key, Change)]) {
    let mut random = Random(9);
    for verify in [true, false] {
        store.verify = verify;
        let count = 1_000_000u32;
        let start = Instant::now();
        for _ in 0..count {
            let key = puts[random.below(puts.len() as u64) as usize].0;
            assert!(get(store, &root, &key).unwrap().is_some());
        }
        let get_each = start.elapsed() / count;
        let start = Instant::now();
        for _ in 0..count {
            let key = puts[random.below(puts.len() as u64) as usize].0;
            assert_eq!(get_with(store, &root, &key, <[u8]>::len).unwrap(), Some(40));
        }
        let with_each = start.elapsed() / count;
        println!(
            "get, {} levels, sums {verify}: {get_each:?}; get_with {with_each:?}",
            root.height
        );
    }
    let start = Instant::now();
    let mut entries = 0u32;
    scan(store, &root, Key::MIN, Key::MAX, |_, _| {
        entries += 1;
        Ok(true)
    })
    .unwrap();
    println!("scan: {:?} an entry", start.elapsed() / entries);
    for size in [100, 1000, 10_000, 100_000] {
        let mut batch: Vec<_> = (0..size)
            .map(|_| (puts[random.below(100_000) as usize].0, Change::Put(vec![6; 44])))
            .collect();
        batch.sort_by_key(|put| put.0);
        batch.dedup_by_key(|put| put.0);
        let written = store.pages.len();
        let start = Instant::now();
        change(store, &root, &batch, &[]);
        let took = start.elapsed();
        store.freed.clear();
        println!("apply, {size} random: {took:?}, {} pages", store.pages.len() - written);
    }
    let start = Instant::now();
    change(store, &root, &[], &[(Key::MIN, Key::MAX)]);
    println!("apply, delete all: {:?}", start.elapsed());
    store.freed.clear();
}
