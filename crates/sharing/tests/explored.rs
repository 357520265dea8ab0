//! All that two processes and the service can do, in any order, with deaths in between.

use sharing::{Bounds, Doing, Fault, HOLDERS, Service, State, Step, flaw, is_stuck};
use stateright::{Checker, Model, Property};

struct Explored(Bounds);

impl Model for Explored {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.0)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        actions.extend(state.steps(&self.0));
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(state.take(step, &self.0))
    }

    fn properties(&self) -> Vec<Property<Explored>> {
        vec![
            Property::<Explored>::always(SOUND, |_, state| flaw(state).is_none()),
            Property::<Explored>::always(GOES_ON, |model, state| !is_stuck(state, &model.0)),
            Property::<Explored>::sometimes("a fenced one's last write happened", |_, state| {
                (0..HOLDERS).any(|number| match state.holders[number].doing {
                    Doing::Unsure(write) => state.history.contains(&write),
                    _ => false,
                })
            }),
            Property::<Explored>::sometimes("a fenced one's last write did not", |_, state| {
                state.refused != 0
            }),
            Property::<Explored>::sometimes("one is fenced behind its fence", |_, state| {
                (0..HOLDERS).any(|number| {
                    let holder = &state.holders[number];
                    matches!(holder.doing, Doing::Fenced(_))
                        && state.words[number] != holder.generation
                })
            }),
            Property::<Explored>::sometimes(
                "a record comes after its lane was read",
                |_, state| {
                    (0..HOLDERS).any(|number| {
                        let behind = state.holders[number].lane.len() > state.folded[number];
                        behind && state.service == Service::Free
                    })
                },
            ),
            Property::<Explored>::sometimes("all that was to be written is", |_, state| {
                state.history.len() == state.before.len()
            }),
        ]
    }
}

const SOUND: &str = "nothing is lost, made twice, out of order, stale, or lied about";
const GOES_ON: &str = "who waits gets the lease, whatever the other one does";

/// How far is explored: what happens late is much like what happened before.
const CASES: [Bounds; 3] = [
    Bounds { writes: 2, grants: 2, deaths: 0, crashes: 0, fault: None },
    Bounds { writes: 1, grants: 2, deaths: 1, crashes: 1, fault: None },
    Bounds { writes: 2, grants: 2, deaths: 1, crashes: 1, fault: None },
];

#[test]
fn whatever_processes_and_service_do_nothing_acknowledged_is_lost() {
    for bounds in CASES {
        let checker = Explored(bounds).checker().spawn_bfs().join();
        println!("{bounds:?}: {} different states", checker.unique_state_count());
        checker.assert_properties();
    }
}

#[test]
fn each_fault_of_the_protocol_is_noticed() {
    for fault in Fault::ALL {
        let found = CASES.iter().find_map(|bounds| {
            let model = Explored(Bounds { fault: Some(fault), ..*bounds });
            model.checker().spawn_bfs().join().discovery(SOUND)
        });
        let path = found.unwrap_or_else(|| panic!("{fault:?} is not noticed"));
        println!("{fault:?}: {:?}, after {:?}", flaw(path.last_state()), path.into_actions());
    }
}
