//! The gate under every order of two changes' and a cut's steps: while it is closed no change is
//! under way, the cut sees all that a change wrote or nothing, and a change all of the cut.
//!
//! The source file is the engine's own; only the locks are loom's.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

#[path = "../src/gate.rs"]
mod gate;
#[path = "common/mod.rs"]
mod sync;

use gate::Gate;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;

/// Two words that belong together, stored and read relaxed: what the gate guards.
#[derive(Default)]
struct Pair(AtomicU64, AtomicU64);

impl Pair {
    fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
        self.1.store(value, Relaxed);
    }

    fn both(&self) -> (u64, u64) {
        (self.0.load(Relaxed), self.1.load(Relaxed))
    }
}

struct Guarded {
    gate: Gate,
    /// What each change writes.
    changes: [Pair; 2],
    /// What the cut writes.
    cut: Pair,
}

fn guarded(cpus: usize) -> Arc<Guarded> {
    Arc::new(Guarded { gate: Gate::new(cpus), changes: Default::default(), cut: Pair::default() })
}

/// A change of the thread on `cpu`.
fn change(guarded: &Guarded, cpu: usize) {
    let _entered = guarded.gate.enter(cpu);
    let (one, other) = guarded.cut.both();
    assert_eq!(one, other, "a change ran while the gate was closed");
    guarded.changes[cpu].set(1);
}

/// A cut; gives which changes it saw.
fn cut(guarded: &Guarded, number: u64) -> [u64; 2] {
    let _closed = guarded.gate.close();
    guarded.cut.set(number);
    assert_eq!(guarded.cut.both(), (number, number), "two cuts at once");
    [0, 1].map(|cpu: usize| {
        let (one, other) = guarded.changes[cpu].both();
        assert_eq!(one, other, "a change was under way while the gate was closed");
        one
    })
}

fn changes_and_a_cut(cpus: usize) {
    loom::model(move || {
        let guarded = guarded(cpus);
        let changers = [0, 1].map(|cpu| {
            let guarded = guarded.clone();
            thread::spawn(move || change(&guarded, cpu))
        });
        cut(&guarded, 1);
        for changer in changers {
            changer.join().unwrap();
        }
        assert_eq!(cut(&guarded, 2), [1, 1], "a cut misses a change that is over");
    });
}

#[test]
fn no_change_is_under_way_while_the_gate_is_closed() {
    changes_and_a_cut(2);
}

#[test]
fn two_changes_through_one_lock_are_kept_out_as_well() {
    changes_and_a_cut(1);
}

/// A change is not held back by another one.
#[test]
fn changes_are_inside_together() {
    loom::model(|| {
        let guarded = guarded(1);
        let inside = guarded.gate.enter(0);
        let other = guarded.clone();
        thread::spawn(move || drop(other.gate.enter(0))).join().unwrap();
        drop(inside);
    });
}

/// Two cuts at once exclude each other, and do not wait for each other for ever.
#[test]
fn two_cuts_exclude_each_other() {
    loom::model(|| {
        let guarded = guarded(2);
        let other = guarded.clone();
        let thread = thread::spawn(move || cut(&other, 1));
        cut(&guarded, 2);
        thread.join().unwrap();
    });
}
