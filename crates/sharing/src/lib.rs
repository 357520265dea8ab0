//! How processes share a pool: leases and lanes, step by step.
//!
//! The service owns the pool. A process that is attached to it has a lane, memory in which it
//! stores records by itself, without asking anybody, as long as it holds a lease. The service folds
//! them into its own log. When another one wants the lease it is recalled, and a holder that does
//! not answer is fenced: whatever he is at.
//!
//! This is the protocol as docs/SHARING.md describes it, as a machine of steps: of each process and
//! of the service any step that it may take, in any order, with deaths and restarts in between. The
//! tests of this crate take all of them. It moves no bytes: what is built on it comes above it.
//!
//! What is left out: ranges (two holders want the same one), the bytes of records, and power cuts.
//! What a processor may do to the order of stores and loads is in it: a store waits in the buffer
//! of its processor, where nobody else sees it, until it drains or a fence has it drain.

mod fault;
mod holder;
mod properties;
mod service;
mod state;

pub use fault::Fault;
pub use holder::HolderStep;
pub use properties::{Flaw, flaw, is_stuck};
pub use service::ServiceStep;
pub use state::{Bounds, Doing, HOLDERS, Holder, Record, Service, State, Write};

/// A step that somebody takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A process.
    Holder(usize, HolderStep),
    /// The service.
    Service(ServiceStep),
}

impl State {
    /// All steps that can be taken next.
    pub fn steps(&self, bounds: &Bounds) -> Vec<Step> {
        let mut steps = Vec::new();
        for holder in 0..HOLDERS {
            let own = self.holder_steps(holder, bounds);
            steps.extend(own.into_iter().map(|step| Step::Holder(holder, step)));
        }
        steps.extend(self.service_steps(bounds).into_iter().map(Step::Service));
        steps
    }

    /// What is there when this step has been taken, which is one of [`steps`](State::steps).
    pub fn take(&self, step: Step, bounds: &Bounds) -> State {
        let mut next = self.clone();
        match step {
            Step::Holder(holder, step) => next.take_holder(holder, step),
            Step::Service(step) => next.take_service(step, bounds),
        }
        next
    }
}
