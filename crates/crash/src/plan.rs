//! Which workloads a run explores, by number: the same for the same seed, on every machine.

use crate::attached::stores;
use crate::catalog::{Op, SYNC, catalog};
use crate::chain::Chain;
use crate::core::core;
use crate::explore::Settings;
use crate::images::Shape;
use crate::moves::{bare_moves, moves};
use crate::pairs::Pair;
use crate::recording::{Start, Workload};
use crate::rng::{Rng, mix};
use crate::turns::Schedule;
use pmem::Domain;

/// A kind of workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// All sequences of one or two operations of the core, each from one start.
    Core,
    /// Every operation of the catalog from every start in every domain, explored thoroughly.
    Singles,
    /// Sequences of three operations of the core, by the seed.
    Triples,
    /// Two operations of the core at once, by the seed.
    Pairs,
    /// Crash after crash.
    Chains,
    /// Every operation of the catalog in a mirrored pool, in every domain, also with a file lost.
    Mirrors,
    /// Every operation of the catalog in a pool with a capacity tier of one device or two, and
    /// blocks that move there; by turns with them sequences of two of these, blocks that move while
    /// another operation runs, and crash after crash.
    Tiers,
    /// Every operation of a process that is attached and its service; by turns with them sequences
    /// of one of these and one of these or of the catalog, in either order.
    Attached,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] = [
        Kind::Core,
        Kind::Singles,
        Kind::Triples,
        Kind::Pairs,
        Kind::Chains,
        Kind::Mirrors,
        Kind::Tiers,
        Kind::Attached,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Core => "core",
            Kind::Singles => "singles",
            Kind::Triples => "triples",
            Kind::Pairs => "pairs",
            Kind::Chains => "chains",
            Kind::Mirrors => "mirrors",
            Kind::Tiers => "tiers",
            Kind::Attached => "attached",
        }
    }
}

/// Something to explore.
#[derive(Clone, Debug)]
pub enum Job {
    /// A workload, and how.
    Workload(Workload, Settings),
    /// Two operations at once, and how.
    Pair(Pair, Settings),
    /// A chain of crashes.
    Chain(Chain),
}

/// In what state and domain workloads begin.
pub const BEGINNINGS: [(Start, Domain); 10] = [
    (Start::Folded, Domain::CpuFlush),
    (Start::Logged, Domain::CpuFlush),
    (Start::Recovered, Domain::CpuFlush),
    (Start::LongLines, Domain::CpuFlush),
    (Start::Folded, Domain::Sync),
    (Start::Logged, Domain::Sync),
    (Start::Recovered, Domain::Sync),
    (Start::Folded, Domain::CpuCache),
    (Start::Logged, Domain::CpuCache),
    (Start::Recovered, Domain::CpuCache),
];

/// In what state and domain workloads on mirrored pools begin.
const MIRRORED: [(Start, Domain); 9] = [
    (Start::Mirrored, Domain::CpuFlush),
    (Start::LosesFirst, Domain::CpuFlush),
    (Start::LosesSecond, Domain::CpuFlush),
    (Start::Mirrored, Domain::Sync),
    (Start::LosesFirst, Domain::Sync),
    (Start::LosesSecond, Domain::Sync),
    (Start::Mirrored, Domain::CpuCache),
    (Start::LosesFirst, Domain::CpuCache),
    (Start::LosesSecond, Domain::CpuCache),
];

/// In what state and domain workloads on pools with a capacity tier begin.
const TIERED: [(Start, Domain); 6] = [
    (Start::Tiered, Domain::CpuFlush),
    (Start::TwoDevices, Domain::CpuFlush),
    (Start::Tiered, Domain::CpuCache),
    (Start::TwoDevices, Domain::CpuCache),
    (Start::Tiered, Domain::Sync),
    (Start::TwoDevices, Domain::Sync),
];

/// In what domain workloads on pools with an attached process begin.
const ATTACHED: [(Start, Domain); 2] =
    [(Start::Attached, Domain::CpuFlush), (Start::Attached, Domain::CpuCache)];

/// Operations of the core.
pub fn core_len() -> u64 {
    core().len() as u64
}

/// Sequences of one or two of them.
pub fn sequences() -> u64 {
    core_len() * (core_len() + 1)
}

/// Every operation from every beginning.
pub fn singles() -> u64 {
    (catalog().len() * BEGINNINGS.len()) as u64
}

/// Number `number` of a kind.
pub fn job(kind: Kind, seed: u64, number: u64) -> Job {
    let mut rng = Rng::new(mix(seed ^ mix(number)));
    let of_core = |number: u64| core()[(number % core_len()) as usize];
    match kind {
        Kind::Core => {
            let number = number % sequences();
            let mut ops = vec![of_core(number)];
            ops.extend((number >= core_len()).then(|| of_core(number / core_len() - 1)));
            // a beginning of its own for each; other seeds turn them round
            let beginning = mix(number).wrapping_add(seed);
            quick(beginning, number, ops, &mut rng)
        }
        Kind::Singles => {
            let number = turned(number, seed, singles());
            let (op, beginning) = (number / BEGINNINGS.len() as u64, number);
            let ops = vec![catalog()[op as usize]];
            let settings = Settings::thorough(rng.bits());
            Job::Workload(workload(beginning, number / 2, ops), settings)
        }
        Kind::Mirrors => each(&catalog(), &MIRRORED, seed, number, &mut rng),
        Kind::Tiers => tiers(seed, number, &mut rng),
        Kind::Attached if number.is_multiple_of(2) => {
            each(&stores(), &ATTACHED, seed, number / 2, &mut rng)
        }
        Kind::Attached => two_of_attached(seed, number / 2, &mut rng),
        Kind::Triples => {
            let ops = (0..3).map(|_| of_core(rng.bits() >> 8)).collect();
            quick(rng.bits() >> 8, number, ops, &mut rng)
        }
        Kind::Pairs => {
            let ops = (0..2).map(|_| whole(core(), &mut rng)).collect();
            pair(BEGINNINGS[rng.below(4)], ops, &mut rng)
        }
        Kind::Chains => chain(Shape::SMALL, number, &mut rng),
    }
}

fn tiers(seed: u64, number: u64, rng: &mut Rng) -> Job {
    let (round, turn) = (number / 4, number % 4);
    match turn {
        0 => each(&of_tiers(), &TIERED, seed, round, rng),
        1 | 2 => two_of_tiers(seed, round * 2 + turn - 1, rng),
        _ if round % 8 == 3 => chain(Shape::TIERED, round, rng),
        _ if round % 8 == 7 => chain(Shape::TWO_DEVICES, round, rng),
        _ => {
            let moves = bare_moves();
            let begin = TIERED[rng.below(TIERED.len())];
            let mut ops = vec![moves[rng.below(moves.len())], whole(&catalog(), rng)];
            // a place of its own for each of the two
            ops.rotate_left(rng.below(2));
            pair(begin, ops, rng)
        }
    }
}

/// The operations of a pool with a capacity tier.
fn of_tiers() -> Vec<Op> {
    [moves(), catalog()].concat()
}

/// Sequences of two of them.
pub fn tier_sequences() -> u64 {
    (of_tiers().len() as u64).pow(2)
}

/// One of these sequences: in an order that begins elsewhere with each seed, from one beginning
/// each, which other seeds turn round.
fn two_of_tiers(seed: u64, number: u64, rng: &mut Rng) -> Job {
    let all = tier_sequences();
    let number = turned(number, seed, all);
    let ops = of_tiers();
    let (first, second) = (number as usize % ops.len(), number as usize / ops.len());
    let begin = mix(number).wrapping_add(seed) % TIERED.len() as u64;
    let workload = workload_from(TIERED[begin as usize], number, vec![ops[first], ops[second]]);
    Job::Workload(workload, Settings::quick(rng.bits()))
}

/// Sequences of an operation of a process and any.
pub fn attached_sequences() -> u64 {
    let (stores, others) = (stores().len() as u64, catalog().len() as u64);
    stores * (stores + others)
}

/// One of these sequences: in an order that begins elsewhere with each seed.
fn two_of_attached(seed: u64, number: u64, rng: &mut Rng) -> Job {
    let all = attached_sequences();
    let number = turned(number, seed, all);
    let (stores, ops) = (stores(), [stores(), catalog()].concat());
    let (first, second) = (number as usize % stores.len(), number as usize / stores.len());
    let mut ops = vec![stores[first], ops[second]];
    ops.rotate_left(rng.below(2));
    let workload = workload_from(ATTACHED[rng.below(ATTACHED.len())], number, ops);
    Job::Workload(workload, Settings::quick(rng.bits()))
}

/// One of them that is never seen in parts.
fn whole(ops: &[Op], rng: &mut Rng) -> Op {
    let whole: Vec<&Op> = ops.iter().filter(|op| op.part.is_none()).collect();
    *whole[rng.below(whole.len())]
}

fn pair((start, domain): (Start, Domain), ops: Vec<Op>, rng: &mut Rng) -> Job {
    let workload = Workload { start, domain, ops, cpu: rng.below(2) };
    let first = rng.below(2);
    let (before, between) = (rng.below(EVENTS), rng.below(EVENTS));
    // one in some runs to its end
    let between = if between == 0 { usize::MAX } else { between };
    let schedule = Schedule { first, before, between };
    Job::Pair(Pair { workload, schedule }, Settings::quick(rng.bits()))
}

fn chain(shape: Shape, number: u64, rng: &mut Rng) -> Job {
    let shape = Shape { slices: 1 + (number % 3) as usize, ..shape };
    Job::Chain(Chain { shape, crashes: 6, ops: 6, seed: rng.bits() >> 32 })
}

/// Each operation from each beginning, explored thoroughly.
fn each(ops: &[Op], from: &[(Start, Domain)], seed: u64, number: u64, rng: &mut Rng) -> Job {
    let number = number.wrapping_add(mix(seed)) % (ops.len() * from.len()) as u64;
    let (op, begin) = (number as usize / from.len(), number as usize % from.len());
    let workload = workload_from(from[begin], number / 2, vec![ops[op]]);
    Job::Workload(workload, Settings::thorough(rng.bits()))
}

/// One of so many, each once, in an order that begins elsewhere with each seed.
fn turned(number: u64, seed: u64, all: u64) -> u64 {
    (number.wrapping_add(mix(seed)) % all).wrapping_mul(STEP) % all
}

/// Most operations have fewer events.
const EVENTS: usize = 8;
/// A prime, so that steps of it meet every number.
const STEP: u64 = 1_000_003;

fn quick(beginning: u64, cpu: u64, ops: Vec<Op>, rng: &mut Rng) -> Job {
    Job::Workload(workload(beginning, cpu, ops), Settings::quick(rng.bits()))
}

fn workload(beginning: u64, cpu: u64, ops: Vec<Op>) -> Workload {
    workload_from(BEGINNINGS[(beginning % BEGINNINGS.len() as u64) as usize], cpu, ops)
}

fn workload_from((start, domain): (Start, Domain), cpu: u64, mut ops: Vec<Op>) -> Workload {
    if domain == Domain::Sync {
        ops.extend(catalog().into_iter().find(|op| op.name == SYNC));
    }
    Workload { start, domain, ops, cpu: (cpu % 2) as usize }
}

/// Number `number` of a run of all kinds: first all of the core, then the others by turns.
pub fn mixed(seed: u64, number: u64) -> Job {
    let Some(number) = number.checked_sub(sequences()) else {
        return job(Kind::Core, seed, number);
    };
    let (round, turn) = (number / 10, number % 10);
    match turn {
        7 => job(Kind::Chains, seed, round),
        8 => job(Kind::Mirrors, seed, round),
        9 if round % 2 == 0 => job(Kind::Tiers, seed, round / 2),
        9 => job(Kind::Attached, seed, round / 2),
        1 | 4 => job(Kind::Triples, seed, round * 2 + turn / 4),
        2 | 6 => job(Kind::Pairs, seed, round * 2 + turn / 6),
        _ => job(Kind::Singles, seed, round * 3 + turn / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(job: &Job) -> String {
        let Job::Workload(workload, _) = job else { return String::new() };
        workload.ops.iter().map(|op| op.name).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn the_core_is_every_sequence_of_one_and_two_operations_once() {
        assert!(sequences() >= 3192, "{}", sequences());
        let bare = |job: Job| match job {
            Job::Workload(workload, _) if workload.domain == Domain::Sync => {
                let ops = workload.ops[..workload.ops.len() - 1].to_vec();
                names(&Job::Workload(Workload { ops, ..workload }, Settings::quick(1)))
            }
            job => names(&job),
        };
        let all: BTreeSet<String> =
            (0..sequences()).map(|number| bare(job(Kind::Core, 1, number))).collect();
        assert_eq!(all.len() as u64, sequences());
    }

    #[test]
    fn singles_meet_every_operation_from_every_beginning() {
        let name = |number| match job(Kind::Singles, 5, number) {
            Job::Workload(w, _) => format!("{:?} {} {}", w.start, w.domain, w.ops[0].name),
            Job::Pair(..) | Job::Chain(_) => String::new(),
        };
        let all: BTreeSet<String> = (0..singles()).map(name).collect();
        assert_eq!(all.len() as u64, singles());
    }

    #[test]
    fn runs_of_tiers_meet_every_sequence_of_two_once_and_every_operation_from_every_beginning() {
        let (mut two, mut one) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..2 * tier_sequences() {
            let Job::Workload(w, _) = job(Kind::Tiers, 5, number) else { continue };
            let synced = usize::from(w.domain == Domain::Sync);
            match &w.ops[..w.ops.len() - synced] {
                [op] => drop(one.insert(format!("{:?} {} {}", w.start, w.domain, op.name))),
                [first, second] => {
                    assert!(two.insert((first.name, second.name)), "{} {number}", w.arguments());
                }
                ops => panic!("{} operations", ops.len()),
            }
        }
        assert_eq!(two.len() as u64, tier_sequences());
        assert_eq!(one.len(), of_tiers().len() * TIERED.len());
    }

    #[test]
    fn runs_of_attached_processes_meet_every_sequence_once_and_every_operation() {
        let (mut two, mut one) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..2 * attached_sequences() {
            let Job::Workload(w, _) = job(Kind::Attached, 5, number) else { continue };
            let mut names: Vec<&str> = w.ops.iter().map(|op| op.name).collect();
            if let [name] = names[..] {
                one.insert(format!("{} {name}", w.domain));
                continue;
            }
            // which of the two is first is by chance
            names.sort_unstable();
            two.insert(names.join(","));
        }
        let stores = stores().len() as u64;
        assert_eq!(one.len() as u64, stores * ATTACHED.len() as u64);
        assert_eq!(two.len() as u64, attached_sequences() - stores * (stores - 1) / 2);
    }

    #[test]
    fn a_mixed_run_is_the_same_by_its_seed_and_another_by_another() {
        let name = |seed, number| format!("{:?}", mixed(seed, number));
        for number in [0, 3000, sequences() + 1, sequences() + 7, sequences() + 100] {
            assert_eq!(name(3, number), name(3, number));
            assert_ne!(name(3, number), name(4, number));
        }
    }
}
