//! A campaign of hostile processes beside honest ones: all that a process may do to the service, of
//! several users, at once, in processes that are stopped and killed.
//!
//! A round is a number: seed and number choose what is done, though not in which order it meets.
//! After each it is verified that honest processes saw what they should, that the service stands as
//! it stood before the hostile ones came, and that the pool is whole.
//!
//! `NEARSIDE_HOSTILE_SEED` says the seed (1), `NEARSIDE_HOSTILE_FROM` the first round (0),
//! `NEARSIDE_HOSTILE_SECONDS` for how long there are new ones (0: one round), `NEARSIDE_HOSTILE_MS`
//! how long hostile processes are at it in each.

mod honest;
mod memory;
mod records;
mod round;
mod service;
mod socket;
mod standing;
mod strange;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use self::round::{Canary, Tally, play_if_told, round};
use crate::strangers::setting;

#[test]
fn honest_work_goes_on_beside_hostile_processes() {
    play_if_told();
    let (seed, from) = (setting("NEARSIDE_HOSTILE_SEED", 1), setting("NEARSIDE_HOSTILE_FROM", 0));
    let time = Duration::from_secs(setting("NEARSIDE_HOSTILE_SECONDS", 0));
    let (since, mut tally) = (Instant::now(), Tally::default());
    for number in from.. {
        match catch_unwind(AssertUnwindSafe(|| round((seed, number), None))) {
            Ok(done) => tally.add(done),
            Err(panic) => {
                println!("round {number} of seed {seed} failed: scripts/hostile {seed} {number} 0");
                resume_unwind(panic);
            }
        }
        println!("seed {seed}, rounds {from} to {number}: {tally}");
        // On a busy machine fewer attempts fit into that time.
        let most = if tally.missing().is_none() { time } else { 2 * time };
        if since.elapsed() >= most {
            break;
        }
    }
    let missing = tally.missing();
    assert!(missing.is_none(), "{missing:?} is missing: {tally}");
}

#[test]
fn what_is_spoilt_is_noticed() {
    play_if_told();
    for (canary, words) in [
        (Canary::File, "in place of"),
        (Canary::Part, "in place of"),
        (Canary::Count, " loaded"),
        (Canary::Stays, "does not stand as it stood"),
    ] {
        let noticed = catch_unwind(AssertUnwindSafe(|| round((1, 0), Some(canary))));
        let panic = noticed.expect_err("it is not noticed");
        let said = panic.downcast_ref::<String>().expect("it says what");
        assert!(said.contains(words), "{canary:?}: {said}");
    }
}
