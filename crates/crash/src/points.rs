//! Crash points: the moments at which a crash is made.
//!
//! They lie before every fence and after every operation. Whatever a crash at another moment can
//! leave, one at those can leave too: between two fences stores are only added, and a store that
//! was not made yet is like one that was lost.

use crate::events::{Event, Kind};
use crate::images::{Images, Outcome};
use crate::model::Model;
use crate::recording::Recording;
use crate::report::Crash;
use crate::rng::Rng;
use crate::select::{Budget, Choice, choices};
use crate::snapshot::Snapshot;

/// How far a workload is at a crash point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Under {
    /// Operations that have returned: a crash must keep them.
    pub done: usize,
    /// Whether the next one has begun: a crash may keep it.
    pub under_way: bool,
}

impl Under {
    /// The states that a crash may leave.
    pub fn legal(self, recording: &Recording) -> Vec<&Snapshot> {
        let count = 1 + usize::from(self.under_way);
        recording.states.iter().skip(self.done).take(count).collect()
    }
}

/// Calls `each` at every crash point with its number and what is under way, until it says false.
pub fn points(
    recording: &Recording,
    each: &mut dyn FnMut(&Model, usize, Under) -> bool,
) -> Outcome<()> {
    let mut model = Model::new(recording.base.clone())?;
    let mut under = Under { done: 0, under_way: false };
    for (index, event) in recording.events.iter().enumerate() {
        let crash = match event.kind {
            Kind::Begin(_) => {
                under.under_way = true;
                false
            }
            Kind::End(number) => {
                under = Under { done: number + 1, under_way: false };
                true
            }
            Kind::Fence | Kind::Sync { .. } => index >= recording.first,
            _ => false,
        };
        if crash && !each(&model, index, under) {
            break;
        }
        model.event(index, event);
    }
    Ok(())
}

/// The same inside recovery, in a model of the images that it found.
pub fn recovery_points(
    model: &mut Model,
    events: &[Event],
    each: &mut dyn FnMut(&Model, usize) -> bool,
) {
    for (index, event) in events.iter().enumerate() {
        if matches!(event.kind, Kind::Fence | Kind::Sync { .. }) && !each(model, index) {
            return;
        }
        model.event(index, event);
    }
}

/// A crash point and one image of it, by chance, with what is under way:
/// to go on from there.
pub fn pick(recording: &Recording, rng: &mut Rng) -> Outcome<(Crash, Images, Under)> {
    let mut count = 0;
    points(recording, &mut |_, _, _| {
        count += 1;
        true
    })?;
    let chosen = rng.below(count.max(1));
    let start = Under { done: 0, under_way: false };
    let mut picked = (Crash { point: 0, kept: Choice::new() }, recording.base.clone(), start);
    let mut at = 0;
    let single = Budget { exhaustive_lines: 4, subsets: 8, tears: 1, single_lines: 4 };
    points(recording, &mut |model, point, legal| {
        if at == chosen {
            let all = choices(&model.in_flight(), &single, rng);
            let kept = all[rng.below(all.len())].clone();
            let images = model.images_with(&kept);
            picked = (Crash { point, kept }, images, legal);
        }
        at += 1;
        at <= chosen
    })?;
    Ok(picked)
}
