//! Who waits for whom, over all files.
//!
//! A waiting owner waits for those that hold what is in its way, and for those that queue ahead of
//! it for such. The first make a deadlock when they close a circle, and who would close it is told
//! so. The second are in the way for fairness only, and shall never make a deadlock that would not
//! be there without it: where they close a circle, those in it pass each other.
//!
//! An owner with several threads may wait for several things at once; it counts as waiting for all
//! of them, as in Linux.

use crate::lock_types::{LockChange, LockOwner};
use crate::locks::FileLocks;
use std::collections::HashSet;

/// The files on which somebody waits.
#[derive(Debug)]
pub struct Waits<'t>(pub Vec<&'t FileLocks>);

/// What a new waiter means.
#[derive(Debug, Default)]
pub struct Judged {
    /// It waits, through others, for itself.
    pub deadlock: bool,
    /// Numbers of waiters that are to pass those ahead of them.
    pub passing: Vec<u64>,
}

impl Waits<'_> {
    /// Judges what `new`, the last in its queue, adds to the circles.
    pub fn judge(&self, new: &LockChange) -> Judged {
        let deadlock = self.dependents(new, false).contains(&new.owner);
        let dependents = self.dependents(new, true);
        if deadlock || !dependents.contains(&new.owner) {
            return Judged { deadlock, passing: Vec::new() };
        }
        let circle = self.circle(new, &dependents);
        let mut passing = Vec::new();
        for file in &self.0 {
            for (at, waiter) in file.queue.iter().enumerate() {
                let inside = circle.contains(&waiter.change.owner)
                    && file.ahead(at).any(|ahead| circle.contains(&ahead.change.owner));
                if inside {
                    passing.push(waiter.number);
                }
            }
        }
        Judged { deadlock, passing }
    }

    /// Owners that wait, directly or through others, for the owner of `new`; `queued`: places in
    /// queues count, too. The owner itself is among them if it waits for itself.
    fn dependents(&self, new: &LockChange, queued: bool) -> HashSet<LockOwner> {
        let mut found = HashSet::new();
        let mut open = vec![new.owner];
        while let Some(owner) = open.pop() {
            for file in &self.0 {
                for (at, waiter) in file.queue.iter().enumerate() {
                    let own = waiter.change.owner;
                    let is_new = waiter.change.class == new.class && !found.contains(&own);
                    if is_new && file.waits_for(at, owner, queued) {
                        found.insert(own);
                        open.push(own);
                    }
                }
            }
        }
        found
    }

    /// Owners that wait for the owner of `new`, and it for them.
    fn circle(&self, new: &LockChange, dependents: &HashSet<LockOwner>) -> HashSet<LockOwner> {
        let mut found = HashSet::from([new.owner]);
        let mut open = vec![new.owner];
        while let Some(owner) = open.pop() {
            for file in &self.0 {
                for (at, waiter) in file.queue.iter().enumerate() {
                    if waiter.change.owner != owner || waiter.change.class != new.class {
                        continue;
                    }
                    let before = dependents.iter().filter(|before| !found.contains(*before));
                    let more = before.filter(|before| file.waits_for(at, **before, true));
                    let more: Vec<LockOwner> = more.copied().collect();
                    found.extend(&more);
                    open.extend(more);
                }
            }
        }
        found
    }
}

impl FileLocks {
    /// Whether the waiter at `at` waits for `owner`.
    fn waits_for(&self, at: usize, owner: LockOwner, queued: bool) -> bool {
        let Some(waiter) = self.queue.get(at) else { return false };
        let in_way = |lock: &LockChange| lock.owner == owner && lock.conflicts(&waiter.change);
        self.held.iter().any(in_way)
            || (queued && self.ahead(at).any(|ahead| in_way(&ahead.change)))
    }
}
