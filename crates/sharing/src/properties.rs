//! What must be so in every state.

use crate::Step;
use crate::service::ServiceStep;
use crate::state::{Bounds, Doing, HOLDERS, Service, State, Write};

/// What is wrong with a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A write that returned is neither in the history nor sure to come there.
    Lost(Write),
    /// A write happened twice.
    Twice(Write),
    /// A write is in the history, and one that had returned before it began is not before it.
    Order(Write),
    /// A write happened of which its process was told that it did not.
    Lie(Write),
    /// Somebody got the lease and did not see all that had returned.
    Stale,
}

/// The first thing that is wrong with a state.
pub fn flaw(state: &State) -> Option<Flaw> {
    let pending = state.pending();
    let is_in = |mask: u16, write: Write| mask >> write & 1 == 1;
    let place = |write: Write| state.history.iter().position(|it| *it == write);
    for write in 0..state.before.len() as Write {
        let (at, is_pending) = (place(write), pending.contains(&write));
        if is_in(state.acknowledged, write) && at.is_none() && !is_pending {
            return Some(Flaw::Lost(write));
        }
        let count = state.history.iter().chain(&pending).filter(|it| **it == write).count();
        if count > 1 {
            return Some(Flaw::Twice(write));
        }
        if is_in(state.refused, write) && count > 0 {
            return Some(Flaw::Lie(write));
        }
        let earlier = (0..state.before.len() as Write)
            .filter(|other| is_in(state.before[usize::from(write)], *other));
        let is_behind = |other: Write| place(other).is_none_or(|other| at < Some(other));
        if at.is_some() && earlier.into_iter().any(is_behind) {
            return Some(Flaw::Order(write));
        }
    }
    state.is_stale.then_some(Flaw::Stale)
}

/// Whether somebody waits who never gets the lease although he lives and the service does: whatever
/// the other one does, or leaves.
pub fn is_stuck(state: &State, bounds: &Bounds) -> bool {
    (0..HOLDERS).any(|waiter| {
        let mut state = state.clone();
        // no more deaths; of the steps of processes none but those of hardware
        let bounds = Bounds { deaths: 0, crashes: 0, ..*bounds };
        for _ in 0..20 {
            if state.holders[waiter].doing != Doing::Waiting {
                return false;
            }
            let mut steps = state.service_steps(&bounds);
            // what it may do again and again brings nobody further
            if let Service::Held(_) = state.service {
                steps.retain(|step| *step != ServiceStep::Fold);
            }
            // of two who wait, the other one may come first, and does nothing then
            let Some(step) = steps.last() else { return true };
            state = state.take(Step::Service(*step), &bounds);
        }
        state.holders[waiter].doing == Doing::Waiting
    })
}
