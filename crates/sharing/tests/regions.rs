//! All that processes and the service can do with copies of regions, in any order.

mod explored;
mod of_machine;

use explored::{explore, notice};
use of_machine::Explored;
use sharing::machine::Machine;
use sharing::regions::{Bounds, Fault, Phase, RangeUse, State, Writer};

type Seen = of_machine::Seen<State>;

const PROMISE: &str = "loads see what returned";

const LATE: Seen = ("a commit is to be stored when another one has the lease", |_, state| {
    let another_has = |number: usize| state.granted.is_some_and(|owner| owner != number);
    (0..state.processes.len())
        .any(|it| matches!(state.processes[it].writer, Writer::Happened(_)) && another_has(it))
});

const OWN: Seen = ("the holder has the page, and what it stored is not folded", |_, state| {
    let has = |owner: usize| {
        let process = &state.processes[owner];
        process.page.is_some() && !process.lane.is_empty()
    };
    state.granted.is_some_and(has)
});

const BEHIND: Seen =
    ("a page is behind what can be seen, and nothing returned so far", |_, state| {
        let bytes = state.history.last().copied().unwrap_or(0);
        let is_behind = |page: Option<u8>| page.is_some_and(|page| page != bytes);
        state.range == RangeUse::Door && state.processes.iter().any(|it| is_behind(it.page))
    });

const ANEW: Seen = ("a page is there of the next service", |_, state| {
    state.crashes == 1
        && state.phase != Phase::Down
        && state.processes.iter().any(|it| it.is_attached && it.page.is_some())
});

/// Both load, one commits, and the door writes.
const DOOR: Bounds =
    Bounds { writes: [1, 0], door_writes: 1, loads: [2, 2], grants: 1, crashes: 0, fault: None };
/// Both commit and load.
const BOTH: Bounds = Bounds { writes: [2, 1], door_writes: 0, grants: 2, ..DOOR };
const RETURN: Bounds = Bounds { writes: [1, 1], crashes: 1, ..DOOR };

fn check(name: &str, bounds: Bounds, sights: &'static [Seen]) {
    explore(name, Explored { bounds, sights, promise: PROMISE });
}

#[test]
fn loads_see_what_returned() {
    check("one commits, the door writes", DOOR, &[OWN, BEHIND]);
    check("both commit", BOTH, &[OWN, LATE]);
    check("both commit, the door writes, and return", RETURN, &[OWN, LATE, ANEW]);
}

const FAULTS: [(Fault, Bounds); 12] = [
    (Fault::GrantsOverPages, BOTH),
    (Fault::KeepsPageAtTheEnd, DOOR),
    (Fault::BringsLeased, BOTH),
    (Fault::BringsUnfolded, BOTH),
    (Fault::BringsOld, DOOR),
    (Fault::BringsLocked, BOTH),
    (Fault::TellsHolderOfFolds, BOTH),
    (Fault::StoresBeforeLook, BOTH),
    (Fault::ReturnsBeforeStoring, BOTH),
    (Fault::NoStoreWhenTold, BOTH),
    (Fault::DoorReturnsEarly, DOOR),
    (Fault::ShowsOn, RETURN),
];

#[test]
fn canary_each_fault_is_noticed() {
    for (fault, bounds) in FAULTS {
        let bounds = Bounds { fault: Some(fault), ..bounds };
        let path = notice(Explored::<State> { bounds, sights: &[], promise: PROMISE });
        let path = path.unwrap_or_else(|| panic!("{fault:?} is not noticed"));
        let wrong = path.last_state().wrong();
        println!("{fault:?}: {wrong:?}, after {:?}", path.into_actions());
    }
}
