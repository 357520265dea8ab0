//! Dragonfly (AMGCC'21): two sockets of Optane, Filebench.
//!
//! Threads of the program run on one node, its files were made on the other. Where that one's
//! memory is *overloaded*, 14 threads there write 256 KiB at a time to files of their own; how it
//! was overloaded the paper's deck does not say, and it is assumed, as is that runs are 10 s long.

use placement::{DataRule, Kind, Machine, ThreadRule};

use super::{Figure, Headline, Outcomes, Paper, Plan, gib, machine, system};
use crate::personality::{self, Personality};
use crate::setting::{Refused, Setting};
use crate::system::{Moves, System};
use crate::workload::{Made, Workload};

const MACHINE: &str = "optane-2-sockets";
const SYSTEMS: [&str; 4] = ["nova", "nthread", "dragonfly", "nearside"];
/// Threads that overload a memory.
const OVERLOAD: u32 = 14;
/// Bytes that they write at a time.
const OVERLOAD_BYTES: u64 = 256 << 10;
/// For how long they are at it before the program begins, ns.
const BEFORE_NS: f64 = 1e8;
/// The whole of a run, ns.
const RUN_NS: f64 = 10e9;

pub fn paper() -> Result<Paper, Refused> {
    let mut paper = Paper::default();
    for is_heavy in [true, false] {
        for is_overloaded in [true, false] {
            programs(&mut paper, is_heavy, is_overloaded)?;
        }
    }
    average(&mut paper.headlines);
    paper.figures.push(remote_part()?);
    paper.figures.push(windows()?);
    paper.figures.push(runtimes()?);
    Ok(paper)
}

fn setting(machine: &Machine, system: System, workload: &Workload, is_overloaded: bool) -> Setting {
    let others = Workload {
        on_nodes: 1,
        is_pinned: true,
        is_bare: true,
        ..Workload::fio(Kind::Write, OVERLOAD_BYTES, OVERLOAD)
    };
    Setting {
        machine: machine.clone(),
        system,
        workload: Workload {
            from_node: 1,
            on_nodes: 1,
            from_ns: BEFORE_NS,
            made: if workload.made == Made::There { Made::On(0) } else { workload.made },
            ..workload.clone()
        },
        others: if is_overloaded { vec![others] } else { Vec::new() },
        seed: 1,
        time: [BEFORE_NS, RUN_NS],
    }
}

fn programs(paper: &mut Paper, is_heavy: bool, is_overloaded: bool) -> Result<(), Refused> {
    let machine = machine(MACHINE)?;
    let all = personality::dragonfly(is_heavy);
    let line = |name: &&str| {
        let of = |(place, it): (usize, &Personality)| {
            (place as f64, setting(&machine, system(name), &it.workload, is_overloaded))
        };
        ((*name).to_owned(), all.iter().enumerate().map(of).collect())
    };
    let (load, memory) = (
        if is_heavy { "heavy" } else { "light" },
        if is_overloaded { "overloaded" } else { "normal" },
    );
    let plan = Plan {
        name: &format!("dragonfly-{load}-{memory}"),
        title: format!("Filebench, {load}; the memory where its files are is {memory}"),
        x: "",
        y: "GiB/s",
        places: all.iter().map(|it| it.name.to_owned()).collect(),
        lines: SYSTEMS.iter().map(line).collect(),
    };
    let (figure, outcomes) = plan.draw(gib)?;
    for (place, it) in all.iter().enumerate() {
        let to = |name: &str, other: &str| outcomes.rate(name, place) / outcomes.rate(other, place);
        for (one, other) in
            [("dragonfly", "nthread"), ("nearside", "dragonfly"), ("nearside", "nthread")]
        {
            paper.headlines.push(Headline {
                what: format!("{}, {load}, {memory}: {one} to {other}", it.name),
                published: None,
                simulated: to(one, other),
            });
        }
    }
    paper.figures.push(figure);
    Ok(())
}

/// Dragonfly's gain over NThread for programs that read more than they write, overloaded.
fn average(headlines: &mut Vec<Headline>) {
    let is_one = |it: &&Headline| {
        it.what.ends_with("overloaded: dragonfly to nthread") && !it.what.starts_with("fileserver")
    };
    let gains: Vec<f64> = headlines.iter().filter(is_one).map(|it| it.simulated).collect();
    let average = gains.iter().sum::<f64>() / gains.len().max(1) as f64;
    let most = gains.iter().copied().fold(0.0, f64::max);
    for (what, published, simulated) in [("average", 3.26, average), ("most", 7.1, most)] {
        let what = format!("programs that read, overloaded: Dragonfly to NThread, {what}");
        headlines.push(Headline { what, published: Some(published), simulated });
    }
}

fn webserver() -> Workload {
    let mut all = personality::dragonfly(true);
    all.swap_remove(0).workload
}

/// What remote accesses take, by their part, and with the memory overloaded.
fn remote_part() -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let line = |(name, is_overloaded): (&str, bool)| {
        let of = |percent: u32| {
            let workload = Workload { made: Made::Partly(0, percent), ..webserver() };
            let setting = setting(&machine, system("nova"), &workload, is_overloaded);
            (f64::from(percent), Setting { time: [2.0 * BEFORE_NS, 5e8], ..setting })
        };
        (name.to_owned(), [0, 20, 40, 60, 80, 100].map(of).into())
    };
    let plan = Plan {
        name: "dragonfly-remote",
        title: "webserver (heavy) on NOVA".to_owned(),
        x: "% of its files on the other node",
        y: "GiB/s",
        places: Vec::new(),
        lines: [("normal", false), ("overloaded", true)].map(line).into(),
    };
    Ok(plan.draw(gib)?.0)
}

/// Gain over NThread, webserver (heavy), overloaded.
fn gains(name: &'static str, x: &'static str, lines: Lines) -> Result<Figure, Refused> {
    let title = "webserver (heavy), overloaded".to_owned();
    let plan = Plan { name, title, x, y: "times NThread", places: Vec::new(), lines };
    let (mut figure, outcomes): (Figure, Outcomes) = plan.draw(gib)?;
    figure.lines.retain(|line| line.0 != "nthread");
    for (_, points) in &mut figure.lines {
        for (place, point) in points.iter_mut().enumerate() {
            point.1 *= 1024.0 / outcomes.rate("nthread", place);
        }
    }
    Ok(figure)
}

type Lines = Vec<(String, Vec<(f64, Setting)>)>;

/// By the window.
fn windows() -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let line = |name: &&str| {
        let of = |seconds: u32| {
            let window_ns = f64::from(seconds) * 1e9;
            let at = system(name);
            let data = at.data_rule().map(|rule| DataRule { window_ns, ..rule });
            let thread: Option<ThreadRule> = at.thread_rule(&machine);
            let moves = Moves::Fixed(thread, data);
            let system = System { moves, ..at };
            (f64::from(seconds), setting(&machine, system, &webserver(), true))
        };
        ((*name).to_owned(), [1, 2, 4, 6, 8, 10].map(of).into())
    };
    let lines = ["nthread", "dragonfly", "nearside"].iter().map(line).collect();
    gains("dragonfly-windows", "window, s", lines)
}

/// By how long it runs.
fn runtimes() -> Result<Figure, Refused> {
    let machine = machine(MACHINE)?;
    let line = |name: &&str| {
        let of = |seconds: f64| {
            let setting = setting(&machine, system(name), &webserver(), true);
            (seconds, Setting { time: [BEFORE_NS, seconds * 1e9], ..setting })
        };
        ((*name).to_owned(), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0].map(of).into())
    };
    let lines = ["nthread", "dragonfly", "nearside"].iter().map(line).collect();
    gains("dragonfly-runtimes", "s", lines)
}
