//! Faults put into a recording, to see that the explorer finds them.

use crate::events::{Event, Kind};
use crate::recording::Recording;

/// A fault of the engine, made after the fact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// The fence with this number, counted from the workload's beginning, was left out.
    DropFence(usize),
    /// All of them were.
    DropFences,
    /// The store with this number was made, but never flushed or streamed.
    DropFlush(usize),
    /// Each operation returned before its last fence.
    ReturnEarly,
}

/// The recording as it would be with the fault.
pub fn mutate(recording: &Recording, mutant: Mutant) -> Recording {
    let mut mutated = recording.clone();
    let (mut fences, mut stores) = (0, 0);
    let mut index = 0;
    mutated.events.retain_mut(|event| {
        index += 1;
        if index <= recording.first {
            return true;
        }
        match &mut event.kind {
            Kind::Fence => {
                fences += 1;
                mutant != Mutant::DropFences && mutant != Mutant::DropFence(fences - 1)
            }
            Kind::Store { streamed, .. } => {
                stores += 1;
                if mutant == Mutant::DropFlush(stores - 1) {
                    *streamed = false;
                }
                true
            }
            _ => true,
        }
    });
    if mutant == Mutant::ReturnEarly {
        return_early(&mut mutated.events, recording.first);
    }
    mutated
}

/// Moves each operation's end before its last fence.
fn return_early(events: &mut Vec<Event>, first: usize) {
    let mut index = first;
    while index < events.len() {
        if matches!(events[index].kind, Kind::End(_)) {
            let fence = events[..index].iter().rposition(|event| matches!(event.kind, Kind::Fence));
            if let Some(fence) = fence.filter(|fence| *fence >= first) {
                let end = events.remove(index);
                events.insert(fence, end);
            }
        }
        index += 1;
    }
}

/// Fences and stores of the recording's workload.
pub fn sites(recording: &Recording) -> (usize, usize) {
    let count = |is: fn(&Kind) -> bool| {
        recording.events.iter().skip(recording.first).filter(|event| is(&event.kind)).count()
    };
    (count(|kind| matches!(kind, Kind::Fence)), count(|kind| matches!(kind, Kind::Store { .. })))
}
