//! Machines of steps that processes and the service take, in any order.

use std::fmt::Debug;
use std::hash::Hash;

/// A step that somebody takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step<P, S> {
    /// A process.
    Process(usize, P),
    /// The service.
    Service(S),
}

/// The steps of a machine.
pub type StepOf<M> = Step<<M as Machine>::ProcessStep, <M as Machine>::ServiceStep>;

/// All that there is at one time, and what can be next.
pub trait Machine: Copy + PartialEq + Hash + Debug + Default + Send + Sync + 'static {
    /// How far is explored.
    type Bounds: Copy + Send + Sync + 'static;
    /// A step of a process.
    type ProcessStep: Copy + PartialEq + Debug;
    /// A step of the service.
    type ServiceStep: Copy + PartialEq + Debug;
    /// Processes.
    const PROCESSES: usize;

    /// The steps that this process can take next.
    fn of_process(&self, number: usize, bounds: &Self::Bounds) -> Vec<Self::ProcessStep>;

    /// The steps that the service can take next.
    fn of_service(&self, bounds: &Self::Bounds) -> Vec<Self::ServiceStep>;

    /// What is there when one of its [`steps`](Machine::steps) has been taken.
    fn take(&self, step: StepOf<Self>, bounds: &Self::Bounds) -> Self;

    /// The first thing that is wrong, in words.
    fn wrong(&self) -> Option<String>;

    /// All steps that can be taken next.
    fn steps(&self, bounds: &Self::Bounds, steps: &mut Vec<StepOf<Self>>) {
        for number in 0..Self::PROCESSES {
            let own = self.of_process(number, bounds);
            steps.extend(own.into_iter().map(|step| Step::Process(number, step)));
        }
        steps.extend(self.of_service(bounds).into_iter().map(Step::Service));
    }
}

/// The machine `$state` by its own methods of the steps.
macro_rules! machine {
    ($state:ty, $bounds:ty, $processes:expr, $process_step:ty, $service_step:ty, $wrong:expr) => {
        impl crate::machine::Machine for $state {
            type Bounds = $bounds;
            type ProcessStep = $process_step;
            type ServiceStep = $service_step;
            const PROCESSES: usize = $processes;

            fn of_process(&self, number: usize, bounds: &$bounds) -> Vec<$process_step> {
                self.process_steps(number, bounds)
            }

            fn of_service(&self, bounds: &$bounds) -> Vec<$service_step> {
                self.service_steps(bounds)
            }

            fn take(&self, step: crate::machine::StepOf<$state>, bounds: &$bounds) -> $state {
                let mut next = *self;
                match step {
                    crate::machine::Step::Process(number, step) => {
                        next.take_process(number, step, bounds);
                    }
                    crate::machine::Step::Service(step) => next.take_service(step, bounds),
                }
                next
            }

            fn wrong(&self) -> Option<String> {
                $wrong(self).map(|flaw| format!("{flaw:?}"))
            }
        }
    };
}

pub(crate) use machine;
