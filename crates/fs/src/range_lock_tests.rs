//! Tests of the range lock. Not in its own file: loom's test builds that with loom's locks.

use crate::range_lock::{QUEUED, RangeLock, encode, overlaps};
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn overlapping_ranges_exclude_each_other_and_disjoint_ones_do_not() {
    let lock = RangeLock::default();
    let held: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (lock, held) = (&lock, &held);
            scope.spawn(move || {
                for round in 0..20_000u64 {
                    let first = (thread * 7 + round * 3) % 6;
                    let _guard = lock.lock(first, first + 2);
                    for block in first..=first + 2 {
                        assert_eq!(held[block as usize].fetch_add(1, Ordering::SeqCst), 0);
                    }
                    for block in first..=first + 2 {
                        held[block as usize].fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let _low = lock.lock(0, 3);
    let _high = lock.lock(4, 9);
    let _last = lock.lock(10, u64::MAX);
}

#[test]
fn nothing_is_kept_when_nothing_is_held() {
    let lock = RangeLock::default();
    drop(lock.lock(0, u64::MAX));
    let (one, two) = (lock.lock(0, 1), lock.lock(2, 3));
    drop(one);
    drop(two);
    let (one, two) = (lock.lock(0, 1), lock.lock(2, 3));
    drop(two);
    drop(one);
    assert!(lock.is_idle(), "the next one is alone again");
}

#[test]
fn a_word_says_its_range() {
    let word = encode(5, 7).unwrap_or(0);
    let seen: Vec<bool> = (3..10).map(|block| overlaps(word, block, block)).collect();
    assert_eq!(seen, [false, false, true, true, true, false, false]);
    assert!(overlaps(word | QUEUED, 0, u64::MAX));
    assert!(!overlaps(QUEUED, 0, u64::MAX));
    assert_eq!(encode(1 << 40, 1 << 40), None);
    assert_eq!(encode(0, 1 << 24), None, "more blocks than the word can count");
}

/// An append locks all from the file's last block on, most often alone.
#[test]
fn a_word_says_a_range_without_an_end() {
    let word = encode(5, u64::MAX).unwrap_or(0);
    assert!(!overlaps(word, 0, 4));
    for block in [5, 6, 1 << 24, 1 << 37, u64::MAX] {
        assert!(overlaps(word, block, block), "block {block}");
    }
}

/// Who asked first is first: a wide range that waits is not passed by narrow ones that are free,
/// and what it does not touch waits for nobody.
#[test]
fn a_range_that_waits_is_not_overtaken() {
    let lock = RangeLock::default();
    let order = AtomicU32::new(0);
    let waits = |ranges: usize| {
        // one that overtakes does not wait at all
        while lock.waiting() < ranges && order.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let held = lock.lock(0, 10);
        let wide = scope.spawn(|| {
            let _guard = lock.lock(5, 100);
            order.fetch_add(1, Ordering::SeqCst)
        });
        waits(1);
        let narrow = scope.spawn(|| {
            let _guard = lock.lock(50, 60);
            order.fetch_add(1, Ordering::SeqCst)
        });
        // it is queued, too, though nobody holds what it asks for
        waits(2);
        drop(lock.lock(101, 200));
        assert_eq!(order.load(Ordering::SeqCst), 0);
        drop(held);
        assert_eq!((wide.join().unwrap(), narrow.join().unwrap()), (0, 1));
    });
    assert!(lock.is_idle());
}
