//! The range lock under every order of steps that the memory model allows: overlapping ranges
//! exclude each other, nobody waits for ever (loom finds a deadlock), and nothing is left behind.
//!
//! The source file is the engine's own; only atomics and locks are loom's.
#![allow(clippy::unwrap_used, dead_code)]

#[path = "../src/range_lock.rs"]
mod range_lock;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};

    /// loom's, with the interface of the engine's.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    #[derive(Debug)]
    pub struct Guard<'m, T>(Option<loom::sync::MutexGuard<'m, T>>);

    impl<T> Mutex<T> {
        pub fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> std::ops::Deref for Guard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> std::ops::DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    #[derive(Debug, Default)]
    pub struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub fn wait<T>(&self, guard: &mut Guard<'_, T>) {
            guard.0 = Some(self.0.wait(guard.0.take().unwrap()).unwrap());
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use range_lock::RangeLock;

/// A lock, and two blocks that it guards: loom sees two accesses that nothing orders.
#[derive(Default)]
struct Blocks {
    lock: RangeLock,
    blocks: [UnsafeCell<u32>; 2],
}

impl Blocks {
    fn add(&self, first: usize, last: usize) {
        let _guard = self.lock.lock(first as u64, last as u64);
        for block in &self.blocks[first..=last] {
            block.with_mut(|_| ());
        }
    }
}

impl Blocks {
    fn try_add(&self, first: usize, last: usize) {
        if let Some(_guard) = self.lock.try_lock(first as u64, last as u64) {
            for block in &self.blocks[first..=last] {
                block.with_mut(|_| ());
            }
        }
    }
}

/// `preemptions` bounds how often a thread is stopped where it need not be.
fn threads(ranges: &'static [(usize, usize)], preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let blocks = Arc::new(Blocks::default());
        let spawn = |&(first, last): &(usize, usize)| {
            let blocks = blocks.clone();
            loom::thread::spawn(move || blocks.add(first, last))
        };
        let others: Vec<_> = ranges[1..].iter().map(spawn).collect();
        blocks.add(ranges[0].0, ranges[0].1);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(blocks.lock.is_idle());
    });
}

#[test]
fn two_overlapping_ranges_take_turns() {
    threads(&[(0, 1), (1, 1)], None);
}

#[test]
fn three_ranges_of_which_two_are_disjoint() {
    threads(&[(0, 0), (1, 1), (0, 1)], Some(2));
}

/// Who does not wait excludes others while he has it, and leaves nothing behind.
#[test]
fn one_tries_where_others_wait() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let blocks = Arc::new(Blocks::default());
        let theirs = blocks.clone();
        let waits = loom::thread::spawn(move || theirs.add(0, 1));
        let theirs = blocks.clone();
        let tries = loom::thread::spawn(move || theirs.try_add(1, 1));
        blocks.add(1, 1);
        waits.join().unwrap();
        tries.join().unwrap();
        assert!(blocks.lock.is_idle());
    });
}
