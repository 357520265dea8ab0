//! Whoever takes credit, in whatever order: no more is held than there is, and all have their turn.

use std::sync::atomic::AtomicUsize;

use super::*;
use proptest::prelude::*;

const BYTES_MAX: usize = 1000;

/// One that holds credit, or waits for it.
#[derive(Debug)]
struct One {
    number: u64,
    user: u32,
    is_closed: AtomicBool,
    went_on: AtomicUsize,
    was_broken_off: AtomicBool,
}

impl Holds for One {
    fn number(&self) -> u64 {
        self.number
    }

    fn user(&self) -> u32 {
        self.user
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn go_on(&self) {
        self.went_on.fetch_add(1, Ordering::SeqCst);
    }

    fn break_off(&self, _why: &dyn std::fmt::Display) {
        self.was_broken_off.store(true, Ordering::SeqCst);
    }
}

impl One {
    fn went_on(&self) -> usize {
        self.went_on.load(Ordering::SeqCst)
    }

    fn was_broken_off(&self) -> bool {
        self.was_broken_off.load(Ordering::SeqCst)
    }
}

fn one(number: u64, user: u32) -> Arc<One> {
    Arc::new(One {
        number,
        user,
        is_closed: AtomicBool::new(false),
        went_on: AtomicUsize::new(0),
        was_broken_off: AtomicBool::new(false),
    })
}

fn credit(patience: Duration) -> Credit<One> {
    Credit::new(BYTES_MAX, patience).unwrap()
}

#[test]
fn who_waits_goes_on_in_turn() {
    let credit = credit(Duration::MAX);
    let root: Vec<_> = (0..4).map(|number| one(number, 0)).collect();
    assert!(credit.take(&root[0], 600));
    assert!(!credit.take(&root[1], 500), "there is no more");
    assert!(!credit.take(&root[2], 100), "there is, but who came first has it first");
    assert!(!credit.take(&root[1], 500) && credit.is_waited_for(), "it waits once");
    credit.give_back(&root[0]);
    assert_eq!((root[1].went_on(), root[2].went_on(), credit.used()), (1, 1, 600));
    assert!(credit.take(&root[1], 500) && credit.take(&root[2], 100) && !credit.is_waited_for());
    credit.forget(1);
    credit.forget(2);
    assert!(credit.take(&root[3], 5000), "a frame that is alone always has its turn");
    credit.forget(3);
    assert_eq!(credit.used(), 0);
}

#[test]
fn a_user_has_a_share() {
    let credit = credit(Duration::MAX);
    let (his, also_his, hers) = (one(1, 7), one(2, 7), one(3, 8));
    assert!(credit.take(&his, 400));
    assert!(!credit.take(&also_his, 200), "it would be more than half");
    assert!(credit.take(&hers, 500), "which holds up nobody else");
    credit.keep(&his, 200);
    assert!(!credit.may_serve(&one(4, 7)) && !credit.may_serve(&hers), "all have enough");
    credit.forget(3);
    assert_eq!(hers.went_on(), 0, "it has ended, and waits no more");
    assert!(credit.may_serve(&one(5, 8)) && !credit.may_serve(&also_his));
    credit.forget(1);
    assert_eq!((also_his.went_on(), credit.used()), (1, 200));
}

/// What it was given may be all that there is: it does not stand in its own way.
#[test]
fn who_was_given_what_it_waited_for_goes_on_with_it() {
    let credit = credit(Duration::MAX);
    let (first, waits) = (one(1, 0), one(2, 0));
    assert!(credit.take(&first, 1000) && !credit.take(&waits, 1000));
    credit.give_back(&first);
    assert_eq!((waits.went_on(), credit.used()), (1, 1000));
    assert!(!credit.may_serve(&first), "there is no more of it");
    assert!(credit.may_serve(&waits) && credit.take(&waits, 1000));
    assert!(!credit.may_serve(&waits), "it has begun");
}

#[test]
fn who_has_ended_holds_nothing() {
    let credit = credit(Duration::MAX);
    let gone = one(1, 0);
    gone.is_closed.store(true, Ordering::SeqCst);
    assert!(!credit.take(&gone, 10) && !credit.is_waited_for());
    credit.keep(&gone, 700);
    assert_eq!(credit.used(), 0);
    let (here, waits) = (one(2, 0), one(3, 0));
    assert!(credit.take(&here, 1000) && !credit.take(&waits, 1000));
    drop(waits);
    credit.give_back(&here);
    assert!(credit.used() == 0 && !credit.is_waited_for());
}

#[test]
fn the_slow_make_room_for_those_who_wait() {
    let credit = credit(Duration::ZERO);
    let (slow, other, waits) = (one(1, 7), one(2, 8), one(3, 7));
    assert!(credit.take(&slow, 400) && credit.take(&other, 400));
    assert_eq!(credit.end_overdue(), None, "nobody waits");
    assert!(!credit.take(&waits, 400));
    assert_eq!(credit.end_overdue(), Some(LOOKS_EVERY));
    assert!(slow.was_broken_off(), "its user has no more for others");
    assert!(!other.was_broken_off(), "it is in nobody's way");
    credit.forget(1);
    assert_eq!(waits.went_on(), 1);
    // what is not taken of answers counts as well
    let reader = one(4, 0);
    credit.keep(&reader, 300);
    assert!(!credit.may_serve(&one(5, 8)));
    credit.end_overdue();
    assert!(reader.was_broken_off() && other.was_broken_off());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(usize, usize),
    GiveBack(usize),
    Keep(usize, usize),
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let who = || 0..6usize;
    prop_oneof![
        4 => (who(), 1..700usize).prop_map(|(who, bytes)| Step::Take(who, bytes)),
        3 => who().prop_map(Step::GiveBack),
        1 => (who(), 0..300usize).prop_map(|(who, bytes)| Step::Keep(who, bytes)),
        1 => who().prop_map(Step::Forget),
    ]
}

proptest! {
    #[test]
    fn no_more_is_held_than_there_is_and_all_have_their_turn(
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let credit = credit(Duration::MAX);
        let all: Vec<_> = (0..6).map(|number| one(number, number as u32 % 3)).collect();
        let (mut coming, mut kept) = ([0; 6], [0; 6]);
        let mut waits: [Option<(usize, usize)>; 6] = [None; 6];
        for step in steps {
            match step {
                // who waits asks for the same again
                Step::Take(who, bytes) => {
                    let bytes = waits[who].map_or(bytes, |(bytes, _)| bytes);
                    // what it lets go of may be what it waits for: it is told before this returns
                    let before = all[who].went_on();
                    if !credit.take(&all[who], bytes) {
                        coming[who] = 0;
                        waits[who] = waits[who].or(Some((bytes, before)));
                    } else {
                        coming[who] = coming[who].max(bytes);
                    }
                }
                Step::GiveBack(who) if waits[who].is_none() => {
                    credit.give_back(&all[who]);
                    coming[who] = 0;
                }
                Step::GiveBack(_) => {}
                Step::Keep(who, bytes) => {
                    credit.keep(&all[who], bytes);
                    kept[who] = bytes;
                }
                Step::Forget(who) => {
                    credit.forget(who as u64);
                    (coming[who], kept[who], waits[who]) = (0, 0, None);
                }
            }
            for who in 0..6 {
                if let Some((bytes, before)) = waits[who] && all[who].went_on() > before {
                    (coming[who], waits[who]) = (bytes, None);
                }
            }
            let held: usize = coming.iter().chain(&kept).sum();
            prop_assert_eq!(credit.used(), held);
            let alone = coming.iter().filter(|bytes| **bytes > 0).count() <= 1;
            let of_answers: usize = kept.iter().sum();
            prop_assert!(held - of_answers <= BYTES_MAX || alone);
        }
        // answers are taken, those who hold it go, and all others have it in the end
        for one in &all {
            credit.keep(one, 0);
        }
        for _ in 0..6 {
            for who in 0..6 {
                waits[who] = waits[who].filter(|(_, before)| all[who].went_on() == *before);
            }
            for who in (0..6).filter(|who| waits[*who].is_none()) {
                credit.forget(who as u64);
            }
        }
        prop_assert!(waits.iter().all(Option::is_none) && !credit.is_waited_for());
    }
}
