//! Regions of attached processes: copies that are loaded from without a look at anything.
//!
//! One page. Each process has a thread that commits to it under a lease, and stores what it
//! committed into its copy by itself; one that loads from the copy; and one that serves its faults.
//! The service has a door that writes without a lease and stores into the copies; and another one
//! may own the pool, upon which processes hide what they have, and have copies made anew.
//!
//! A load promises less than a read: what had returned is seen, to whomever, what never happened is
//! not, and no process goes back in time.

mod fault;
mod process;
mod service;
mod state;

pub use fault::Fault;
pub use process::ProcessStep;
pub use service::ServiceStep;
pub use state::{Bounds, Flaw, PROCESSES, Phase, Process, RangeUse, State, WRITES, Writer};

/// A step that somebody takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A process.
    Process(usize, ProcessStep),
    /// The service.
    Service(ServiceStep),
}

impl State {
    /// All steps that can be taken next.
    pub fn steps(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        for number in 0..PROCESSES {
            let own = self.process_steps(number, bounds);
            steps.extend(own.into_iter().map(|step| Step::Process(number, step)));
        }
        steps.extend(self.service_steps(bounds).into_iter().map(Step::Service));
    }

    /// What is there when this step has been taken, which is one of [`steps`](State::steps).
    pub fn take(&self, step: Step, bounds: &Bounds) -> State {
        let mut next = *self;
        match step {
            Step::Process(number, step) => next.take_process(number, step, bounds),
            Step::Service(step) => next.take_service(step, bounds),
        }
        next
    }
}
