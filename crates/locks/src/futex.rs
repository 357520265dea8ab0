//! Locks and conditions that a forked child can use, whatever its parent's threads did at the fork.
//!
//! `parking_lot` keeps one table of parked threads for the whole process. A thread that parks or
//! wakes others locks a part of the table. What another thread had locked at a fork stays locked in
//! the child for ever. `std`'s primitives have no such table: each is a futex of its own. So all
//! conditions of what a program's library runs are these. A mutex without a condition stays
//! `parking_lot`'s, which takes fewer instructions, and touches the table only where two threads
//! meet: a child whose own threads contend for one can still hang.
//!
//! The interface is `parking_lot`'s: no poisoning, and a condition takes the guard by reference.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, WaitTimeoutResult};
use std::time::{Duration, Instant};

/// A mutex. Its guard can wait for a [`Condvar`].
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// A locked [`Mutex`].
pub struct MutexGuard<'m, T>(
    /// `None` only inside `Condvar::wait` and `wait_for`.
    Option<std::sync::MutexGuard<'m, T>>,
);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Waits until no thread has the mutex, and locks it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("a guard that waits is borrowed"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("a guard that waits is borrowed"),
        }
    }
}

/// A condition that threads wait for. A notification without a waiter makes no system call.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Threads inside `wait` or `wait_for`. Only they change it, with the mutex locked: so a thread
    /// that had the mutex after them sees them.
    waiters: AtomicU32,
    condition: std::sync::Condvar,
}

impl Condvar {
    /// A condition without waiters.
    pub const fn new() -> Condvar {
        Condvar { waiters: AtomicU32::new(0), condition: std::sync::Condvar::new() }
    }

    /// Unlocks the mutex until a notification comes; may return without one.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let Some(own) = guard.0.take() else { unreachable!("a guard that waits is borrowed") };
        // ordering: the mutex orders it
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let own = self.condition.wait(own).unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        guard.0 = Some(own);
    }

    /// Unlocks the mutex until a notification comes, for so long at most; may return earlier.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, most: Duration) -> WaitTimeoutResult {
        let Some(own) = guard.0.take() else { unreachable!("a guard that waits is borrowed") };
        // ordering: the mutex orders it
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let waited = self.condition.wait_timeout(own, most);
        let (own, result) = waited.unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        guard.0 = Some(own);
        result
    }

    /// Unlocks the mutex until a notification comes, or this moment; may return earlier.
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        until: Instant,
    ) -> WaitTimeoutResult {
        self.wait_for(guard, until.saturating_duration_since(Instant::now()))
    }

    /// Waits as long as `waits` answers true, for so long at most.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut waits: impl FnMut(&mut T) -> bool,
        most: Duration,
    ) {
        let began = Instant::now();
        while waits(guard) {
            let Some(left) = most.checked_sub(began.elapsed()) else { return };
            self.wait_for(guard, left);
        }
    }

    /// Wakes one waiter.
    #[inline]
    pub fn notify_one(&self) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.condition.notify_one();
        }
    }

    /// Wakes all waiters.
    #[inline]
    pub fn notify_all(&self) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.condition.notify_all();
        }
    }
}

/// A condition on data that another lock guards. That lock stays as fast as it is, and a change
/// without a waiter costs one load.
#[derive(Debug, Default)]
pub struct EventCount {
    /// Threads that look at the data or sleep. A waiter counts itself before it locks the data: so
    /// a thread that changed the data after the look sees the waiter.
    waiters: AtomicU32,
    /// Locked from before a look until the waiter sleeps: no notification comes between the two.
    looking: Mutex<()>,
    changed: Condvar,
}

impl EventCount {
    /// An event count without waiters.
    pub const fn new() -> EventCount {
        let (looking, changed) = (Mutex::new(()), Condvar::new());
        EventCount { waiters: AtomicU32::new(0), looking, changed }
    }

    /// Waits until `look` finds something. `look` locks the data; the caller does not have it
    /// locked.
    #[cold]
    pub fn wait_until<R>(&self, mut look: impl FnMut() -> Option<R>) -> R {
        let mut looking = self.looking.lock();
        // ordering: before the look by the data's lock
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let found = loop {
            match look() {
                Some(found) => break found,
                None => self.changed.wait(&mut looking),
            }
        };
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        found
    }

    /// Sleeps, if `waits` still answers true, until the next change, for so long at most. `waits`
    /// locks the data; the caller does not have it locked.
    #[cold]
    pub fn sleep_if(&self, waits: impl FnOnce() -> bool, most: Duration) {
        let mut looking = self.looking.lock();
        // ordering: as in `wait_until`
        self.waiters.fetch_add(1, Ordering::Relaxed);
        if waits() {
            self.changed.wait_for(&mut looking, most);
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes one waiter: the data was changed, and is unlocked.
    #[inline]
    pub fn notify_one(&self) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.wake(Condvar::notify_one);
        }
    }

    /// Wakes all waiters: the data was changed, and is unlocked.
    #[inline]
    pub fn notify_all(&self) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.wake(Condvar::notify_all);
        }
    }

    #[cold]
    fn wake(&self, notify: fn(&Condvar)) {
        // a waiter that looked before the change sleeps after this
        drop(self.looking.lock());
        notify(&self.changed);
    }
}

#[cfg(test)]
#[path = "futex_tests.rs"]
mod tests;
