//! Jericho (MSST'14): four sockets of Opteron, data in DRAM.
//!
//! *Default* is a system that puts data anywhere and moves nothing, *worst* one where each thread's
//! data is on the next node, *best* where it is on the thread's own. Jericho and ours begin where
//! default does. What a thread does between two pages of a scan, 8 us, is assumed.

use placement::{Kind, Machine};

use super::{Figure, Headline, Outcomes, Paper, Plan, machine, system};
use crate::outcome::Outcome;
use crate::setting::{Refused, Setting};
use crate::system::{Layout, System};
use crate::workload::{Made, Step, Workload};

const MACHINE: &str = "opteron-4-sockets";
const THREADS: [u32; 7] = [1, 4, 8, 16, 32, 48, 64];
const BLOCK: u64 = 4 << 10;
/// Of each thread.
const FILE: u64 = 16 << 20;
/// Time for what moves to move, and then some to count, ns.
const TIME: [f64; 2] = [5e8, 1e8];
/// Of a page of a scan, ns.
const SCAN_NS: f64 = 8000.0;

const KINDS: [(Kind, &str); 2] = [(Kind::Read, "reads"), (Kind::Write, "writes")];

/// Who is compared: a name, the system, and where files were made.
fn sides() -> Vec<(&'static str, System, Made)> {
    let near = System { layout: Layout::Near, ..system("nearside") };
    vec![
        ("default", system("nova"), Made::Anywhere),
        ("worst", system("nova"), Made::Beside),
        ("best", system("nova"), Made::There),
        ("jericho", system("jericho"), Made::Anywhere),
        ("nearside, auto", system("nearside"), Made::Anywhere),
        ("nearside, near", near, Made::Anywhere),
    ]
}

pub fn paper() -> Result<Paper, Refused> {
    let mut paper = Paper::default();
    for (kind, name, step, published) in [
        (Kind::Read, "sequential reads", Step::Round(Kind::Read, BLOCK), Some(2.9)),
        (Kind::Write, "sequential writes", Step::Round(Kind::Write, BLOCK), Some(3.4)),
        (Kind::Read, "random reads", Step::Somewhere(Kind::Read, BLOCK), None),
    ] {
        calls(&mut paper, (kind, name, step), published)?;
    }
    for (kind, name) in KINDS {
        paper.figures.push(nodes(kind, name)?);
    }
    paper.figures.push(devices()?);
    paper.figures.push(machines()?);
    Ok(paper)
}

fn workload(step: Step, kind: Kind, threads: u32, made: Made) -> Workload {
    let fio = Workload::fio(kind, BLOCK, threads);
    Workload { steps: vec![step], made, file_bytes: FILE, ..fio }
}

fn calls(
    paper: &mut Paper,
    (kind, name, step): (Kind, &str, Step),
    published: Option<f64>,
) -> Result<(), Refused> {
    let machine = machine(MACHINE)?;
    let line = |(side, system, made): (&str, System, Made)| {
        let of = |threads: &u32| {
            let setting = Setting {
                machine: machine.clone(),
                system: system.clone(),
                workload: workload(step, kind, *threads, made),
                others: Vec::new(),
                seed: 1,
                time: TIME,
            };
            (f64::from(*threads), setting)
        };
        (side.to_owned(), THREADS.iter().map(of).collect())
    };
    let file = name.replace(' ', "-");
    let plan = Plan {
        name: &format!("jericho-{file}"),
        title: format!("{name} of 4 KiB, independent files in memory"),
        x: "threads",
        y: "GB/s",
        places: Vec::new(),
        lines: sides().into_iter().map(line).collect(),
    };
    let (figure, outcomes) = plan.draw(gb)?;
    let derived = derived(&format!("jericho-{file}"), name, &outcomes, &figure);
    let last = THREADS.len() - 1;
    let mut add = |what: String, published, simulated| {
        paper.headlines.push(Headline { what, published, simulated });
    };
    let part = |side| outcomes.of(side).get(last).map_or(f64::NAN, |it| 1.0 - it.remote_part());
    let ratio = |one, other| outcomes.rate(one, last) / outcomes.rate(other, last);
    add(
        format!("{name} by 64 threads, Jericho to default"),
        published,
        ratio("jericho", "default"),
    );
    add(format!("{name}, best to worst"), None, ratio("best", "worst"));
    add(format!("{name}, Nearside (auto) to Jericho"), None, ratio("nearside, auto", "jericho"));
    add(format!("{name}, Nearside (near) to Jericho"), None, ratio("nearside, near", "jericho"));
    // 0.3 to 1.2
    add(format!("{name}, worst, % local"), Some(0.75), 100.0 * part("worst"));
    // the abstract: over 95
    add(format!("{name}, Jericho, % local"), Some(95.0), 100.0 * part("jericho"));
    paper.figures.push(figure);
    paper.figures.extend(derived);
    Ok(())
}

/// MiB/s as GB/s.
fn gb(_: &Setting, outcome: &Outcome) -> f64 {
    outcome.rate() * 1.048576e6 / 1e9
}

/// By the nodes that there are, a thread on each of their CPUs.
fn nodes(kind: Kind, name: &str) -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let line = |(side, system, made): (&str, System, Made)| {
        let of = |nodes: u32| {
            let workload = workload(Step::Round(kind, BLOCK), kind, machine.cpus * nodes, made);
            let (machine, system) = (Machine { nodes, ..machine.clone() }, system.clone());
            let setting =
                Setting { machine, system, workload, others: Vec::new(), seed: 1, time: TIME };
            (f64::from(nodes), setting)
        };
        (side.to_owned(), [1, 2, 4, 8].map(of).into())
    };
    let plan = Plan {
        name: &format!("jericho-nodes-{name}"),
        title: format!("sequential {name} of 4 KiB, 8 threads a node"),
        x: "nodes",
        y: "GB/s",
        places: Vec::new(),
        lines: sides().into_iter().map(line).collect(),
    };
    Ok(plan.draw(gb)?.0)
}

/// Eight threads of one node, and all that they use is on one device: theirs, or that of a node of
/// another socket. A device is a node's memory here; there are no disks.
fn devices() -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let line = |(side, system, _): (&str, System, Made)| {
        let of = |(place, (kind, node)): (usize, (Kind, u32))| {
            let workload = workload(Step::Round(kind, BLOCK), kind, 8, Made::On(node));
            let workload = Workload { on_nodes: 1, ..workload };
            let (machine, system) = (machine.clone(), system.clone());
            let setting =
                Setting { machine, system, workload, others: Vec::new(), seed: 1, time: TIME };
            (place as f64, setting)
        };
        let points = KINDS.iter().flat_map(|(kind, _)| [0, 4].map(|node| (*kind, node)));
        (side.to_owned(), points.enumerate().map(of).collect())
    };
    // one of each system, and of ours the one that does not spread a file over all nodes
    let sides = sides()
        .into_iter()
        .filter(|(side, _, made)| *made == Made::Anywhere && *side != "nearside, auto");
    let place = |(_, name): &(Kind, &str)| ["good", "bad"].map(|is| format!("{name}, {is}"));
    let plan = Plan {
        name: "jericho-devices",
        title: "calls of 4 KiB by 8 threads of a node, the device on it or on another".to_owned(),
        x: "",
        y: "GB/s",
        places: KINDS.iter().flat_map(place).collect(),
        lines: sides.map(line).collect(),
    };
    Ok(plan.draw(gb)?.0)
}

/// The same outcomes by core and by node, and how much of the bytes was local.
fn derived(file: &str, name: &str, outcomes: &Outcomes, whole: &Figure) -> [Figure; 3] {
    let figure = |suffix: &str, title: &str, y, of: &dyn Fn(f64, &Outcome) -> f64| Figure {
        name: format!("{file}-{suffix}"),
        title: format!("{name} of 4 KiB, {title}"),
        y,
        lines: sides()
            .iter()
            .map(|(side, ..)| {
                let its = THREADS.iter().map(|threads| f64::from(*threads)).zip(outcomes.of(side));
                let points = its.map(|(threads, it)| (threads, of(threads, it)));
                ((*side).to_owned(), points.collect())
            })
            .collect(),
        ..whole.clone()
    };
    let thousands = |it: &Outcome| it.latency.calls() as f64 / (it.time / 1e9) / 1e3;
    let by_core = |threads, it: &Outcome| thousands(it) / threads;
    let by_node = |threads: f64, it: &Outcome| thousands(it) / (threads / 8.0).ceil();
    let local = |_, it: &Outcome| 100.0 * (1.0 - it.remote_part());
    [
        figure("core", "for each core", "thousands a second", &by_core),
        figure("node", "for each node", "thousands a second", &by_node),
        figure("local", "local bytes", "%", &local),
    ]
}

/// Virtual machines with images of their own, in each eight threads that scan a table of 7 GB.
fn machines() -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let line = |(side, system, made): (&str, System, Made)| {
        let of = |count: u32| {
            let scan = workload(Step::Round(Kind::Read, 8 << 10), Kind::Read, 8 * count, made);
            let workload = Workload { thinks_ns: SCAN_NS, ..scan };
            let (machine, system, others) = (machine.clone(), system.clone(), Vec::new());
            let setting = Setting { machine, system, workload, others, seed: 1, time: TIME };
            (f64::from(count), setting)
        };
        (side.to_owned(), (1..=8).map(of).collect())
    };
    let plan = Plan {
        name: "jericho-machines",
        title: "scans in independent virtual machines of 8 threads".to_owned(),
        x: "virtual machines",
        y: "% longer than alone at best",
        places: Vec::new(),
        lines: sides().into_iter().map(line).collect(),
    };
    let (mut figure, outcomes) = plan.draw(|_, it| it.latency.mean() + SCAN_NS)?;
    let alone = outcomes.of("best").first().map_or(1.0, |it| it.latency.mean() + SCAN_NS);
    for (_, points) in &mut figure.lines {
        points.iter_mut().for_each(|point| point.1 = 100.0 * (point.1 / alone - 1.0));
    }
    Ok(figure)
}
