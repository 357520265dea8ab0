//! kill -9 and SIGSTOP of servers and clients of a mount, again and again, on the same mount.
//!
//! Several processes make changes, each in a directory of its own, append to one file, take locks
//! and keep files without names; one stores to a shared mapping. Each call that returned is told of
//! through a pipe. In each round, by its seed, a client or the server is killed or stopped at some
//! moment, or both keeper and server are killed, or the mount ends and comes again. The others go
//! on; everything that was told of is there, and of each dead client the one change that was on its
//! way is there entirely or not at all; what it held is free, also where the next process has its
//! id; at the end nothing has leaked. Once on a pool of slices alone, once on one with small slices
//! and a capacity tier, where everything is written back as soon as it can be. `NEARSIDE_KILLS`
//! says how many rounds, and `NEARSIDE_KILLS_FROM` with which to begin: each has a seed of its own.
//!
//! Times are printed beside those of rounds in which nothing happened, and not judged: machines are
//! busy. Only a wait of a minute is a hang.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod account;
mod acts;
mod client;
mod field;
mod mapper;
#[path = "../../../nearside/tests/kills/model.rs"]
mod model;
mod rounds;
#[allow(dead_code, reason = "shared with the other tests of the mount")]
#[path = "../mount/support.rs"]
mod support;
mod times;
mod watched;

use field::Field;
use rounds::{Rounds, Sums};
use support::{SLICES, Shape};

/// As many as take about a minute on two CPUs.
const ROUNDS: u64 = 300;
/// As many as take a third of that.
const TIER_ROUNDS: u64 = 100;

const TIER: Shape = Shape {
    size: "3M",
    devices: &["40M", "24M"],
    options: &["--write-back-at=1", "--tier-cache=1M"],
};

#[test]
fn others_go_on_and_nothing_acknowledged_is_lost() {
    drop(run("others_go_on_and_nothing_acknowledged_is_lost", &SLICES, ROUNDS));
}

#[test]
fn so_it_is_while_blocks_move_to_a_capacity_tier() {
    let sums = run("so_it_is_while_blocks_move_to_a_capacity_tier", &TIER, TIER_ROUNDS);
    assert!(sums.is_none_or(|sums| sums.tier_bytes > 0), "nothing moved");
}

/// All rounds; nothing where mounting is impossible.
fn run(name: &'static str, shape: &Shape, rounds: u64) -> Option<Sums> {
    client::run_if_told();
    let number = |name: &str, or: u64| {
        std::env::var(name).map_or(or, |text| text.parse().expect("a number"))
    };
    let (count, from) = (number("NEARSIDE_KILLS", rounds), number("NEARSIDE_KILLS_FROM", 0));
    let field = Field::new(name, shape, from)?;
    let mut rounds = Rounds::new(field);
    for round in from..from + count {
        rounds.play(round);
    }
    let sums = rounds.finish();
    for (times, what) in [
        (&sums.nothing, "nothing happened"),
        (&sums.after_client, "a client was killed"),
        (&sums.lock_after_client, "its lock was free"),
        (&sums.after_client_stop, "a client was stopped"),
        (&sums.after_server, "the server was killed"),
        (&sums.after_server_stop, "the server went on"),
    ] {
        println!("{}", times.line(what));
    }
    if sums.same_ids == 0 {
        println!("no process id was used again: it takes the right to choose the next one");
    }
    println!(
        "kills={} servers={} keepers={} clients={} stops={} held={} same_ids={} checks={} \
         acknowledged={} tier_bytes={} slowest_after_client_ms={:.1} slowest_after_server_ms={:.1} \
         rounds={count} next={}",
        sums.servers + sums.keepers + sums.clients,
        sums.servers,
        sums.keepers,
        sums.clients,
        sums.stops,
        sums.held,
        sums.same_ids,
        sums.checks,
        sums.acknowledged,
        sums.tier_bytes,
        sums.after_client.slowest_ms(),
        sums.after_server.slowest_ms(),
        from + count
    );
    Some(sums)
}
