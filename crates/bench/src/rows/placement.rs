//! What the policy itself takes: deciding, and remembering what accesses have lost.

use std::hint::black_box;
use std::time::Instant;

use placement::{Access, Copying, DataRule, Heat, Kind, Policy, Room, Side, ThreadRule, Trail};

use crate::error::Result;
use crate::options::Options;
use crate::row::{Against, Row};
use crate::stats::median;

const COUNT: u64 = 1 << 22;
/// A window of data's, ns.
const WINDOW: f64 = 6e9;

/// A row of how long one of these takes.
fn row(options: &Options, name: &'static str, limit: f64, mut one: impl FnMut(u64)) -> Result<Row> {
    let mut turns = Vec::new();
    for round in 0..options.rounds() as u64 {
        let began = Instant::now();
        (0..COUNT).for_each(|count| one(count ^ round << 40));
        turns.push(began.elapsed().as_nanos() as f64 / COUNT as f64);
    }
    Ok(Row::new(name, "ns", median(&turns), Against::Limit(limit)))
}

/// Who copies.
pub fn placement_decision(options: &Options) -> Result<Row> {
    let side = Side { limit: 4, delegate_remote: 64 << 10, ..Side::default() };
    let policy = Policy { read: side, write: side };
    row(options, "placement_decision", 20.0, |count| {
        let access = Access {
            kind: if count & 1 == 0 { Kind::Read } else { Kind::Write },
            bytes: (count ^ count >> 40) << 6,
            is_local: count & 2 == 0,
            active: (count >> 3) as u32 & 7,
            waiting: count & 4,
            served: true,
        };
        black_box(policy.decide(&black_box(access)));
    })
}

/// Whether a thread moves, with what it remembers of an access.
pub fn placement_thread(options: &Options) -> Result<Row> {
    let (rule, mut trail) = (ThreadRule::weighs(7500.0), Trail::default());
    row(options, "placement_thread", 20.0, |count| {
        match count & 15 {
            0 => trail.local(),
            _ => trail.remote((count >> 8) as u32 & 1, black_box(1000.0)),
        }
        let threads = (count >> 4) as u32 & 31;
        let room = Room { busy: 0.5, busy_here: 0.5, threads, cpus: 28, is_allowed: true };
        let now = count as f64;
        if black_box(rule.moves(&trail, &black_box(room), now)).is_ok() {
            trail.moved(&rule, now);
        }
    })
}

/// Whether data moves.
pub fn placement_data(options: &Options) -> Result<Row> {
    let (rule, mut heat) = (DataRule::weighs(WINDOW), Heat::default());
    row(options, "placement_data", 20.0, |count| {
        heat.lost(&rule, 1, 100.0, count as f64);
        let access_ns = [300.0, 200.0 + (count & 127) as f32];
        let copying = Copying { ns: 1e5, others_ns: 1e5, access_ns, busy: 0.5 };
        if black_box(rule.moves(&heat, &black_box(copying), count as f64)).is_ok() {
            heat.moved(&rule, count as f64);
        }
    })
}

/// What is remembered of an access: of its thread, and of an extent, one of a thousand.
pub fn placement_observation(options: &Options) -> Result<Row> {
    let rule = DataRule::weighs(WINDOW);
    let (mut trail, mut heat) = (Trail::default(), vec![Heat::default(); 1024]);
    let row = row(options, "placement_observation", 10.0, |count| {
        let (node, lost) = black_box(((count >> 5) as u32 & 3, 150.0));
        let at = (count.wrapping_mul(0x9e37_79b9) >> 7) as usize & 1023;
        trail.remote(node, lost);
        heat[at].lost(&rule, node, lost, count as f64 * 1000.0);
    });
    black_box((trail, heat));
    row
}
