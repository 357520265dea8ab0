//! The engine on machines that are emulated: what moves in their time.

use crate::error::Result;
use crate::options::Options;
use crate::picture::{Words, draw};
use crate::row::{Against, Row, Spread};
use crate::stage::{Play, Stage};
use fs::{Layout, Policy, Side};
use placement::{Kind, Lever, Levers, Machine, ThreadRule};
use sim::{KNOWN, Made, Moves, Rule, Setting, System, Workload, parse};
use std::time::Duration;

/// Callers that crowd one node.
const CROWDS: [u32; 3] = [16, 32, 64];
/// Workers of a node that OdinFS has, and from how many bytes it asks them to write and to read.
const ODINFS: (u16, u64, u64) = (12, 256, 32 << 10);
/// Bytes of a call of a crowd.
const CROWD_UNIT: u64 = 64 << 10;
const LARGE_UNIT: u64 = 2 << 20;
/// Bytes of a stripe, and what a pool takes where nobody says.
const STRIPES: [u64; 6] = [32 << 10, 64 << 10, 128 << 10, OWN_STRIPE, 512 << 10, 1 << 20];
const OWN_STRIPE: u64 = 256 << 10;
/// Callers that are more than enough for eight nodes.
const MANY: u32 = 32;

/// The machine that was asked for, or one that comes along; with so many nodes.
fn machine(options: &Options, known: usize, nodes: Option<u32>) -> Result<Machine> {
    let machine = match &options.emulate {
        Some(machine) => machine.clone(),
        None => parse(KNOWN[known].1)?,
    };
    let nodes = nodes.unwrap_or(machine.nodes);
    Ok(Machine { nodes, ..machine })
}

/// A pool on `slices` nodes of a machine, with the policy that suits it.
fn play(machine: Machine, slices: u32, callers: u32) -> Play {
    Play {
        stretch: 500.0,
        slices,
        layout: Layout::Stripe,
        stripe_bytes: None,
        callers,
        on_nodes: 1,
        file_bytes: 8 << 20,
        step: 1,
        policy: machine.policy(),
        workers: None,
        levers: Levers { threads: Lever::Off, data: Lever::Off },
        from_node: 0,
        made_on: None,
        machine,
    }
}

/// Time at hand of a run.
fn run_time(options: &Options) -> Duration {
    if options.quick { Duration::from_millis(1500) } else { Duration::from_secs(6) }
}

/// A row of rates: more is better, and `rounds` are the ratios.
fn row(
    name: &'static str,
    ours: f64,
    against: Against,
    target: f64,
    machine: &Machine,
    rounds: Spread,
) -> Row {
    Row::new(name, "MiB/s", ours, against)
        .ratio(ours / against.value(), rounds)
        .target(target)
        .on("process", &format!("emulated: {}", machine.name))
}

fn one(ratio: f64) -> Spread {
    Spread { min: ratio, median: ratio, max: ratio }
}

/// One caller, 2 MiB: a file over four nodes beside one on one node.
fn nodes(options: &Options, name: &'static str, kind: Kind) -> Result<Row> {
    let machine = machine(options, 0, Some(4))?;
    let time = run_time(options);
    let rate = |slices| {
        // that many workers wake up takes time at hand, which is to be little beside a short piece
        let stage = Play { stretch: 4000.0, ..play(machine.clone(), slices, 1) };
        let stage = Stage::new(options, &stage)?;
        stage.run(1, kind, LARGE_UNIT, time)
    };
    let (four, alone) = (rate(4)?, rate(1)?);
    Ok(row(name, four, Against::Peer(alone), 3.6, &machine, one(four / alone)))
}

pub fn emulated_write_nodes(options: &Options) -> Result<Row> {
    nodes(options, "emulated_write_nodes", Kind::Write)
}

pub fn emulated_read_nodes(options: &Options) -> Result<Row> {
    nodes(options, "emulated_read_nodes", Kind::Read)
}

/// Many callers on one node, with limits and without, beside the most that it can move.
fn crowd(options: &Options, name: &'static str, kind: Kind) -> Result<Row> {
    let machine = machine(options, 0, None)?;
    let (_, peak) = machine.access(kind).local.peak(LARGE_UNIT);
    let counts: &[u32] = match options.pictures {
        Some(_) => &[1, 2, 4, 8, 16, 32, 64],
        None => &CROWDS,
    };
    let limited = Play { file_bytes: 2 << 20, ..play(machine.clone(), 1, 64) };
    let free = Play { policy: Policy::default(), ..limited.clone() };
    let run = |play: &Play| -> Result<Vec<(f64, f64)>> {
        let stage = Stage::new(options, &Play { layout: Layout::Near, ..play.clone() })?;
        let rate = |callers: &u32| {
            let rate = stage.run(*callers, kind, CROWD_UNIT, run_time(options))?;
            Ok((f64::from(*callers), rate))
        };
        counts.iter().map(rate).collect()
    };
    let (ours, theirs) = (run(&limited)?, run(&free)?);
    let crowded = |(callers, _): &&(f64, f64)| *callers >= f64::from(CROWDS[0]);
    let rates: Vec<f64> = ours.iter().filter(crowded).map(|it| it.1).collect();
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let rounds =
        Spread { min: least / peak, median: rates[rates.len() / 2] / peak, max: most / peak };
    let mut row = row(name, least, Against::Floor(peak), 0.95, &machine, rounds);
    for ((callers, with), (_, without)) in ours.iter().zip(&theirs) {
        let parts = [with / peak, without / peak];
        row = row.note(format!(
            "{callers} callers: {with:.0} MiB/s ({:.2} of the peak); without limits {without:.0} \
             ({:.2})",
            parts[0], parts[1]
        ));
    }
    let title = format!("{name}: {}, calls of {} KiB", machine.name, CROWD_UNIT >> 10);
    let words = Words { title: &title, x: "callers on one node", y: "MiB/s", places: &[] };
    if let Some(dir) = &options.pictures {
        let lines = [("with limits".to_owned(), ours), ("without limits".to_owned(), theirs)];
        draw(dir, name, words, &lines)?;
    }
    Ok(row)
}

pub fn emulated_write_crowd(options: &Options) -> Result<Row> {
    crowd(options, "emulated_write_crowd", Kind::Write)
}

pub fn emulated_read_crowd(options: &Options) -> Result<Row> {
    crowd(options, "emulated_read_crowd", Kind::Read)
}

/// Eight nodes, 2 MiB, callers on all: beside the sum of what the nodes can move.
fn all_nodes(options: &Options, name: &'static str, kind: Kind) -> Result<Row> {
    let machine = machine(options, 1, Some(8))?;
    let sum = machine.access(kind).local.peak(LARGE_UNIT).1 * 8.0;
    let usual = play(machine.clone(), 8, MANY);
    // a hundred workers and more are at it
    let stage = Stage::new(options, &Play { stretch: 2000.0, on_nodes: 8, ..usual })?;
    let rate = stage.run(MANY, kind, LARGE_UNIT, run_time(options) * 2)?;
    Ok(row(name, rate, Against::Floor(sum), 0.95, &machine, one(rate / sum)))
}

pub fn emulated_write_all(options: &Options) -> Result<Row> {
    all_nodes(options, "emulated_write_all", Kind::Write)
}

pub fn emulated_read_all(options: &Options) -> Result<Row> {
    all_nodes(options, "emulated_read_all", Kind::Read)
}

/// Writes of 2 MiB over four nodes by one caller and by many, by the bytes of a stripe: the pool's
/// own choice beside the best.
pub fn emulated_stripes(options: &Options) -> Result<Row> {
    let machine = machine(options, 0, Some(4))?;
    let rates = |callers: u32| {
        let rate = |stripe_bytes: &u64| {
            let usual = play(machine.clone(), 4, callers);
            let play = Play { stripe_bytes: Some(*stripe_bytes), on_nodes: 4, ..usual };
            let stage = Stage::new(options, &play)?;
            stage.run(callers, Kind::Write, LARGE_UNIT, run_time(options))
        };
        STRIPES.iter().map(rate).collect::<Result<Vec<f64>>>()
    };
    let (alone, crowded) = (rates(1)?, rates(MANY)?);
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let own = STRIPES.iter().position(|it| *it == OWN_STRIPE).unwrap_or(0);
    let part = |rates: &[f64]| rates[own] / best(rates);
    let worse = part(&alone).min(part(&crowded));
    let mut row = row(
        "emulated_stripes",
        alone[own],
        Against::Peer(best(&alone)),
        0.95,
        &machine,
        one(worse),
    )
    .ratio(worse, one(worse));
    for ((stripe, alone), crowded) in STRIPES.iter().zip(&alone).zip(&crowded) {
        let kib = stripe >> 10;
        row = row.note(format!(
            "stripes of {kib} KiB: one caller {alone:.0} MiB/s, {MANY} callers {crowded:.0}"
        ));
    }
    Ok(row)
}

/// What OdinFS does: workers copy whatever is not tiny, wherever the caller is, twelve on each
/// node.
fn odinfs() -> Policy {
    let side = |from| Side { delegate_remote: from, delegate_local: from, ..Side::default() };
    Policy { write: side(ODINFS.1), read: side(ODINFS.2) }
}

/// Writes of 4 KiB by so many callers on two nodes, beside the same engine with OdinFS's settings.
fn blocks(options: &Options, name: &'static str, callers: u32, target: f64) -> Result<Row> {
    let machine = machine(options, 0, Some(2))?;
    // small copies are over soon, and what the CPUs at hand do beside them is to be little
    let usual = Play { stretch: 2000.0, file_bytes: 1 << 20, ..play(machine.clone(), 2, callers) };
    let ours = Play { on_nodes: 2, ..usual };
    let theirs = Play { policy: odinfs(), workers: Some(ODINFS.0), ..ours.clone() };
    let rate = |play: &Play| {
        let stage = Stage::new(options, play)?;
        let rate = stage.run(callers, Kind::Write, 4 << 10, run_time(options))?;
        Ok::<_, crate::Error>((rate, stage.written_by_workers()))
    };
    let ((ours, _), (theirs, by_workers)) = (rate(&ours)?, rate(&theirs)?);
    let row = row(name, ours, Against::Peer(theirs), target, &machine, one(ours / theirs));
    Ok(row.note(format!("OdinFS's workers wrote {} MiB", by_workers >> 20)))
}

pub fn emulated_blocks_32(options: &Options) -> Result<Row> {
    blocks(options, "emulated_blocks_32", 32, 2.0)
}

pub fn emulated_blocks_1(options: &Options) -> Result<Row> {
    blocks(options, "emulated_blocks_1", 1, 1.0)
}

/// Callers that read what lies on the other node, each a file of its own, of this many bytes.
const FAR_CALLERS: u32 = 4;
const FAR_BYTES: u64 = 512 << 10;

/// Reads of 4 KiB of files on the other node, with each lever alone, beside the same on one's own
/// node; and what the simulator says of each.
pub fn emulated_levers(options: &Options) -> Result<Row> {
    let machine = machine(options, 2, Some(2))?;
    let on = |threads, data| Levers { threads, data };
    let callers = Policy::default();
    let far = Play {
        stretch: 1000.0,
        layout: Layout::Auto,
        file_bytes: FAR_BYTES,
        // another block each time, and all of them
        step: 37,
        policy: callers,
        workers: Some(0),
        from_node: 1,
        made_on: Some(0),
        ..play(machine.clone(), 2, FAR_CALLERS)
    };
    let asked = Side { delegate_remote: 1, ..Side::default() };
    let workers = Policy { read: asked, write: asked };
    let near = Play { from_node: 0, ..far.clone() };
    let cases = [
        ("near", near),
        ("far", far.clone()),
        ("workers copy", Play { policy: workers, workers: Some(8), ..far.clone() }),
        ("threads move", Play { levers: on(Lever::On, Lever::Off), ..far.clone() }),
        ("data moves", Play { levers: on(Lever::Off, Lever::On), ..far }),
    ];
    let mut rates = Vec::new();
    let mut notes = Vec::new();
    for (name, play) in &cases {
        let stage = Stage::new(options, play)?;
        // what moves has moved when it counts
        stage.run(FAR_CALLERS, Kind::Read, 4 << 10, 2 * run_time(options))?;
        let rate = stage.run(FAR_CALLERS, Kind::Read, 4 << 10, run_time(options))?;
        let simulated = simulated(&machine, name)?;
        let moves = stage.moves().unwrap_or_default();
        notes.push(format!(
            "{name}: {rate:.0} MiB/s, simulated {simulated:.0} ({:.2}); {} threads and {} parts \
             moved",
            rate / simulated,
            moves.threads,
            moves.data
        ));
        rates.push(rate);
    }
    let best = rates[2..].iter().copied().fold(0.0, f64::max);
    let ratios = Spread { min: rates[1] / rates[0], median: best / rates[0], max: best / rates[0] };
    let against = Against::Floor(rates[0]);
    let row = row("emulated_levers", best, against, 0.95, &machine, ratios);
    Ok(notes.into_iter().fold(row, Row::note))
}

/// What the simulator says of one of these cases, MiB/s.
fn simulated(machine: &Machine, case: &str) -> Result<f64> {
    let ours = System::known("nearside").unwrap_or_default();
    let asked = Side { delegate_remote: 1, ..Side::default() };
    let callers = System {
        rule: Rule::Callers,
        workers: Some(0),
        moves: Moves::None,
        spills: false,
        // files lie whole on the node where they were made
        layout: sim::Layout::Near,
        // the machine at hand makes calls in no time of the other one's
        call_ns: [0.0; 2],
        ..ours.clone()
    };
    let costs = machine.move_thread_ns as f32;
    let system = match case {
        "workers copy" => System {
            rule: Rule::Fixed(Policy { read: asked, write: asked }),
            workers: Some(8),
            ..callers
        },
        "threads move" => {
            System { moves: Moves::Fixed(Some(ThreadRule::weighs(costs)), None), ..callers }
        }
        "data moves" => System { moves: Moves::Fixed(None, ours.data_rule()), ..callers },
        _ => callers,
    };
    let system = System { extent_bytes: FAR_BYTES, ..system };
    let workload = Workload {
        from_node: u32::from(case != "near"),
        on_nodes: 1,
        made: Made::On(0),
        file_bytes: FAR_BYTES,
        ..Workload::fio(Kind::Read, 4 << 10, FAR_CALLERS)
    };
    let (machine, others) = (machine.clone(), Vec::new());
    let setting = Setting { machine, system, workload, others, seed: 1, time: [2e8, 2e7] };
    Ok(sim::run(&setting)?.rate())
}
