//! Locks on ranges of one file's blocks, for writers. Readers take none.
//!
//! Fair: a request waits for every earlier one that it overlaps, granted or not. Memory is used
//! only for ranges that are held or waited for.

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
struct Range {
    first: u64,
    last: u64,
    ticket: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order of arrival.
    ranges: Vec<Range>,
    next: u64,
    waiters: u32,
}

/// The range locks of one file.
#[derive(Debug, Default)]
pub struct RangeLock {
    queue: Mutex<Queue>,
    released: Condvar,
}

/// A range, held.
#[derive(Debug)]
pub struct RangeGuard<'l> {
    lock: &'l RangeLock,
    ticket: u64,
}

impl RangeLock {
    /// Locks the blocks `first..=last` against every other range that overlaps them.
    #[inline]
    pub fn lock(&self, first: u64, last: u64) -> RangeGuard<'_> {
        let mut queue = self.queue.lock();
        let ticket = queue.next;
        queue.next += 1;
        queue.ranges.push(Range { first, last, ticket });
        while queue.blocked(first, last, ticket) {
            queue.waiters += 1;
            self.released.wait(&mut queue);
            queue.waiters -= 1;
        }
        RangeGuard { lock: self, ticket }
    }
}

impl Queue {
    #[inline]
    fn blocked(&self, first: u64, last: u64, ticket: u64) -> bool {
        self.ranges
            .iter()
            .take_while(|range| range.ticket != ticket)
            .any(|range| range.first <= last && first <= range.last)
    }
}

impl Drop for RangeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut queue = self.lock.queue.lock();
        if let Some(index) = queue.ranges.iter().position(|range| range.ticket == self.ticket) {
            queue.ranges.remove(index);
        }
        let waiters = queue.waiters > 0;
        drop(queue);
        if waiters {
            self.lock.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn overlapping_ranges_exclude_each_other_and_disjoint_ones_do_not() {
        let lock = RangeLock::default();
        let held: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (lock, held) = (&lock, &held);
                scope.spawn(move || {
                    for round in 0..2000u64 {
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
    }

    #[test]
    fn nothing_is_kept_when_nothing_is_held() {
        let lock = RangeLock::default();
        drop(lock.lock(0, u64::MAX));
        assert!(lock.queue.lock().ranges.is_empty());
    }
}
