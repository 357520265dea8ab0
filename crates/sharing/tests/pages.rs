//! All that kernels with pages of a file, their server and the library can do, in any order.

mod explored;
mod of_machine;
mod pages_bounds;

use explored::{explore, notice};
use of_machine::Explored;
use pages_bounds::{
    BESIDE, BESIDE_CUT, BESIDE_KILL, BESIDE_OWN, BESIDE_WRITER, CUT, CUT_AND_OTHER, DIRECT, KILL,
    KILL_WRITES, KILL_WRITES_AGAIN, KILL_WRITES_BACK, LIBRARY, LONG, OTHERS, OWN_CUT, OWN_CUTS,
    TWO, TWO_CUTTERS, TWO_WRITERS, WHOLE, WHOLE_AND_CUT, WRITES, WRITES_AND_CUT, WRITES_BACK,
    WRITES_ZEROS,
};
use sharing::machine::Machine;
use sharing::pages::{
    Bounds, Call, Change, Fault, GivenPage, Invalidation, Kernel, PAGE_BYTES, Page, Phase, State,
    WriteBack,
};

type Seen = of_machine::Seen<State>;

const PROMISE: &str = "pages of kernels are coherent";

/// Something is so of a page of a kernel.
fn some_page(state: &State, is_so: impl Fn(&Page, &GivenPage) -> bool) -> bool {
    let pages = state.kernels.iter().zip(&state.given);
    let mut pages = pages.flat_map(|(kernel, given)| kernel.pages.iter().zip(given));
    pages.any(|(page, given)| is_so(page, given))
}

/// Something is so of a kernel's call.
fn some_call(state: &State, is_so: impl Fn(&Kernel, &Call) -> bool) -> bool {
    let mut kernels = state.kernels.iter();
    kernels.any(|kernel| kernel.call.is_some_and(|call| is_so(kernel, &call)))
}

const DIRTY: Seen = ("a dirty page is behind the file", |_, state| {
    some_page(state, |page, given| page.is_dirty && given.base.is_some())
});

const LAUNDERED: Seen = ("a notice waits for a write-back", |_, state| {
    state.kernels.iter().any(|it| matches!(it.invalidation, Invalidation::Laundering(_)))
});

const AGAIN: Seen = ("a page is there again when its notice is answered", |_, state| {
    state.kernels.iter().zip(&state.given).any(|(kernel, given)| match kernel.invalidation {
        Invalidation::Done(page) => {
            let (page, given) = (&kernel.pages[page], &given[page]);
            page.is_cached && given.is_touched && !given.is_owed
        }
        _ => false,
    })
});

const BOTH: Seen = ("two kernels have bases, and store", |_, state| {
    let is_at = |kernel: usize| {
        state.given[kernel][0].base.is_some() && state.kernels[kernel].pages[0].is_dirty
    };
    is_at(0) && is_at(1)
});

const ZEROS: Seen = ("a dirty page may have zeros where the file has bytes again", |_, state| {
    some_page(state, |page, given| {
        let may_be_cut = given.base.is_some_and(|it| usize::from(it.zeros_from) < PAGE_BYTES);
        page.is_dirty && may_be_cut && state.size > 1
    })
});

const DOUBT: Seen = ("a page lacks what its kernel wrote", |_, state| {
    let is_lacking = |kernel: &Kernel, call: &Call| {
        let is_made = matches!(call.phase, Phase::Waits(_) | Phase::Answered { .. });
        let page = &kernel.pages[0];
        is_made && call.is_in_doubt && page.is_cached && !page.bytes.contains(&call.value)
    };
    some_call(state, is_lacking)
});

const FILLED: Seen = ("a call waits for a READ that is beside its change", |_, state| {
    let calls = state.kernels.iter().flat_map(|it| [it.call, it.direct]).chain([state.library]);
    calls.flatten().any(|call| matches!(call.phase, Phase::Waits(waits) if waits.fills != 0))
});

const UNSEEN: Seen = ("a call is answered before its notices are", |_, state| {
    some_call(state, |_, call| matches!(call.phase, Phase::Answered { is_seen: false }))
});

const QUEUED: Seen = ("a notice waits for a write-back, and that for a truncation", |_, state| {
    state.kernels.iter().any(|kernel| match kernel.invalidation {
        Invalidation::Laundering(page) => {
            matches!(kernel.pages[page].write_back, WriteBack::Queued(_))
        }
        _ => false,
    })
});

const OWN: Seen = ("a direct write waits for a notice to its own kernel", |_, state| {
    let is_waiting = |call: Call| match call.phase {
        Phase::Waits(waits) => waits.next | waits.sent != 0,
        _ => false,
    };
    state.kernels[0].direct.is_some_and(is_waiting)
});

const STORED_AGAIN: Seen = ("what was there before is stored again", |_, state| {
    some_page(state, |page, _| page.is_dirty) && state.kernels[0].counts.stores_again > 0
});

const OWN_WRITE: Seen = ("a buffered write waits for a notice to its own kernel", |_, state| {
    some_call(state, |_, call| match call.phase {
        Phase::Waits(waits) => (waits.next | waits.sent) & 0b11 != 0,
        _ => false,
    })
});

const STORED: Seen = ("a write-back is sent again that was stored", |_, state| {
    some_page(state, |page, given| match page.write_back {
        WriteBack::Sent { is_stored, .. } => is_stored && given.base.is_some(),
        _ => false,
    })
});

const MADE: Seen = ("a write is sent again that was made", |_, state| {
    some_call(state, |_, call| {
        call.phase == Phase::SentAgain && matches!(call.change, Change::Write(_))
    })
});

const WHOLE_GIVEN: Seen = ("a page is given that was never read", |_, state| {
    let kernel = &state.kernels[0];
    state.given[0][0].is_given && kernel.counts.reads == 0 && kernel.pages[0].is_dirty
});

fn check(name: &str, bounds: Bounds, sights: &'static [Seen]) {
    explore(name, Explored { bounds, sights, promise: PROMISE });
}

#[test]
fn what_others_write_is_not_taken_back() {
    check("a kernel maps, the library writes", LIBRARY, &[DIRTY, LAUNDERED, AGAIN]);
    check("a kernel maps, another and the library write", OTHERS, &[DIRTY, LAUNDERED, AGAIN]);
    check("two kernels map", TWO, &[DIRTY, BOTH]);
}

#[test]
fn what_is_read_beside_a_change_is_gone_when_that_returns() {
    check("the library writes beside READs", BESIDE, &[DIRTY, FILLED]);
    check("the library cuts beside READs, a kernel writes", BESIDE_CUT, &[DIRTY, FILLED, ZEROS]);
    check("a kernel writes beside READs", BESIDE_WRITER, &[DIRTY, FILLED]);
    check("a kernel stores what it wrote over beside READs", BESIDE_OWN, &[STORED_AGAIN]);
    check("the library writes beside READs, the server is killed", BESIDE_KILL, &[DIRTY]);
}

#[test]
fn what_is_cut_does_not_come_back() {
    check("the library cuts", CUT, &[DIRTY, ZEROS]);
    check("the library cuts, a kernel writes", CUT_AND_OTHER, &[DIRTY, ZEROS]);
    check("a kernel cuts", OWN_CUT, &[DIRTY, ZEROS]);
    check("a kernel writes, the library cuts", WRITES_AND_CUT, &[DIRTY, ZEROS, DOUBT]);
}

#[test]
fn a_kernel_sees_what_it_writes() {
    check("a kernel maps and writes", WRITES, &[DIRTY, AGAIN, DOUBT]);
    check("a kernel writes whole pages", WHOLE, &[DIRTY, WHOLE_GIVEN]);
    check("a kernel writes whole pages, the library cuts", WHOLE_AND_CUT, &[DIRTY, ZEROS]);
    check("a kernel stores what it wrote over", WRITES_BACK, &[STORED_AGAIN, OWN_WRITE]);
    check("a kernel stores zeros over what it wrote", WRITES_ZEROS, &[STORED_AGAIN, OWN_WRITE]);
    check("a kernel writes past its pages", DIRECT, &[DIRTY, OWN]);
}

#[test]
fn two_kernels_do_not_wait_for_each_other() {
    check("two kernels write", TWO_WRITERS, &[UNSEEN]);
    check("two kernels cut", TWO_CUTTERS, &[UNSEEN, LAUNDERED, QUEUED]);
}

#[test]
fn a_killed_server_takes_nothing_back() {
    check("the server is killed", KILL, &[DIRTY, STORED]);
    check("the server is killed while a kernel writes", KILL_WRITES, &[DIRTY, MADE]);
    check("the same, which stores what it wrote over", KILL_WRITES_BACK, &[STORED_AGAIN, MADE]);
}

/// Some minutes, where `NEARSIDE_TESTS` is `long`, as `./test --all` has it.
#[test]
fn more_of_all() {
    if std::env::var_os("NEARSIDE_TESTS").is_some_and(|length| length == "long") {
        LONG.iter().for_each(|(name, bounds)| check(name, *bounds, &[]));
    }
}

const FAULTS: [(Fault, Bounds); 44] = [
    (Fault::WriteBackEndsZeros, CUT_AND_OTHER),
    (Fault::NoBases, LIBRARY),
    (Fault::ServerSendsNotices, LIBRARY),
    (Fault::HoldsRangeWhileWaiting, LIBRARY),
    (Fault::ReadWaits, LIBRARY),
    (Fault::WriteBackWaits, TWO),
    (Fault::LockedWriteWaits, TWO_WRITERS),
    (Fault::CutWaits, TWO_CUTTERS),
    (Fault::ReturnsEarly, LIBRARY),
    (Fault::MarksLate, LIBRARY),
    (Fault::MarksEarly, OTHERS),
    (Fault::ReadBesideNotWaitedFor, BESIDE),
    (Fault::ReadBesideNotNotified, BESIDE),
    (Fault::OwnReadBesideNotWaitedFor, BESIDE_OWN),
    (Fault::ReadBesideKeepsCut, BESIDE_CUT),
    (Fault::ReadKeepsBase, LIBRARY),
    (Fault::OldNoticeEndsBase, LIBRARY),
    (Fault::SecondChangeReplacesBase, OTHERS),
    (Fault::WritesWholePage, LIBRARY),
    (Fault::WritesBehindEnd, CUT),
    (Fault::WriteBackNotCounted, TWO),
    (Fault::BaseNotUpdated, OTHERS),
    (Fault::CutOffNotInBase, CUT),
    (Fault::CutOffNotNotified, CUT),
    (Fault::DirectNotCounted, DIRECT),
    (Fault::WriteNotInBase, WRITES),
    (Fault::WriteInBaseLate, KILL_WRITES),
    (Fault::WriteCountsAsOthers, WRITES),
    (Fault::DoubtedWriteReturns, WRITES_BACK),
    (Fault::ZeroedWriteReturns, WRITES_ZEROS),
    (Fault::WholeWriteNotGiven, WHOLE),
    (Fault::NoDoubt, WRITES),
    (Fault::DoubtByNumbers, WRITES),
    (Fault::CutKeepsNoBase, CUT),
    (Fault::CutWithoutZeros, CUT),
    (Fault::OwnCutNotCounted, OWN_CUTS),
    (Fault::BasesLost, KILL),
    (Fault::MarksLost, KILL),
    (Fault::DoubtLost, KILL_WRITES_AGAIN),
    (Fault::NoticesLost, KILL),
    (Fault::ChangesBeforeBase, KILL),
    (Fault::BaseBeforeStore, KILL),
    (Fault::SentAgainNotInBase, KILL),
    (Fault::StoredTwice, KILL),
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
