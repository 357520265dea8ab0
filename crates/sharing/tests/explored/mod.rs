//! How a model is explored: all states that can be reached, breadth first.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model, Path};

/// What must be seen in some state, or an exploration shows nothing; and how it is known.
pub type Sight<M> = (&'static str, fn(&M, &<M as Model>::State) -> bool);

/// Visits all states and looks at each.
pub fn explore<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Clone + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Debug + Clone + PartialEq,
{
    let checker = model.checker().spawn_bfs().join();
    println!("{name}: {} different states", checker.unique_state_count());
    checker.assert_properties();
}

/// A shortest way to a state that something is wrong with.
pub fn notice<M>(model: M) -> Option<Path<M::State, M::Action>>
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Clone + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Debug + Clone + PartialEq,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    checker.discoveries().into_values().next()
}
