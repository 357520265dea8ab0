//! All that processes and the service can do with read caches, in any order.

mod explored;
mod of_machine;

use explored::{explore, notice};
use of_machine::Explored;
use sharing::cache::{Bounds, Fault, PAGES, Phase, RangeUse, Reader, State, Writer};
use sharing::machine::Machine;

type Seen = of_machine::Seen<State>;

const PROMISE: &str = "reads and writes are linearizable";

/// A read from the cache is about to be over, and all that it goes by is so.
fn is_reading(state: &State) -> bool {
    state.processes.iter().any(|process| match process.reader {
        Reader::LookingAgain { looked, .. } => looked == PAGES && process.is_ruled,
        _ => false,
    })
}

const READ: Seen = ("a page is read from the cache", |_, state| is_reading(state));

const REFILLED: Seen = ("a reader finds a page put there anew", |_, state| {
    state.processes.iter().any(|process| match process.reader {
        Reader::LookingAgain { told, looked: 0, .. } => {
            process.counts[0] % 2 == 1 && process.counts[0] != told[0].count
        }
        _ => false,
    })
});

const OWN: Seen = ("the lease's holder reads its cache, and writes meanwhile", |_, state| {
    state.processes.iter().any(|process| {
        matches!(process.writer, Writer::Stored(_))
            && matches!(process.reader, Reader::LookingAgain { .. })
    })
});

const BETWEEN: Seen = ("a page is there, and the other one was told of", |_, state| {
    let is_torn = |counts: [u8; PAGES]| counts[0].is_multiple_of(2) && counts[1] % 2 == 1;
    matches!(state.range, RangeUse::Door(1))
        && state.processes.iter().any(|process| is_torn(process.counts))
});

const DEAD: Seen = ("the cache is read while the service is dead", |_, state| {
    state.phase == Phase::Down && is_reading(state)
});

const OVER: Seen = ("a read is over when another one owns the pool", |_, state| {
    state.phase != Phase::Down
        && state.processes.iter().any(|process| {
            !process.is_ruled && matches!(process.reader, Reader::LookingAgain { .. })
        })
});

/// One reads, the door reads and writes.
const DOOR: Bounds = Bounds {
    writes: [0, 0],
    door_writes: 2,
    door_reads: 1,
    reads: [2, 0],
    asks: [2, 1],
    grants: 0,
    crashes: 0,
    fault: None,
};
/// One reads, the other one writes under a lease.
const OTHER: Bounds =
    Bounds { writes: [0, 1], door_writes: 1, reads: [1, 0], asks: [2, 1], grants: 1, ..DOOR };
/// One reads, and writes under a lease.
const ITSELF: Bounds =
    Bounds { writes: [2, 0], door_writes: 1, reads: [1, 0], asks: [2, 0], grants: 1, ..DOOR };
/// Both write under leases.
const BOTH: Bounds = Bounds { writes: [1, 1], door_writes: 0, ..ITSELF };
const DOOR_AND_RETURN: Bounds = Bounds { crashes: 1, asks: [2, 0], ..DOOR };
const ITSELF_AND_RETURN: Bounds = Bounds { writes: [1, 0], crashes: 1, ..ITSELF };

fn check(name: &str, bounds: Bounds, sights: &'static [Seen]) {
    explore(name, Explored { bounds, sights, promise: PROMISE });
}

#[test]
fn the_door_writes() {
    check("one reads, the door writes", DOOR, &[READ, REFILLED, BETWEEN]);
    check("the same, and return", DOOR_AND_RETURN, &[READ, DEAD, OVER]);
}

#[test]
fn another_one_writes() {
    check("one reads, the other writes", OTHER, &[READ, BETWEEN]);
    check("one reads, both write", BOTH, &[READ, OWN]);
}

#[test]
fn it_writes_itself() {
    check("one reads and writes", ITSELF, &[READ, OWN, REFILLED]);
    check("the same, and return", ITSELF_AND_RETURN, &[READ, DEAD, OVER]);
}

const FAULTS: [(Fault, Bounds); 14] = [
    (Fault::TellsLate, DOOR),
    (Fault::GrantsOverPages, OTHER),
    (Fault::PutsLeased, OTHER),
    (Fault::PutsUnfolded, ITSELF),
    (Fault::ReadsBeforeRange, DOOR),
    (Fault::NoCount, DOOR),
    (Fault::NoNumbers, ITSELF),
    (Fault::NumbersLate, ITSELF),
    (Fault::KeepsUnderWay, ITSELF),
    (Fault::NotesLate, ITSELF),
    (Fault::NoSecondLook, DOOR),
    (Fault::LooksPageByPage, DOOR),
    (Fault::NoReign, DOOR_AND_RETURN),
    (Fault::ReignsLate, DOOR_AND_RETURN),
];

#[test]
fn canary_each_fault_is_noticed() {
    for (fault, bounds) in FAULTS {
        let bounds = Bounds { fault: Some(fault), ..bounds };
        let path = notice(Explored::<State> { bounds, sights: &[], promise: PROMISE });
        let path = path.unwrap_or_else(|| panic!("{fault:?} is not noticed"));
        println!("{fault:?}: {:?}, after {:?}", path.last_state().wrong(), path.into_actions());
    }
}
