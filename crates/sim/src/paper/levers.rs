//! Nearside's policy beside each of its levers alone: on what others ran, and more.

use placement::{Kind, NO_LIMIT, Policy, Side};

use super::{Headline, Paper, Plan, gib, machine, system};
use crate::personality;
use crate::setting::{Refused, Setting};
use crate::system::{Moves, Rule, System};
use crate::workload::{Made, Workload};

const K: u64 = 1 << 10;
/// Time for what moves to move, and then some to count, ns.
const TIME: [f64; 2] = [1e9, 2e8];
/// The same where calls are short, and there are many.
const SHORT_TIME: [f64; 2] = [2e8, 2e7];

/// What is run: a name, on which machine, who counts, and who does not.
type Case = (String, &'static str, Workload, Vec<Workload>);

/// Ours, and the same with one lever: callers copy, workers copy, callers copy and move, callers
/// copy and data moves.
fn levers() -> Vec<(&'static str, System)> {
    let all = system("nearside");
    let callers = System {
        rule: Rule::Callers,
        workers: Some(0),
        moves: Moves::None,
        spills: false,
        ..all.clone()
    };
    let side = Side { limit: NO_LIMIT, delegate_remote: 1, delegate_local: 1, ..Side::default() };
    let workers = System {
        rule: Rule::Fixed(Policy { read: side, write: side }),
        workers: Some(8),
        moves: Moves::None,
        spills: false,
        ..all.clone()
    };
    let Moves::Machine = all.moves else { return Vec::new() };
    let costs = 7500.0;
    let thread = Moves::Fixed(Some(placement::ThreadRule::weighs(costs)), None);
    let data = Moves::Fixed(None, all.data_rule());
    vec![
        ("ours", all),
        ("direct", callers.clone()),
        ("delegate", workers),
        ("move thread", System { moves: thread, ..callers.clone() }),
        ("move data", System { moves: data, ..callers }),
    ]
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (machine, all) in [("optane-8-sockets", 224), ("opteron-4-sockets", 64)] {
        for (kind, name) in [(Kind::Read, "reads"), (Kind::Write, "writes")] {
            for bytes in [4 * K, 2048 * K] {
                for threads in [1, all / 8, all] {
                    let fio = Workload::fio(kind, bytes, threads);
                    let workload = Workload { file_bytes: 16 * K * K, is_spread: true, ..fio };
                    let says = format!("{machine}, {threads} {name} {} KiB", bytes / K);
                    cases.push((says, machine, workload, Vec::new()));
                }
            }
        }
    }
    let two = "optane-2-sockets";
    let busy = Workload { on_nodes: 1, is_pinned: true, ..Workload::fio(Kind::Write, 256 * K, 14) };
    for others in [Vec::new(), vec![busy]] {
        let memory = if others.is_empty() { "normal" } else { "overloaded" };
        for it in personality::dragonfly(true).into_iter().chain(personality::ycsb(14)) {
            let workload = Workload {
                from_node: 1,
                on_nodes: 1,
                from_ns: 1e8,
                made: Made::On(0),
                ..it.workload
            };
            cases.push((format!("{}, {memory}", it.name), two, workload, others.clone()));
        }
    }
    cases
}

pub fn paper() -> Result<Paper, Refused> {
    let cases = cases();
    let line = |(name, system): (&str, System)| {
        let of = |(place, (_, on, workload, others)): (usize, &Case)| {
            let is_short = workload.longest() < 64 * K;
            let setting = Setting {
                machine: machine(on)?,
                system: system.clone(),
                workload: workload.clone(),
                others: others.clone(),
                seed: 1,
                time: if is_short { SHORT_TIME } else { TIME },
            };
            Ok((place as f64, setting))
        };
        let points: Result<_, Refused> = cases.iter().enumerate().map(of).collect();
        Ok((name.to_owned(), points?))
    };
    let plan = Plan {
        name: "nearside-levers",
        title: "Nearside, and each of its levers alone".to_owned(),
        x: "",
        y: "GiB/s",
        places: cases.iter().map(|case| case.0.clone()).collect(),
        lines: levers().into_iter().map(line).collect::<Result<_, Refused>>()?,
    };
    let (figure, outcomes) = plan.draw(gib)?;
    let mut paper = Paper::default();
    for (place, (name, ..)) in cases.iter().enumerate() {
        let others = figure.lines[1..].iter().map(|(name, _)| (outcomes.rate(name, place), name));
        let best =
            others.fold((0.0, ""), |best, it| if it.0 > best.0 { (it.0, it.1) } else { best });
        let simulated = outcomes.rate("ours", place) / best.0;
        let what = format!("{name}: ours to the best lever alone ({})", best.1);
        paper.headlines.push(Headline { what, published: None, simulated });
    }
    paper.figures.push(figure);
    Ok(paper)
}
