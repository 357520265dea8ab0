//! A machine as a model to be explored.

use sharing::machine::{Machine, StepOf};
use stateright::{Model, Property};

use crate::explored;

/// A machine, how far it is explored, and what must be seen in it.
pub struct Explored<M: Machine> {
    /// How far.
    pub bounds: M::Bounds,
    /// What must be seen.
    pub sights: &'static [Seen<M>],
    /// What is so in every state.
    pub promise: &'static str,
}

pub type Seen<M> = explored::Sight<Explored<M>>;

impl<M: Machine> Model for Explored<M> {
    type State = M;
    type Action = StepOf<M>;

    fn init_states(&self) -> Vec<M> {
        vec![M::default()]
    }

    fn actions(&self, state: &M, actions: &mut Vec<StepOf<M>>) {
        state.steps(&self.bounds, actions);
    }

    fn next_state(&self, state: &M, step: StepOf<M>) -> Option<M> {
        Some(state.take(step, &self.bounds))
    }

    fn properties(&self) -> Vec<Property<Explored<M>>> {
        let is_sound = |_: &Explored<M>, state: &M| state.wrong().is_none();
        let sound = Property::<Explored<M>>::always(self.promise, is_sound);
        let sights = self.sights.iter();
        let sights = sights.map(|(name, seen)| Property::<Explored<M>>::sometimes(name, *seen));
        [sound].into_iter().chain(sights).collect()
    }
}
