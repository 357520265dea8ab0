//! Programs, a network that loses, delays, cuts, changes and repeats, and services that are killed:
//! the same in each run of a seed; and strangers who say anything.
//!
//! What is simulated is the network alone. Services are ours, with a pool; each of their steps is
//! taken by the one thread that decides everything (`world`). Programs are ours, too, with the
//! library that attaches; each has a thread, of which it is known by what it has been told whether
//! it will send something next, connect anew, or be done: nobody goes on before that has come
//! (`program`). What programs were answered is compared with what the pool has in the end, and
//! on the way with what each may see (`story`).

mod acts;
mod faults;
mod link;
mod program;
mod random;
mod story;
mod strangers;
mod world;

use std::ops::Range;

use story::Story;
use world::Counts;

/// Which seeds, of a run by hand: `FROM..TO`, or one.
const SEEDS: &str = "NEARSIDE_SEEDS";
/// Seeds of a run of all tests, in so many parts, which go side by side.
const USUAL: u64 = 1_000;
/// The same where `NEARSIDE_TESTS` is `long`, as `./test --all` has it.
const LONG: u64 = 10_000;
const PARTS: u64 = 4;

/// The seeds that are asked for.
fn asked() -> Option<Range<u64>> {
    let text = std::env::var(SEEDS).ok()?;
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    Some(match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    })
}

/// The seeds of one of the parts.
fn part(part: u64) -> Range<u64> {
    let is_long = std::env::var_os("NEARSIDE_TESTS").is_some_and(|length| length == "long");
    let all = asked().unwrap_or(0..if is_long { LONG } else { USUAL });
    let at = |part: u64| all.start + (all.end - all.start) * part / PARTS;
    at(part)..at(part + 1)
}

fn run(seeds: Range<u64>) {
    let is_loud = asked().is_some_and(|asked| asked.end - asked.start == 1);
    let mut counts = Counts::default();
    for seed in seeds.clone() {
        match std::panic::catch_unwind(|| Story::new(seed, is_loud).run()) {
            Ok(of_one) => counts.add(&of_one),
            Err(panic) => {
                println!("seed {seed}: {SEEDS}={seed} tells what happens");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("seeds {seeds:?}: {counts:?}");
    // each happens in so many seeds
    assert!(seeds.end - seeds.start < 100 || counts.all_happened(), "{counts:?}");
}

#[test]
fn each_call_is_made_once_whatever_the_network_does() {
    run(part(0));
}

#[test]
fn each_call_is_made_once_whatever_the_network_does_second_part() {
    run(part(1));
}

#[test]
fn each_call_is_made_once_whatever_the_network_does_third_part() {
    run(part(2));
}

#[test]
fn each_call_is_made_once_whatever_the_network_does_fourth_part() {
    run(part(3));
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    let told = |seed| Story::new(seed, false).run().told;
    for seed in 0..5 {
        assert_eq!(told(seed), told(seed), "seed {seed}");
    }
}
