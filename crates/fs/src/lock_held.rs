//! The locks that are held on one file.
//!
//! What it keeps true: the ranges of one owner in one class are disjoint, and two of the same kind
//! do not touch.

use crate::lock_types::{LockChange, LockClass, LockKind, LockOwner};

/// Locks held on one file, in no order. As many as a program takes: looked through one by one.
#[derive(Debug, Default)]
pub struct Held(Vec<LockChange>);

impl Held {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &LockChange> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lock that is in the way of `change`: the first one by its place in the file.
    pub fn conflict(&self, change: &LockChange) -> Option<&LockChange> {
        self.0.iter().filter(|held| held.conflicts(change)).min_by_key(|held| held.start)
    }

    /// Whether `owner` holds any.
    pub fn any_of(&self, class: LockClass, owner: LockOwner) -> bool {
        self.0.iter().any(|held| held.class == class && held.owner == owner)
    }

    /// Owners of locks that came through `door`.
    pub fn owners_of_door(&self, door: u64) -> Vec<(LockClass, LockOwner)> {
        let mut owners = Vec::new();
        for held in self.0.iter().filter(|held| held.owner.door == door) {
            let owner = (held.class, held.owner);
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        owners
    }

    /// The range is now what `change` says; the owner's other ranges are split, or merged with it.
    /// True if others may find less in their way than before.
    pub fn apply(&mut self, change: &LockChange) -> bool {
        let mut merged = *change;
        let mut rest = Vec::new();
        let mut freed = false;
        self.0.retain(|old| {
            if old.class != change.class || old.owner != change.owner {
                return true;
            }
            let same = old.kind == change.kind;
            if !reaches(old, change, same) {
                return true;
            }
            if same {
                merged.start = merged.start.min(old.start);
                merged.end = merged.end.max(old.end);
                return false;
            }
            freed |= old.kind == LockKind::Write || change.kind == LockKind::Unlock;
            if old.start < change.start {
                rest.push(LockChange { end: change.start - 1, ..*old });
            }
            if old.end > change.end {
                rest.push(LockChange { start: change.end + 1, ..*old });
            }
            false
        });
        self.0.append(&mut rest);
        if change.kind != LockKind::Unlock {
            self.0.push(merged);
        }
        freed
    }
}

/// Whether the two ranges overlap or, if they may merge, touch.
fn reaches(old: &LockChange, new: &LockChange, merge: bool) -> bool {
    let more = u64::from(merge);
    old.start <= new.end.saturating_add(more) && new.start <= old.end.saturating_add(more)
}
