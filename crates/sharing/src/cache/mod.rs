//! The read cache: what a process has read, and reads again by itself.
//!
//! A range of two pages, which each write fills as a whole and each read reads as a whole. Each
//! process has a writing thread, which needs the lease of both pages; a thread that reads by
//! asking, and keeps what it was told; and one that reads what was kept. The service has a door of
//! its own that writes without a lease.

mod fault;
mod process;
mod service;
mod state;

pub use fault::Fault;
pub use process::ProcessStep;
pub use service::ServiceStep;
pub use state::{
    Asker, Bounds, PAGES, PROCESSES, Phase, Process, RangeUse, Reader, State, Told, WRITES, Writer,
};

use crate::story::Flaw;

/// A step that somebody takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A process.
    Process(usize, ProcessStep),
    /// The service.
    Service(ServiceStep),
}

impl State {
    /// The first thing that is wrong.
    pub fn flaw(&self) -> Option<Flaw> {
        self.story.flaw(&self.happened())
    }

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
