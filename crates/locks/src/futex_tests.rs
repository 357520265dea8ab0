use super::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{scope, yield_now};

/// Far more than any of these takes.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(5);

/// Three threads take what this one puts: each number once.
fn take_all_that_is_put(take: impl Fn() -> u64 + Sync, put: impl Fn(u64)) {
    const EACH: u64 = 20_000;
    let sum = scope(|threads| {
        let takers = [(); 3].map(|()| threads.spawn(|| (0..EACH).map(|_| take()).sum::<u64>()));
        (0..3 * EACH).for_each(put);
        takers.into_iter().map(|taker| taker.join().unwrap()).sum::<u64>()
    });
    assert_eq!(sum, (0..3 * EACH).sum());
}

#[test]
fn a_mutex_that_a_panic_left_is_locked_as_before() {
    let mutex = Mutex::new(1);
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let mut value = mutex.lock();
        *value = 2;
        panic!("as is to be");
    }));
    assert!(panics.is_err());
    assert_eq!(*mutex.lock(), 2);
}

#[test]
fn what_is_put_wakes_who_waits_and_nothing_is_lost() {
    let (queue, comes) = (Mutex::new(VecDeque::new()), Condvar::new());
    let take = || {
        let mut queue = queue.lock();
        loop {
            match queue.pop_front() {
                Some(number) => return number,
                None => comes.wait(&mut queue),
            }
        }
    };
    take_all_that_is_put(take, |number| {
        queue.lock().push_back(number);
        comes.notify_one();
    });
    assert_eq!(comes.waiters.load(Ordering::Relaxed), 0);
}

#[test]
fn all_who_wait_are_woken() {
    let (open, opens) = (Mutex::new(false), Condvar::new());
    scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let mut open = open.lock();
                while !*open {
                    assert!(!opens.wait_for(&mut open, LONG).timed_out());
                }
            });
        }
        while opens.waiters.load(Ordering::Relaxed) < 4 {
            yield_now();
        }
        *open.lock() = true;
        opens.notify_all();
    });
}

#[test]
fn a_wait_ends_at_its_time() {
    let (mutex, never) = (Mutex::new(()), Condvar::new());
    let began = Instant::now();
    let mut guard = mutex.lock();
    while !never.wait_for(&mut guard, SHORT).timed_out() {}
    while !never.wait_until(&mut guard, began + 2 * SHORT).timed_out() {}
    never.wait_while_for(&mut guard, |()| true, SHORT);
    assert!(began.elapsed() >= 3 * SHORT);
    assert!(never.wait_until(&mut guard, began).timed_out(), "it is over");
    never.wait_while_for(&mut guard, |()| false, LONG);
}

/// The data has a lock of another kind.
#[test]
fn a_change_of_what_another_lock_guards_is_seen() {
    let (queue, comes) = (parking_lot::Mutex::new(VecDeque::new()), EventCount::new());
    let take = || comes.wait_until(|| queue.lock().pop_front());
    take_all_that_is_put(take, |number| {
        queue.lock().push_back(number);
        comes.notify_one();
    });
    assert_eq!(comes.waiters.load(Ordering::Relaxed), 0);
}

#[test]
fn a_sleep_ends_with_a_change_or_at_its_time() {
    let (open, opens) = (parking_lot::Mutex::new(false), EventCount::new());
    let (began, is_shut) = (Instant::now(), || !*open.lock());
    opens.sleep_if(|| false, LONG);
    opens.sleep_if(is_shut, SHORT);
    scope(|threads| {
        threads.spawn(|| {
            while is_shut() {
                opens.sleep_if(is_shut, LONG);
            }
        });
        yield_now();
        *open.lock() = true;
        opens.notify_all();
    });
    assert!(began.elapsed() < LONG);
}
