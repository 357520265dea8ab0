//! Random batches, each compared with a map of the standard library.

use super::{Change, Key, Model, Random, Root, Store, apply, contents, pages_of};
use crate::tree::{Cursor, VALUE_BYTES_MAX, get, scan};
use std::ops::Bound;

/// A batch as it is generated; the keys are few, so that batches meet.
#[derive(Clone, Debug)]
struct Plan {
    puts: Vec<(Key, usize, u8)>,
    deletes: Vec<Key>,
    ranges: Vec<(Key, Key)>,
}

impl Plan {
    /// A batch of up to `puts_max` puts with keys out of `spread` objects, kinds and indexes.
    fn random(random: &mut Random, spread: u64, puts_max: u64) -> Plan {
        let puts = (0..random.below(puts_max + 1)).map(|_| {
            let length_max = [40, VALUE_BYTES_MAX as u64][usize::from(random.below(3) == 0)];
            let length = random.below(length_max + 1) as usize;
            let length = if random.below(8) == 0 { VALUE_BYTES_MAX } else { length };
            (random_key(random, spread), length, random.next() as u8)
        });
        let puts = puts.collect();
        let deletes = (0..random.below(40)).map(|_| random_key(random, spread)).collect();
        let ranges_max = [0, 0, 2, 12][random.below(4) as usize];
        let ranges = (0..random.below(ranges_max + 1))
            .map(|_| (random_key(random, spread), random_key(random, spread)))
            .collect();
        Plan { puts, deletes, ranges }
    }
}

fn random_key(random: &mut Random, spread: u64) -> Key {
    match random.below(10) {
        0 => Key::MIN,
        1 => Key::MAX,
        _ => Key::new(random.below(spread), random.below(2) as u8, random.below(spread)),
    }
}

impl Plan {
    fn changes(&self) -> Vec<(Key, Change)> {
        let deletes = self.deletes.iter().map(|key| (*key, Change::Delete));
        let puts =
            self.puts.iter().map(|(key, length, fill)| (*key, Change::Put(vec![*fill; *length])));
        deletes.chain(puts).collect::<std::collections::BTreeMap<_, _>>().into_iter().collect()
    }

    fn disjoint_ranges(&self) -> Vec<(Key, Key)> {
        let mut ends: Vec<Key> = self.ranges.iter().flat_map(|(a, b)| [*a, *b]).collect();
        ends.sort();
        ends.chunks(2).map(|pair| (pair[0], pair[1])).collect()
    }
}

type Drops = Vec<(Key, Vec<u8>, Option<Vec<u8>>)>;

/// What the batch makes of the model, and the calls of `dropped` that it owes.
fn apply_to_model(model: &mut Model, changes: &[(Key, Change)], ranges: &[(Key, Key)]) -> Drops {
    let before = model.clone();
    model.retain(|key, _| !ranges.iter().any(|(from, to)| from <= key && key < to));
    let mut put = Model::new();
    for (key, change) in changes {
        match change {
            Change::Put(value) => {
                model.insert(*key, value.clone());
                put.insert(*key, value.clone());
            }
            Change::Delete => {
                model.remove(key);
            }
        }
    }
    let touched =
        before.into_iter().filter(|(key, _)| !model.contains_key(key) || put.contains_key(key));
    touched.map(|(key, old)| (key, old, put.get(&key).cloned())).collect()
}

fn check_reads(store: &Store, root: &Root, model: &Model, plan: &Plan) {
    for key in plan.puts.iter().map(|put| put.0).chain(plan.deletes.iter().copied()) {
        assert_eq!(get(store, root, &key).unwrap(), model.get(&key).cloned());
    }
    let ends = plan.deletes.windows(2).map(|pair| (pair[0], pair[1])).take(8);
    for (from, to) in ends {
        let mut seen = Vec::new();
        scan(store, root, from, to, |key, value| {
            seen.push((key, value.to_vec()));
            Ok(seen.len() < 5)
        })
        .unwrap();
        let bounds = (Bound::Included(from), Bound::Excluded(to.max(from)));
        let want = if from < to { model.range(bounds).take(5).collect() } else { Vec::new() };
        assert!(seen.iter().map(|(key, value)| (key, value)).eq(want));
    }
}

fn run(plans: &[Plan]) {
    let (mut store, mut root, mut model) = (Store::new(), Root::EMPTY, Model::new());
    for plan in plans {
        let (changes, ranges) = (plan.changes(), plan.disjoint_ranges());
        let (old_root, old_model) = (root, model.clone());
        let mut drops = Drops::new();
        root = apply(&mut store, &root, &changes, &ranges, &mut |key, old, new| {
            drops.push((key, old.to_vec(), new.map(<[u8]>::to_vec)));
        })
        .unwrap();
        assert!(drops == apply_to_model(&mut model, &changes, &ranges), "dropped entries");
        assert!(contents(&store, &root) == without_highest(&model), "entries");
        assert!(contents(&store, &old_root) == without_highest(&old_model), "the version before");
        assert_eq!(root.entries, model.len() as u64);
        assert_eq!(root.height == 0, model.is_empty());
        assert_eq!(pages_of(&store, &root).unwrap(), store.live(), "pages in use");
        assert_eq!(Root::decode(&root.encode()).unwrap(), root);
        check_reads(&store, &root, &model, plan);
    }
    let all = [(Key::MIN, Key::MAX)];
    root =
        apply(&mut store, &root, &[(Key::MAX, Change::Delete)], &all, &mut |_, _, _| ()).unwrap();
    assert_eq!(root, Root::EMPTY);
    assert!(store.live().is_empty());
}

/// A scan ends before its upper key, so that it never sees the highest.
fn without_highest(model: &Model) -> Model {
    model.range(..Key::MAX).map(|(key, value)| (*key, value.clone())).collect()
}

/// Runs the cases of one spread of keys, small batches first, so that the first to fail is small.
fn run_cases(spread: u64) {
    for (puts_max, cases) in [(3, 40), (60, 40), (400, 30), (3000, 3)] {
        for seed in 0..cases {
            let mut random = Random(seed << 32 | puts_max << 16 | spread);
            let count = 1 + random.below(12);
            let plans: Vec<_> =
                (0..count).map(|_| Plan::random(&mut random, spread, puts_max)).collect();
            println!("up to {puts_max} puts, seed {seed}");
            run(&plans);
        }
    }
}

#[test]
fn tree_is_a_map_when_keys_are_dense() {
    run_cases(12);
}

#[test]
fn tree_is_a_map_when_keys_are_spread() {
    run_cases(1000);
}

#[test]
fn cursor_gives_all_entries_between_its_ends() {
    let mut store = Store::new();
    let puts: Vec<_> =
        (0..5000).map(|i| (Key::new(1, 0, i * 2), Change::Put(vec![7; 30]))).collect();
    let root = super::change(&mut store, &Root::EMPTY, &puts, &[]);
    for (from, to) in [(0, 10_000), (1, 2), (1, 3), (9998, 20_000), (10_000, 20_000), (77, 5001)] {
        let (from, to) = (Key::new(1, 0, from), Key::new(1, 0, to));
        let mut cursor = Cursor::new(&store, &root, from, to).unwrap();
        let mut seen = Vec::new();
        while let Some((key, _)) = cursor.next_entry().unwrap() {
            seen.push(key);
        }
        assert!(cursor.next_entry().unwrap().is_none());
        assert!(puts.iter().map(|put| put.0).filter(|key| from <= *key && *key < to).eq(seen));
    }
}
