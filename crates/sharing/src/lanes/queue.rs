//! Who waits for leases gets them, in order of asking.
//!
//! That is shown by a number of each who waits: the steps of the service's own that he is away from
//! his leases. No step of anybody makes it more ([`State::take`] looks), and of who waits longest
//! there is always a step of the service that makes it less ([`is_stuck`] looks): so, whatever
//! others do, the service comes to give him his leases if it goes on.

use super::bounds::{Bounds, Range};
use super::fault::Fault;
use super::state::{Ask, Phase, State};
use super::{ServiceStep, Step};

/// Steps until a lease that is asked for is given and free again.
const ALL_STEPS: u32 = 6;

/// Steps until a slot is free.
fn steps_left(phase: Phase) -> u32 {
    match phase {
        Phase::Free => 0,
        Phase::Granting => 5,
        Phase::Held => 4,
        Phase::Recalled => 3,
        Phase::Closed | Phase::Read => 2,
        Phase::Folded => 1,
    }
}

impl State {
    /// Whether those that wait before this one, and all leases, let it have what it wants.
    pub(super) fn may_grant(&self, at: usize, bounds: &Bounds) -> bool {
        let conflict = |one: Range, other: Range| match bounds.has(Fault::GivesOverlapping) {
            true => one == other,
            false => one & other != 0,
        };
        let range = self.queue[at].range();
        let is_first = !self.queue[..at].iter().any(|ask| conflict(ask.range(), range));
        let is_free = !self.leases().any(|(_, _, slot)| conflict(slot.granted.range, range));
        is_free && (is_first || bounds.has(Fault::OutOfTurn))
    }

    /// Whether somebody waits for what this slot has.
    pub(super) fn is_wanted(&self, range: Range) -> bool {
        self.queue.iter().any(|ask| ask.range() & range != 0)
    }

    /// How many steps of the service's own one who waits is away from his leases, at most.
    fn steps_to(&self, at: usize) -> u32 {
        let before = &self.queue[..=at];
        let slots = |ask: &Ask| ask.wish.iter().filter(|range| **range != 0).count() as u32;
        let of_asks: u32 = before.iter().map(|ask| ALL_STEPS * slots(ask)).sum();
        let is_in_the_way = |range: Range| before.iter().any(|ask| ask.range() & range != 0);
        let in_the_way = self.leases().filter(|it| is_in_the_way(it.2.granted.range));
        of_asks + in_the_way.map(|it| steps_left(it.2.phase)).sum::<u32>()
    }

    /// Whether somebody who waited is further from his leases than in the state before.
    pub(super) fn is_overtaken(&self, before: &State) -> bool {
        (0..before.queue.len()).any(|was| {
            let now = self.queue.iter().position(|ask| *ask == before.queue[was]);
            now.is_some_and(|now| self.steps_to(now) > before.steps_to(was))
        })
    }

    /// Whether the service can bring the one who waits longest nearer to his leases, in so many
    /// steps.
    fn comes_nearer(&self, from: &State, steps: usize, bounds: &Bounds) -> bool {
        let is_nearer = self.queue.len() < from.queue.len() || self.steps_to(0) < from.steps_to(0);
        let own = || self.service_steps(bounds).into_iter().filter(|it| *it != ServiceStep::Die);
        let take = |step| self.take(Step::Service(step), bounds);
        is_nearer || steps > 0 && own().any(|it| take(it).comes_nearer(from, steps - 1, bounds))
    }
}

/// Whether somebody waits and the service can do nothing that brings him nearer to his leases.
pub fn is_stuck(state: &State, bounds: &Bounds) -> bool {
    // what it has copied already may be of before: then it reads once more
    let steps = if bounds.is_slow { 3 } else { 1 };
    !state.queue.is_empty() && !state.comes_nearer(state, steps, bounds)
}
