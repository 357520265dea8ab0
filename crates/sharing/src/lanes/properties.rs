//! What must be so in every state.

use super::bounds::{Bounds, WRITES};
use super::state::{Phase, State, Write};

/// What is wrong with a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flaw {
    /// A write that returned is neither in the history nor sure to come there.
    Lost(Write),
    /// A write happened twice.
    Twice(Write),
    /// A write is in the history, and one to the same bytes that had returned before it began is
    /// not before it.
    Order(Write),
    /// A write happened of which its process was told that it did not.
    Lie(Write),
    /// Of a write there are pieces.
    Torn(Write),
    /// A write was folded to bytes that its process has no lease of, or another one has.
    Intrusion(Write),
    /// Somebody got a lease, or read, and did not see all that had returned.
    Stale,
    /// Somebody who waits is further from his lease than before.
    Overtaken,
    /// The word of a lease is closed that nobody recalled.
    Hurt,
}

/// The first thing that is wrong with a state.
pub fn flaw(state: &State, bounds: &Bounds) -> Option<Flaw> {
    if state.wrong.is_some() {
        return state.wrong;
    }
    let pending = state.pending(bounds);
    let is_in = |mask: u16, write: Write| mask >> write & 1 == 1;
    for write in 0..WRITES as Write {
        if is_in(state.acknowledged, write) && !pending.contains(&write) {
            return Some(Flaw::Lost(write));
        }
        let count = state.history.iter().chain(&*pending).filter(|it| **it == write).count();
        if count > 1 {
            return Some(Flaw::Twice(write));
        }
        if is_in(state.refused, write) && count > 0 {
            return Some(Flaw::Lie(write));
        }
    }
    let is_hurt =
        |slot: &super::Slot| slot.phase == Phase::Held && slot.word != slot.granted.generation;
    state.slots.iter().flatten().any(is_hurt).then_some(Flaw::Hurt)
}
