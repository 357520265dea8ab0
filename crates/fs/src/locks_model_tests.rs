//! The table of locks against a byte array of owners, and owners that wait for each other.

use crate::lock_types::{LockChange, LockClass, LockKind, LockOwner};
use crate::locks::Locks;
use crate::locks_tests::{BYTES, FILE, Wait, owner, range};
use crate::types::Ino;
use LockKind::{Read, Unlock, Write};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;

type Checked = std::result::Result<(), TestCaseError>;

/// Who holds each byte, and how.
type Model = Vec<Vec<(LockOwner, LockKind)>>;

fn model_of(held: &[LockChange]) -> Model {
    let of_byte = |byte: u64| {
        let over = held.iter().filter(|lock| (lock.start..=lock.end).contains(&byte));
        let mut owners: Vec<_> = over.map(|lock| (lock.owner, lock.kind)).collect();
        owners.sort_unstable_by_key(|(owner, _)| *owner);
        owners
    };
    (0..BYTES).map(of_byte).collect()
}

/// Whether the model has somebody in the way of `change`.
fn in_way(model: &Model, change: &LockChange) -> bool {
    (change.start..=change.end).any(|byte| {
        model[byte as usize].iter().any(|(owner, kind)| {
            let exclusive = *kind == Write || change.kind == Write;
            *owner != change.owner && exclusive && change.kind != Unlock
        })
    })
}

fn apply(model: &mut Model, change: &LockChange) {
    for byte in change.start..=change.end.min(BYTES - 1) {
        let owners = &mut model[byte as usize];
        owners.retain(|(owner, _)| *owner != change.owner);
        if change.kind != Unlock {
            owners.push((change.owner, change.kind));
        }
        owners.sort_unstable_by_key(|(owner, _)| *owner);
    }
}

/// The ranges of an owner are disjoint, and do not touch where they could be one.
fn check_ranges(held: &[LockChange]) -> Checked {
    for (at, one) in held.iter().enumerate() {
        for other in held[at + 1..].iter().filter(|other| other.owner == one.owner) {
            let gap = one.start.max(other.start) as i64 - one.end.min(other.end) as i64;
            let apart = if one.kind == other.kind { 2 } else { 1 };
            prop_assert!(gap >= apart, "{one:?} and {other:?}");
        }
    }
    Ok(())
}

fn kinds() -> impl Strategy<Value = LockKind> {
    prop_oneof![3 => Just(Read), 3 => Just(Write), 2 => Just(Unlock)]
}

proptest! {
    #[test]
    fn ranges_behave_as_a_byte_array_of_owners(
        steps in prop::collection::vec((0u64..4, kinds(), 0..BYTES, 0..BYTES), 1..80),
    ) {
        let locks = Locks::default();
        let seen: Arc<Mutex<Model>> = Arc::new(Mutex::new(model_of(&[])));
        let watched = seen.clone();
        locks.observe(Arc::new(move |ino, change| {
            assert_eq!(ino, FILE);
            apply(&mut watched.lock(), change);
        }));
        let mut model = model_of(&[]);
        for (key, kind, one, other) in steps {
            let change = range(key, kind, one.min(other), one.max(other));
            let denied = in_way(&model, &change);
            prop_assert_eq!(locks.holder(FILE, &change).is_some(), denied);
            let result = locks.lock(FILE, &change).map_err(|error| error.errno());
            prop_assert_eq!(result, if denied { Err(libc::EAGAIN) } else { Ok(()) });
            if !denied {
                apply(&mut model, &change);
            }
            let held = locks.held(FILE);
            prop_assert_eq!(&model_of(&held), &model);
            prop_assert_eq!(&*seen.lock(), &model);
            check_ranges(&held)?;
        }
        (0..4).for_each(|key| locks.unlock_all(FILE, owner(key), LockClass::Posix));
        prop_assert!(locks.is_empty());
    }

    #[test]
    fn owners_that_wait_all_come_to_their_turn(
        steps in prop::collection::vec((0u64..5, kinds(), 0u64..2, 0u64..4, 0u64..4), 1..60),
        last in prop::collection::vec(0u64..5, 16),
    ) {
        let mut world = World::default();
        for (key, kind, file, one, other) in steps {
            let change = range(key, kind, one.min(other), one.max(other));
            world.step(Ino(file), &change)?;
        }
        // whoever runs lets go of all it has, until nobody waits
        for key in last.into_iter().chain((0..5).cycle().take(25)) {
            world.unlock_all(key)?;
        }
        prop_assert!(world.waits.iter().all(Option::is_none), "somebody waits for ever");
        prop_assert!(world.locks.is_empty());
    }
}

/// Two files and five owners that each wait for one thing at a time.
#[derive(Default)]
struct World {
    locks: Locks,
    waits: [Option<(Ino, LockChange, Wait)>; 5],
}

impl World {
    fn step(&mut self, ino: Ino, change: &LockChange) -> Checked {
        let key = change.owner.key as usize;
        if self.waits[key].is_some() {
            return Ok(());
        }
        let circle = self.in_circle(ino, change);
        let wait = Wait::begin(&self.locks, ino, change);
        prop_assert_eq!(wait.failed(libc::EDEADLK), circle);
        self.waits[key] = (!circle).then_some((ino, *change, wait));
        self.look()
    }

    fn unlock_all(&mut self, key: u64) -> Checked {
        if self.waits[key as usize].is_none() {
            for file in 0..2 {
                self.locks.unlock_all(Ino(file), owner(key), LockClass::Posix);
            }
        }
        self.look()
    }

    /// Whether the owner would wait for itself, by the locks that are held.
    fn in_circle(&self, ino: Ino, change: &LockChange) -> bool {
        let holders = |ino: Ino, change: &LockChange| -> Vec<LockOwner> {
            let held = self.locks.held(ino);
            let mut in_way = held;
            in_way.retain(|lock| {
                let exclusive = lock.kind == Write || change.kind == Write;
                let overlap = lock.start <= change.end && change.start <= lock.end;
                lock.owner != change.owner && exclusive && overlap && change.kind != Unlock
            });
            in_way.iter().map(|lock| lock.owner).collect()
        };
        let mut reached = holders(ino, change);
        for _ in 0..5 {
            for (ino, waited, _) in self.waits.iter().flatten() {
                if reached.contains(&waited.owner) {
                    reached.extend(holders(*ino, waited));
                }
            }
        }
        reached.contains(&change.owner)
    }

    /// Takes note of waits that ended. No two locks that conflict are held; nobody waits for
    /// nothing.
    fn look(&mut self) -> Checked {
        for wait in &mut self.waits {
            if let Some((_, change, own)) = wait
                && !own.waits()
            {
                prop_assert!(own.granted(), "{change:?}: {:?}", own.told.lock());
                *wait = None;
            }
        }
        for file in 0..2 {
            let held = self.locks.held(Ino(file));
            check_ranges(&held)?;
            for lock in &held {
                prop_assert!(!in_way(&model_of(&held), lock), "{held:?}");
            }
            let waiting = self.waits.iter().flatten().filter(|wait| wait.0 == Ino(file));
            let waiting: Vec<LockChange> = waiting.map(|wait| wait.1).collect();
            let blocked = |own: &LockChange| {
                held.iter().chain(&waiting).any(|other| {
                    let exclusive = own.kind == Write || other.kind == Write;
                    let overlap = own.start <= other.end && other.start <= own.end;
                    own.owner != other.owner && exclusive && overlap
                })
            };
            prop_assert!(waiting.iter().all(blocked), "{waiting:?} with {held:?}");
        }
        Ok(())
    }
}
