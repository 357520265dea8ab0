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
use crate::select::{Choice, telling};
use crate::snapshot::Snapshot;

/// How far a workload is at a crash point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Under {
    /// Operations that a crash must keep.
    pub durable: usize,
    /// Operations that have returned.
    pub done: usize,
    /// Whether the next one has begun: a crash may keep it.
    pub under_way: bool,
    /// Where two are made at once.
    pair: Both,
}

/// How far two operations at once are, and the sync that may follow both; a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Both {
    begun: u8,
    returned: u8,
    /// Those that a crash must keep.
    durable: u8,
    /// Those that had returned when each began: what is durable is a prefix of history, and so
    /// nothing without what returned before it began.
    before: [u8; 3],
}

impl Both {
    const NONE: Both = Both { begun: 0, returned: 0, durable: 0, before: [0; 3] };

    fn begin(&mut self, number: usize) {
        self.begun |= 1 << number;
        self.before[number] = self.returned;
    }

    fn end(&mut self, number: usize, settles: bool) {
        self.returned |= 1 << number;
        if settles {
            self.durable |= 1 << number | self.before[number];
        }
    }

    /// Whether a crash may leave what these of the two did.
    fn may_leave(self, done: u8) -> bool {
        let of_both = 0b11;
        let needs = |number: usize| done >> number & 1 == 0 || self.before[number] & !done == 0;
        self.durable & of_both & !done == 0 && done & !self.begun == 0 && (0..2).all(needs)
    }
}

impl Under {
    const START: Under = Under { durable: 0, done: 0, under_way: false, pair: Both::NONE };

    /// The states that a crash may leave.
    pub fn legal(self, recording: &Recording) -> Vec<&Snapshot> {
        if recording.pair {
            let states = recording.states.iter().zip([0, 1, 2, 3, 3]);
            let legal = states.filter(|(_, done)| self.pair.may_leave(*done));
            return legal.map(|(state, _)| state).collect();
        }
        let count = 1 + self.done - self.durable + usize::from(self.under_way);
        let states = recording.states.iter().skip(self.durable).take(count);
        let operations = self.durable..self.durable + count - 1;
        let parts = recording.parts.get(operations).unwrap_or_default();
        states.chain(parts.iter().flatten()).collect()
    }
}

/// Calls `each` at every crash point with its number and what is under way, until it says false.
pub fn points(
    recording: &Recording,
    each: &mut dyn FnMut(&Model, usize, Under) -> bool,
) -> Outcome<()> {
    let model = Model::new(recording.domain, recording.base.clone())?;
    let mut model = model.with_files(recording.files);
    let mut under = Under::START;
    for (index, event) in recording.events.iter().enumerate() {
        let crash = match event.kind {
            Kind::Begin(number) => {
                under.under_way = true;
                if recording.pair {
                    under.pair.begin(number);
                }
                false
            }
            Kind::End(number) if recording.pair => {
                under.pair.end(number, recording.settled[number]);
                under.done += 1;
                true
            }
            Kind::End(number) => {
                let done = number + 1;
                let durable = if recording.settled[number] { done } else { under.durable };
                under = Under { durable, done, under_way: false, ..under };
                true
            }
            ref kind => index >= recording.first && Model::settles(recording.domain, kind),
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
        if Model::settles(model.domain(), &event.kind) && !each(model, index) {
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
    let mut picked =
        (Crash { point: 0, kept: Choice::new() }, recording.base.clone(), Under::START);
    let mut at = 0;
    points(recording, &mut |model, point, under| {
        if at == chosen {
            let some = telling(&model.in_flight(), 24, rng);
            let kept = some[rng.below(some.len())].clone();
            let images = model.images_with(&model.changed(&kept));
            picked = (Crash { point, kept }, images, under);
        }
        at += 1;
        at <= chosen
    })?;
    Ok(picked)
}
