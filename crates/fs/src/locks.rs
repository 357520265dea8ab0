//! Locks that programs take on files: flock(2), and ranges of bytes (fcntl(2)).
//!
//! One table for the pool, so that a lock holds against every door. What it keeps true:
//! - no two locks that conflict are held at once, but for what `restore` was told;
//! - nobody waits but for a lock that is held, or for one who came before: requests that wait are
//!   granted in their order, and one that conflicts with nobody ahead of it passes. One that does
//!   not wait looks at locks only, as in Linux;
//! - nobody waits for itself through others (`lock_waits.rs`);
//! - the end of a wait is told once, by whoever brought it about, outside the table's locks;
//! - a file without a lock takes no memory. Nothing is stored: locks end with the pool's close.
//!
//! Files are spread over shards with a lock each. Only a request that has to wait takes all of
//! them, in order, because a circle of waiting owners may go over any files.

use crate::error::{Error, Result};
use crate::lock_held::Held;
use crate::lock_types::{
    LockChange, LockClass, LockDone, LockKind, LockObserver, LockOwner, LockTicket,
};
use crate::lock_waits::{Judged, Waits};
use crate::types::Ino;
use ::locks::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 64;

/// A request that waits.
pub struct Waiter {
    /// Its ticket's.
    pub number: u64,
    /// What it asks for.
    pub change: LockChange,
    /// Those ahead of it are not waited for.
    passes: bool,
    done: LockDone,
}

/// The locks of one file.
#[derive(Debug, Default)]
pub struct FileLocks {
    /// Those that are held.
    pub held: Held,
    /// Those that are waited for, in the order in which they came.
    pub queue: Vec<Waiter>,
}

/// A part of the table, by the files' numbers.
type Shard = HashMap<Ino, FileLocks>;

/// Waits that ended: to be told when no lock of the table is held.
#[derive(Default)]
struct Ended(Vec<(LockDone, Result<()>)>);

/// All locks of a pool.
pub struct Locks {
    shards: Box<[Mutex<Shard>]>,
    observers: RwLock<Vec<LockObserver>>,
    /// Numbers of waits and of owners, never given twice.
    next: AtomicU64,
}

impl Default for Locks {
    fn default() -> Locks {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Locks { shards, observers: RwLock::default(), next: AtomicU64::new(1) }
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Locks").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Waiter").field("change", &self.change).finish_non_exhaustive()
    }
}

impl FileLocks {
    /// Those ahead of the waiter at `at` that it waits for.
    pub fn ahead(&self, at: usize) -> impl Iterator<Item = &Waiter> {
        let own = self.queue.get(at).filter(|own| !own.passes);
        let before = own.map_or(&[][..], |_| &self.queue[..at]);
        before
            .iter()
            .filter(move |other| own.is_some_and(|own| other.change.conflicts(&own.change)))
    }

    fn blocked(&self, at: usize) -> bool {
        let Some(own) = self.queue.get(at) else { return false };
        self.held.conflict(&own.change).is_some() || self.ahead(at).next().is_some()
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }
}

impl Ended {
    fn add(&mut self, waiter: Waiter, result: Result<()>) {
        self.0.push((waiter.done, result));
    }

    /// Tells all of them. The caller holds no lock of the table.
    fn tell(self) {
        self.0.into_iter().for_each(|(done, result)| done(result));
    }
}

/// The change as the table keeps it.
fn checked(change: &LockChange) -> Result<LockChange> {
    match change.class {
        LockClass::Flock => Ok(LockChange { start: 0, end: u64::MAX, ..*change }),
        LockClass::Posix if change.start <= change.end => Ok(*change),
        LockClass::Posix => Err(Error::Invalid("the range ends before it begins")),
    }
}

impl Locks {
    fn place(ino: Ino) -> usize {
        (ino.0 ^ (ino.0 >> 8)) as usize % SHARDS
    }

    /// A number that nobody else has.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls `each` with the locks of one file, and tells what came of it.
    fn with<T>(&self, ino: Ino, each: impl FnOnce(&mut FileLocks, &mut Ended) -> T) -> T {
        let mut ended = Ended::default();
        let mut shard = self.shards[Locks::place(ino)].lock();
        let file = shard.entry(ino).or_default();
        let result = each(file, &mut ended);
        if file.is_empty() {
            shard.remove(&ino);
        }
        drop(shard);
        ended.tell();
        result
    }

    /// The range is what `change` says, and who can go on does.
    fn grant(&self, ino: Ino, file: &mut FileLocks, change: &LockChange, ended: &mut Ended) {
        if self.set(ino, file, change) {
            self.go_on(ino, file, ended);
        }
    }

    /// The same; true if others may go on.
    fn set(&self, ino: Ino, file: &mut FileLocks, change: &LockChange) -> bool {
        let freed = file.held.apply(change);
        self.observers.read().iter().for_each(|observer| observer(ino, change));
        freed
    }

    /// Grants what can be granted, first come first served.
    fn go_on(&self, ino: Ino, file: &mut FileLocks, ended: &mut Ended) {
        let mut at = 0;
        while at < file.queue.len() {
            if file.blocked(at) {
                at += 1;
                continue;
            }
            let waiter = file.queue.remove(at);
            if self.set(ino, file, &waiter.change) {
                // it took less than it had: those ahead of it may go on
                at = 0;
            }
            ended.add(waiter, Ok(()));
        }
    }

    /// Takes or lets go of a lock without waiting.
    pub fn lock(&self, ino: Ino, change: &LockChange) -> Result<()> {
        let change = checked(change)?;
        self.with(ino, |file, ended| {
            if file.held.conflict(&change).is_none() {
                self.grant(ino, file, &change, ended);
                return Ok(());
            }
            self.convert(ino, file, &change, ended);
            Err(Error::Locked)
        })
    }

    /// flock(2) lets go of the lock that cannot be changed into another before it fails or waits.
    fn convert(&self, ino: Ino, file: &mut FileLocks, change: &LockChange, ended: &mut Ended) {
        if change.class == LockClass::Flock && file.held.any_of(change.class, change.owner) {
            self.grant(ino, file, &LockChange { kind: LockKind::Unlock, ..*change }, ended);
        }
    }

    /// Takes a lock, at once or when it can be had. `done` is told, once.
    pub fn lock_wait(&self, ino: Ino, change: &LockChange, done: LockDone) -> LockTicket {
        let at_once = LockTicket { ino, number: 0 };
        let granted = checked(change).map(|change| {
            self.with(ino, |file, ended| {
                let queued = file.queue.iter().any(|other| other.change.conflicts(&change));
                let free = !queued && file.held.conflict(&change).is_none();
                if free {
                    self.grant(ino, file, &change, ended);
                }
                (!free).then_some(change)
            })
        });
        let change = match granted {
            Ok(Some(change)) => change,
            result => {
                done(result.map(|_| ()));
                return at_once;
            }
        };
        let number = self.number();
        let waiter = Waiter { number, change, passes: false, done };
        self.queue(ino, waiter).tell();
        LockTicket { ino, number }
    }

    /// Queues a request, if that makes no deadlock.
    fn queue(&self, ino: Ino, waiter: Waiter) -> Ended {
        let mut ended = Ended::default();
        let change = waiter.change;
        // all of them, in the order of their places: whoever takes more than one does so
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.lock()).collect();
        let own = Locks::place(ino);
        shards[own].entry(ino).or_default().queue.push(waiter);
        let files = shards.iter().flat_map(|shard| shard.values());
        let waits = Waits(files.filter(|file| !file.queue.is_empty()).collect());
        let Judged { deadlock, passing } = waits.judge(&change);
        if deadlock && change.class == LockClass::Posix {
            let queued = shards[own].get_mut(&ino).and_then(|file| file.queue.pop());
            queued.into_iter().for_each(|waiter| ended.add(waiter, Err(Error::Deadlock)));
            return ended;
        }
        if !passing.is_empty() {
            for (ino, file) in shards.iter_mut().flat_map(|shard| shard.iter_mut()) {
                let mut queue = file.queue.iter_mut();
                let passing = |waiter: &&mut Waiter| passing.contains(&waiter.number);
                if queue.by_ref().filter(passing).map(|waiter| waiter.passes = true).count() > 0 {
                    self.go_on(*ino, file, &mut ended);
                }
            }
        }
        // what stood in the way may be gone since the request was looked at first
        if let Some(file) = shards[own].get_mut(&ino) {
            self.go_on(ino, file, &mut ended);
            if file.held.conflict(&change).is_some() {
                self.convert(ino, file, &change, &mut ended);
            }
        }
        ended
    }

    /// Ends a wait, if it has not ended; it is told that it was interrupted.
    pub fn cancel(&self, ticket: LockTicket) {
        if ticket.number == 0 {
            return;
        }
        self.with(ticket.ino, |file, ended| {
            let own = |waiter: &Waiter| waiter.number == ticket.number;
            let Some(at) = file.queue.iter().position(own) else { return };
            ended.add(file.queue.remove(at), Err(Error::Interrupted));
            self.go_on(ticket.ino, file, ended);
        });
    }

    /// A lock that is in the way of `change`.
    pub fn holder(&self, ino: Ino, change: &LockChange) -> Option<LockChange> {
        let change = checked(change).ok()?;
        let shard = self.shards[Locks::place(ino)].lock();
        shard.get(&ino)?.held.conflict(&change).copied()
    }

    /// Lets go of all that an owner holds on one file.
    pub fn unlock_all(&self, ino: Ino, owner: LockOwner, class: LockClass) {
        self.with(ino, |file, ended| {
            if file.held.any_of(class, owner) {
                self.grant(ino, file, &LockChange::unlock_all(class, owner), ended);
            }
        });
    }

    /// Lets go of all that came through a door, waits included.
    pub fn unlock_door(&self, door: u64) {
        for shard in &self.shards {
            let mut ended = Ended::default();
            let mut shard = shard.lock();
            for (ino, file) in shard.iter_mut() {
                let own = |waiter: &mut Waiter| waiter.change.owner.door == door;
                let waited = file.queue.extract_if(.., own);
                waited.for_each(|waiter| ended.add(waiter, Err(Error::Interrupted)));
                for (class, owner) in file.held.owners_of_door(door) {
                    self.set(*ino, file, &LockChange::unlock_all(class, owner));
                }
                self.go_on(*ino, file, &mut ended);
            }
            shard.retain(|_, file| !file.is_empty());
            drop(shard);
            ended.tell();
        }
    }

    /// Lets go of everything: the pool is closed.
    pub fn clear(&self) {
        for shard in &self.shards {
            let files = std::mem::take(&mut *shard.lock());
            let waited = files.into_values().flat_map(|file| file.queue);
            waited.for_each(|waiter| (waiter.done)(Err(Error::Interrupted)));
        }
    }

    /// From now on, `observer` is told about every change.
    pub fn observe(&self, observer: LockObserver) {
        self.observers.write().push(observer);
    }

    /// From now on, `observer` is told no more.
    pub fn forget_observer(&self, observer: &LockObserver) {
        self.observers.write().retain(|other| !Arc::ptr_eq(other, observer));
    }

    /// Shows all that is held through a door, between two changes.
    pub fn with_all<T>(
        &self,
        door: u64,
        look: impl FnOnce(&mut dyn Iterator<Item = (Ino, LockChange)>) -> T,
    ) -> T {
        // all of them, in the order of their places
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.lock()).collect();
        let files = shards.iter().flat_map(|shard| shard.iter());
        let held = files.flat_map(|(ino, file)| file.held.iter().map(|lock| (*ino, *lock)));
        look(&mut held.filter(|(_, lock)| lock.owner.door == door))
    }

    /// Takes over a lock that was held before, whatever is in its way.
    pub fn restore(&self, ino: Ino, change: &LockChange) -> Result<()> {
        let change = checked(change)?;
        self.with(ino, |file, ended| {
            if file.held.apply(&change) {
                self.go_on(ino, file, ended);
            }
        });
        Ok(())
    }

    /// Whether there is no lock and nobody waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// The locks held on a file.
    #[cfg(test)]
    pub fn held(&self, ino: Ino) -> Vec<LockChange> {
        let shard = self.shards[Locks::place(ino)].lock();
        shard.get(&ino).map_or(Vec::new(), |file| file.held.iter().copied().collect())
    }
}
