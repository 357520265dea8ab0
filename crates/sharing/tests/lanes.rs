//! All that processes and the service can do with leases and lanes, in any order.

mod explored;
mod lanes_sights;

use explored::{explore, notice};
use lanes_sights::*;
use sharing::lanes::{Bounds, Fault, State, Step, flaw, is_stuck};
use stateright::{Model, Property};

/// What is explored, and what must be seen in it.
pub struct Explored {
    bounds: Bounds,
    sights: &'static [Seen],
}

type Seen = explored::Sight<Explored>;

impl Model for Explored {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        state.steps(&self.bounds, actions);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(state.take(step, &self.bounds))
    }

    fn properties(&self) -> Vec<Property<Explored>> {
        let always = [
            Property::<Explored>::always("nothing is wrong with any state", |model, state| {
                flaw(state, &model.bounds).is_none()
            }),
            Property::<Explored>::always("who waits comes nearer to his leases", |model, state| {
                !is_stuck(state, &model.bounds)
            }),
        ];
        let sights = self.sights.iter();
        let sights = sights.map(|(name, seen)| Property::<Explored>::sometimes(name, *seen));
        always.into_iter().chain(sights).collect()
    }
}

/// One has a lease, the other one wants it and more.
const ONE_LEASE: Bounds = Bounds {
    wishes: [&[[1, 0]], &[[3, 0]], &[]],
    writes: [&[1, 1], &[3], &[]],
    grants: 2,
    ..Bounds::NONE
};
/// One writes under two leases at once, the other one wants all of it.
const TWO_LEASES: Bounds =
    Bounds { wishes: [&[[1, 0], [0, 2]], &[[3, 0]], &[]], writes: [&[3], &[3], &[]], ..ONE_LEASE };
/// It asks for them together.
const TOGETHER: Bounds = Bounds { wishes: [&[[1, 2]], &[[3, 0]], &[]], ..TWO_LEASES };
/// It asks for them together or one by one, and writes under one of them, too.
const OVERLAP: Bounds = Bounds {
    wishes: [&[[1, 0], [0, 2], [1, 2]], &[[3, 0]], &[]],
    writes: [&[3, 1], &[3], &[]],
    ..TWO_LEASES
};
/// One has a lease, and wants one of more than that.
const WIDER: Bounds = Bounds { wishes: [&[[1, 0], [0, 3]], &[[3, 0]], &[]], ..TWO_LEASES };
/// Two that do not want the same, and one who wants both.
const THREE: Bounds = Bounds {
    wishes: [&[[1, 0]], &[[2, 0]], &[[3, 0]]],
    writes: [&[1], &[2], &[3]],
    grants: 1,
    kills: 1,
    crashes: 1,
    ..ONE_LEASE
};
const READS: Bounds = Bounds { reads: 1, crashes: 1, ..ONE_LEASE };
const LAPS: Bounds = Bounds { places: 1, writes: [&[1, 1, 1], &[3], &[]], crashes: 1, ..ONE_LEASE };
const SLOW: Bounds = Bounds { is_slow: true, ..TOGETHER };
const RETURN: Bounds = Bounds { crashes: 2, ..TOGETHER };
const DEATH: Bounds = Bounds { crashes: 1, kills: 1, ..ONE_LEASE };
const LOSS: Bounds = Bounds { crashes: 1, losses: 1, ..ONE_LEASE };
const CUT: Bounds = Bounds { cuts: 1, ..TOGETHER };
const CUT_AND_RETURN: Bounds = Bounds { cuts: 1, crashes: 1, ..ONE_LEASE };
/// The first one is hostile.
const HOSTILE: Bounds = Bounds { forgeries: 2, places: 1, is_slow: true, ..ONE_LEASE };
const HOSTILE_WITH_TWO: Bounds = Bounds {
    wishes: [&[[1, 2]], &[[3, 0]], &[]],
    writes: [&[3], &[3], &[]],
    grants: 1,
    places: 2,
    ..HOSTILE
};
const HOSTILE_AND_RETURN: Bounds = Bounds { crashes: 1, grants: 1, ..HOSTILE };

fn check(name: &str, bounds: Bounds, sights: &'static [Seen]) {
    explore(name, Explored { bounds, sights });
}

#[test]
fn one_lease() {
    let sights = &[CLOSED_BEHIND, HAPPENED, REFUSED, LATE, ALL_WRITTEN];
    check("one lease", ONE_LEASE, sights);
}

#[test]
fn ranges_that_overlap() {
    let sights = &[CLOSED_BEHIND, HAPPENED, REFUSED, LATE, ONE_OF_TWO, ALL_WRITTEN];
    check("ranges that overlap", OVERLAP, sights);
}

#[test]
fn a_wider_range() {
    check("a wider range", WIDER, &[HAPPENED, REFUSED, ALL_WRITTEN]);
}

#[test]
fn three_who_wait() {
    check("three who wait", THREE, &[ALL_WAIT, HAPPENED, REFUSED, ALL_WRITTEN]);
}

#[test]
fn reads_of_what_is_leased() {
    check("reads", READS, &[MUST_FOLD, ALL_WRITTEN]);
}

#[test]
fn laps_of_a_lane() {
    check("laps", LAPS, &[NEXT_LAP, ALL_WRITTEN]);
}

#[test]
fn others_between_a_copy_and_its_folding() {
    check("slow folding", SLOW, &[HAPPENED, REFUSED, LATE, ALL_WRITTEN]);
}

#[test]
fn the_service_dies_and_returns() {
    check("return", RETURN, &[WITHOUT_SERVICE, HAPPENED, REFUSED, LATE, ALL_WRITTEN]);
}

#[test]
fn a_process_and_the_service_die() {
    check("death", DEATH, &[WITHOUT_SERVICE, HAPPENED, REFUSED, LATE, OF_NEW, ALL_WRITTEN]);
}

#[test]
fn connections_are_lost() {
    check("loss", LOSS, &[WITHOUT_SERVICE, HAPPENED, REFUSED, OLD, OF_NEW, ALL_WRITTEN]);
}

#[test]
fn power_is_cut() {
    check("power cut", CUT, &[TORN, SURVIVES, OF_NEW, ALL_WRITTEN]);
    check("power cut and return", CUT_AND_RETURN, &[TORN, SURVIVES, OF_NEW, ALL_WRITTEN]);
}

#[test]
fn a_hostile_process() {
    check("hostile", HOSTILE, &[OF_HOSTILE, SKIPPED, HAPPENED, REFUSED]);
    check("hostile with two leases", HOSTILE_WITH_TWO, &[OF_HOSTILE, SKIPPED]);
    check("hostile and return", HOSTILE_AND_RETURN, &[OF_HOSTILE, SKIPPED, HAPPENED, REFUSED]);
}

const FAULTS: [(Fault, Bounds); 28] = [
    (Fault::NoFence, ONE_LEASE),
    (Fault::NoFlush, CUT),
    (Fault::LooksAtOneWord, OVERLAP),
    (Fault::Overwrites, LAPS),
    (Fault::ReadsBeforeClosing, ONE_LEASE),
    (Fault::ReadsTwice, HOSTILE),
    (Fault::JudgesEarly, SLOW),
    (Fault::AnyGeneration, ONE_LEASE),
    (Fault::OneLeaseIsEnough, OVERLAP),
    (Fault::AnyRange, HOSTILE),
    (Fault::AnyRequest, HOSTILE),
    (Fault::NoChecksum, CUT),
    (Fault::NoChecksum, HOSTILE),
    (Fault::NoLap, LAPS),
    (Fault::NoSeed, DEATH),
    (Fault::FoldsOneLease, OVERLAP),
    (Fault::ForgetsFolded, DEATH),
    (Fault::ForgetsLeases, RETURN),
    (Fault::TellsBeforeWriting, RETURN),
    (Fault::FreesBeforeFolding, ONE_LEASE),
    (Fault::AnswersEarly, ONE_LEASE),
    (Fault::ReadsUnfolded, READS),
    (Fault::GivesOverlapping, OVERLAP),
    (Fault::OutOfTurn, THREE),
    (Fault::WaitsForGivingBack, ONE_LEASE),
    (Fault::ClosesAll, OVERLAP),
    (Fault::GenerationsAnew, LOSS),
    (Fault::LaneGivenOn, LOSS),
];

#[test]
fn canary_each_fault_is_noticed() {
    for (fault, bounds) in FAULTS {
        let bounds = Bounds { fault: Some(fault), ..bounds };
        let path = notice(Explored { bounds, sights: &[] });
        let path = path.unwrap_or_else(|| panic!("{fault:?} is not noticed"));
        let last = *path.last_state();
        let (flaw, is_stuck) = (flaw(&last, &bounds), is_stuck(&last, &bounds));
        println!("{fault:?}: {flaw:?}, stuck: {is_stuck}, after {:?}", path.into_actions());
    }
}
