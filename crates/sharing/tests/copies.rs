//! All that processes and the service can do with copies of a range, in any order.

mod explored;
mod of_machine;

use explored::{explore, notice};
use of_machine::Explored;
use sharing::copies::{Bounds, Fault, Phase, Process, Reader, State, Writer};
use sharing::machine::Machine;

type Seen = of_machine::Seen<State>;

const PROMISE: &str = "reads and writes are linearizable";

const CHANGED: Seen = ("a reader finds his copy filled anew", |_, state| {
    state.processes.iter().any(|process| match process.reader {
        Reader::Copying { validity, .. } => process.is_valid() && process.validity != validity,
        _ => false,
    })
});

const LOCKED: Seen = ("a valid copy cannot be used: a thread is at a write", |_, state| {
    state.processes.iter().any(|process| process.is_valid() && process.writer != Writer::Idle)
});

const SEEN_BEFORE: Seen = ("a write was seen that has not returned", |_, state| {
    let is_seen = |content: u8| state.version(content).is_some_and(|it| it <= state.story.floor);
    let is_at = |process: &Process| match process.writer {
        Writer::Stored(content) | Writer::Unsure(content) => is_seen(content),
        _ => false,
    };
    state.processes.iter().any(is_at)
});

const LATE_PUT: Seen = ("a write is put into a copy when another has the lease", |_, state| {
    let is_at = |writer: Writer| matches!(writer, Writer::Happened(_) | Writer::Half(_));
    let another_has = |number: usize| state.granted.is_some_and(|owner| owner != number);
    (0..state.processes.len()).any(|it| is_at(state.processes[it].writer) && another_has(it))
});

const WITHOUT_SERVICE: Seen = ("a copy is read while the service is dead", |_, state| {
    let reads = |process: &Process| matches!(process.reader, Reader::Copying { .. });
    state.phase == Phase::Down && state.processes.iter().any(|it| reads(it) && it.is_valid())
});

const WRITES_WITHOUT_SERVICE: Seen = ("a write returns while the service is dead", |_, state| {
    let is_at = |process: &Process| matches!(process.writer, Writer::Half(_));
    state.phase == Phase::Down && state.processes.iter().any(is_at)
});

const OF_BOTH: Seen = ("both have written", |_, state| {
    let of = |number: u8| state.story.history.iter().any(|content| (content - 1) % 2 == number);
    of(0) && of(1)
});

/// Both write and read.
const BOTH: Bounds = Bounds {
    writes: [1, 1],
    reads: [1, 1],
    fills: [1, 1],
    grants: 1,
    kills: 0,
    crashes: 0,
    fault: None,
};
/// One writes, both read.
const READERS: Bounds = Bounds { writes: [2, 0], reads: [1, 2], fills: [1, 2], ..BOTH };
/// Both write, one reads.
const WRITERS: Bounds = Bounds { reads: [0, 2], fills: [0, 2], grants: 2, ..BOTH };
const READERS_AND_RETURN: Bounds = Bounds { reads: [1, 1], crashes: 1, ..READERS };
const WRITERS_AND_RETURN: Bounds = Bounds { crashes: 1, grants: 1, ..WRITERS };
const DEATH: Bounds = Bounds { kills: 1, grants: 1, ..BOTH };
const DEATH_AND_RETURN: Bounds = Bounds { reads: [1, 0], crashes: 1, ..DEATH };

fn check(name: &str, bounds: Bounds, sights: &'static [Seen]) {
    explore(name, Explored { bounds, sights, promise: PROMISE });
}

#[test]
fn one_writes() {
    check("one writes, both read", READERS, &[CHANGED, LOCKED, SEEN_BEFORE]);
    let sights = &[CHANGED, LOCKED, SEEN_BEFORE, WITHOUT_SERVICE, WRITES_WITHOUT_SERVICE];
    check("one writes, and return", READERS_AND_RETURN, sights);
}

#[test]
fn one_reads() {
    check("both write, one reads", WRITERS, &[CHANGED, LOCKED, SEEN_BEFORE, LATE_PUT, OF_BOTH]);
    let sights = &[CHANGED, LATE_PUT, OF_BOTH, WITHOUT_SERVICE, WRITES_WITHOUT_SERVICE];
    check("both write, and return", WRITERS_AND_RETURN, sights);
}

#[test]
fn both_write_and_read() {
    check("both write and read, and death", DEATH, &[LOCKED, SEEN_BEFORE, LATE_PUT, OF_BOTH]);
    let sights = &[LOCKED, LATE_PUT, OF_BOTH, WITHOUT_SERVICE, WRITES_WITHOUT_SERVICE];
    check("the same, and return", DEATH_AND_RETURN, sights);
}

const FAULTS: [(Fault, Bounds); 13] = [
    (Fault::GrantsOverCopies, BOTH),
    (Fault::ForgetsCopies, WRITERS_AND_RETURN),
    (Fault::FillsLeased, BOTH),
    (Fault::FillsUnfolded, BOTH),
    (Fault::FillsLocked, WRITERS),
    (Fault::TakesBytesFirst, BOTH),
    (Fault::ValidBeforeBytes, BOTH),
    (Fault::NoCount, WRITERS),
    (Fault::NoSecondLook, BOTH),
    (Fault::NoLock, BOTH),
    (Fault::PutsBeforeLook, BOTH),
    (Fault::ReturnsBeforePutting, BOTH),
    (Fault::NoPutWhenTold, BOTH),
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
