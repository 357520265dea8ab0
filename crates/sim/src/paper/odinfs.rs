//! OdinFS (OSDI'22): eight sockets of Optane, 224 CPUs.

use placement::{Kind, Machine};

use super::{Figure, Headline, Outcomes, Paper, Plan, gib, machine, run_all, system};
use crate::personality::{self, Personality};
use crate::setting::{Refused, Setting};
use crate::system::System;
use crate::workload::{Made, Workload};

const MACHINE: &str = "optane-8-sockets";
const SYSTEMS: [&str; 5] = ["ext4-dax", "ext4-raid0", "nova", "odinfs", "nearside"];
const THREADS: [u32; 11] = [1, 2, 4, 8, 16, 28, 56, 84, 112, 168, 224];
const ALL: u32 = 224;
const LARGE: u64 = 2 << 20;
const BLOCK: u64 = 4 << 10;
const NAMES: [&str; 2] = ["read", "write"];
const KINDS: [Kind; 2] = [Kind::Read, Kind::Write];

pub fn paper() -> Result<Paper, Refused> {
    let mut paper = Paper::default();
    for bytes in [LARGE, BLOCK] {
        for (kind, name) in KINDS.into_iter().zip(NAMES) {
            let (figure, outcomes) = threads(kind, name, bytes)?;
            say(&mut paper, (kind, name, bytes), &outcomes)?;
            paper.figures.push(figure);
        }
    }
    paper.figures.push(nodes()?);
    paper.figures.push(workers()?);
    paper.figures.push(places(&mut paper.headlines)?);
    paper.figures.push(programs()?);
    small_writes(&mut paper.headlines)?;
    Ok(paper)
}

fn setting(machine: &Machine, system: System, workload: Workload) -> Setting {
    let time = if workload.longest() < 64 << 10 { [1e6, 1e7] } else { [5e7, 3e8] };
    Setting { machine: machine.clone(), system, workload, others: Vec::new(), seed: 1, time }
}

/// Throughput by the number of threads, and what the memory could do.
fn threads(kind: Kind, name: &str, bytes: u64) -> Result<(Figure, Outcomes), Refused> {
    let machine = machine(MACHINE)?;
    let line = |name: &&str| {
        let fio = |threads: &u32| {
            let workload = Workload::fio(kind, bytes, *threads);
            (f64::from(*threads), setting(&machine, system(name), workload))
        };
        ((*name).to_owned(), THREADS.iter().map(fio).collect())
    };
    let plan = Plan {
        name: &format!("odinfs-{name}-{}k", bytes >> 10),
        title: format!("{name}s of {} KiB, private files, 8 nodes of 28 CPUs", bytes >> 10),
        x: "threads",
        y: "GiB/s",
        places: Vec::new(),
        lines: SYSTEMS.iter().map(line).collect(),
    };
    let (mut figure, outcomes) = plan.draw(gib)?;
    let raw = raw(&machine, kind, bytes) / 1024.0;
    let level = |rate| vec![(1.0, rate), (f64::from(ALL), rate)];
    figure.lines.push(("the memory".to_owned(), level(raw)));
    if bytes == LARGE {
        let name = format!("others in the paper: {} %", mark(kind));
        figure.lines.push((name, level(raw * mark(kind) / 100.0)));
    }
    Ok((figure, outcomes))
}

/// What file systems before OdinFS get of what the memory can do, %: the marks of the deck's
/// figure of calls of 2 MiB, which is of writes first.
fn mark(kind: Kind) -> f64 {
    match kind {
        Kind::Read => 19.0,
        Kind::Write => 47.0,
    }
}

/// What all nodes' memory moves at best, MiB/s.
fn raw(machine: &Machine, kind: Kind, bytes: u64) -> f64 {
    machine.access(kind).local.peak(bytes).1 * f64::from(machine.nodes)
}

fn say(
    paper: &mut Paper,
    (kind, name, bytes): (Kind, &str, u64),
    outcomes: &Outcomes,
) -> Result<(), Refused> {
    let last = THREADS.len() - 1;
    let mut add = |what: String, published, simulated| {
        paper.headlines.push(Headline { what, published, simulated });
    };
    let size = if bytes == LARGE { "2 MiB" } else { "4 KiB" };
    if bytes == LARGE {
        let raw = raw(&machine(MACHINE)?, kind, bytes);
        let part = 100.0 * outcomes.rate("ext4-raid0", last) / raw;
        let what = format!("{size} {name}s, ext4 on RAID0 by 224 threads, % of the memory's");
        add(what, Some(mark(kind)), part);
        let rates: Vec<f64> = (0..=last).map(|at| outcomes.rate("ext4-dax", at)).collect();
        let best = rates.iter().copied().fold(0.0, f64::max);
        // the last number of threads at which it is still within a tenth of its best
        let until =
            (0..=last).rev().find(|at| rates[*at] >= 0.9 * best).map_or(0, |at| THREADS[at]);
        let published = if kind == Kind::Write { 8.0 } else { 56.0 };
        let what = format!("{size} {name}s on one node collapse after so many threads");
        add(what, Some(published), f64::from(until));
    }
    let ahead = outcomes.rate("nearside", last) / outcomes.rate("odinfs", last);
    add(format!("{size} {name}s by 224 threads, Nearside to OdinFS"), None, ahead);
    Ok(())
}

/// Throughput by the number of nodes, threads on all of them.
fn nodes() -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let mut lines = Vec::new();
    for name in ["odinfs", "nearside"] {
        for (kind, says) in KINDS.into_iter().zip(NAMES) {
            let of = |nodes: u32| {
                let machine = Machine { nodes, ..machine.clone() };
                let workload = Workload::fio(kind, LARGE, 28 * nodes);
                (f64::from(nodes), setting(&machine, system(name), workload))
            };
            lines.push((format!("{name}, {says}"), [1, 2, 4, 8].map(of).into()));
        }
    }
    let title = "2 MiB, 28 threads a node".to_owned();
    let (x, y, places) = ("nodes", "GiB/s", Vec::new());
    Ok(Plan { name: "odinfs-nodes", title, x, y, places, lines }.draw(gib)?.0)
}

/// Throughput by the number of OdinFS's workers.
fn workers() -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let mut lines = Vec::new();
    for (kind, says) in KINDS.into_iter().zip(NAMES) {
        let of = |workers: u32| {
            let system = System { workers: Some(workers), ..system("odinfs") };
            let workload = Workload::fio(kind, LARGE, ALL);
            (f64::from(workers), setting(&machine, system, workload))
        };
        lines.push((says.to_owned(), [1, 2, 4, 8, 12, 16, 28].map(of).into()));
    }
    let title = "OdinFS, 2 MiB by 224 threads".to_owned();
    let (x, y, places) = ("workers a node", "GiB/s", Vec::new());
    Ok(Plan { name: "odinfs-workers", title, x, y, places, lines }.draw(gib)?.0)
}

/// The same copies, between memory of a node and threads there or on the next one.
fn places(headlines: &mut Vec<Headline>) -> Result<Figure, Refused> {
    let mut lines = Vec::new();
    for (name, made) in [("local", Made::There), ("remote", Made::Beside)] {
        let mut points = Vec::new();
        for of in ["optane-2-sockets", MACHINE] {
            for (kind, threads) in [(Kind::Read, 28), (Kind::Write, 8)] {
                let workload =
                    Workload { made, on_nodes: 1, ..Workload::fio(kind, LARGE, threads) };
                let setting = setting(&machine(of)?, System::default(), workload);
                points.push((points.len() as f64, setting));
            }
        }
        lines.push((name.to_owned(), points));
    }
    let says = ["2 sockets, read", "2 sockets, write", "8 sockets, read", "8 sockets, write"];
    let places = says.map(str::to_owned).into();
    let title = "copies of 2 MiB, without a file system, one node's memory".to_owned();
    let plan = Plan { name: "odinfs-places", title, x: "", y: "GiB/s", places, lines };
    let (figure, outcomes) = plan.draw(gib)?;
    // measured on two sockets
    for (place, what, published) in [(0, "reads", 1.0), (1, "writes", 7168.0 / 7751.0)] {
        let simulated = outcomes.rate("remote", place) / outcomes.rate("local", place);
        let what = format!("2 MiB {what} on two sockets, remote to local");
        headlines.push(Headline { what, published: Some(published), simulated });
    }
    Ok(figure)
}

/// Filebench, as many threads as CPUs.
fn programs() -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let programs = personality::odinfs(ALL);
    let line = |name: &&str| {
        let of = |(place, it): (usize, &Personality)| {
            let workload = it.workload.clone();
            let setting = Setting { time: [5e7, 3e8], ..setting(&machine, system(name), workload) };
            (place as f64, setting)
        };
        ((*name).to_owned(), programs.iter().enumerate().map(of).collect())
    };
    let lines = SYSTEMS.iter().map(line).collect();
    let places = programs.iter().map(|it| it.name.to_owned()).collect();
    let title = "Filebench by 224 threads, 8 nodes of 28 CPUs".to_owned();
    let plan = Plan { name: "odinfs-filebench", title, x: "", y: "GiB/s", places, lines };
    Ok(plan.draw(gib)?.0)
}

/// What is asked of ours: 1.3 times OdinFS.
fn small_writes(headlines: &mut Vec<Headline>) -> Result<(), Refused> {
    let machine = machine(MACHINE)?;
    for threads in [1, 32] {
        let of = |name| {
            let workload =
                Workload { is_spread: true, ..Workload::fio(Kind::Write, BLOCK, threads) };
            setting(&machine, system(name), workload)
        };
        let rates = run_all(&[of("nearside"), of("odinfs")])?;
        let simulated = rates[0].rate() / rates[1].rate();
        let what =
            format!("4 KiB writes, threads on all nodes, {threads} in all: Nearside to OdinFS");
        headlines.push(Headline { what, published: None, simulated });
    }
    Ok(())
}
