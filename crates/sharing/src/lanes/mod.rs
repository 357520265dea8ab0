//! Leases and lanes: who may write what, and when it has happened.
//!
//! Up to three processes with two slots each want ranges that may overlap in part. Each may take
//! any step that it can at any time; so may the service, one who reads, and power cuts.

mod bounds;
mod fault;
mod fold;
mod holder;
mod hostile;
mod properties;
mod queue;
mod service;
mod state;

pub use bounds::{Bounds, HOLDERS, PLACES, Range, SLOTS, WRITES, Wish};
pub use fault::Fault;
pub use holder::HolderStep;
pub use hostile::Forgery;
pub use properties::{Flaw, flaw};
pub use queue::is_stuck;
pub use service::ServiceStep;
pub use state::{
    Ask, Copied, Doing, Holder, Lease, Old, Phase, Reading, Record, Slot, Spent, State, Write,
    of_write, write_of,
};

/// A step that somebody takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A process.
    Holder(usize, HolderStep),
    /// A hostile process: it stores this into its lane.
    Forge(Forgery),
    /// The service.
    Service(ServiceStep),
    /// Somebody asks the service for the bytes of a range.
    Read(Range),
    /// Power is cut. Of each process a bit, whether the last record is there of which it did not
    /// know yet that it was durable.
    Cut(u8),
}

impl State {
    /// All steps that can be taken next.
    pub fn steps(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        for holder in 0..HOLDERS {
            let own = self.holder_steps(holder, bounds);
            steps.extend(own.into_iter().map(|step| Step::Holder(holder, step)));
        }
        steps.extend(self.forgeries(bounds).into_iter().map(Step::Forge));
        steps.extend(self.service_steps(bounds).into_iter().map(Step::Service));
        let may_read = self.reading.is_none() && self.spent.reads < bounds.reads;
        steps.extend([1, 2].into_iter().filter(|_| may_read).map(Step::Read));
        if self.spent.cuts < bounds.cuts {
            let at_risk = self.at_risk(bounds);
            let kept = (0..1 << HOLDERS).filter(|kept| kept & !at_risk == 0);
            steps.extend(kept.map(Step::Cut));
        }
    }

    /// What is there when this step has been taken, which is one of [`steps`](State::steps).
    pub fn take(&self, step: Step, bounds: &Bounds) -> State {
        let mut next = *self;
        match step {
            Step::Holder(holder, step) => next.take_holder(holder, step, bounds),
            Step::Forge(forgery) => next.forge(forgery, bounds),
            Step::Service(step) => next.take_service(step, bounds),
            Step::Read(range) => {
                let before = State::touching(self.acknowledged, range, bounds);
                next.reading = Some(Reading { range, before });
                next.spent.reads += 1;
            }
            Step::Cut(kept) => next.cut(kept, bounds),
        }
        if next.is_overtaken(self) {
            next.wrong = Some(Flaw::Overtaken);
        }
        next
    }
}
