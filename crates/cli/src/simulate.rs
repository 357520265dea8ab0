//! `nearside simulate`: what threads would get of a machine that is not here.

mod asked;
mod fit;
mod paper;
mod published;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use nearside_bench::{Words, draw};
use placement::{Kind, Machine};
use serde::Serialize;
use sim::{Outcome, SYSTEMS, Setting, System, Trace, Workload, run as simulated};

use crate::error::{Error, Result};
use crate::output;
use crate::size::{self, show};
use crate::stats::nanos;
use asked::Asked;

/// Milliseconds of a run where nobody says.
const MILLISECONDS: u32 = 50;
/// Calls for each thread from which on a run is long enough,
const CALLS_EACH: u64 = 8;
/// and the longest one, ns.
const LONGEST: f64 = 1e11;

/// Arguments of `simulate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside simulate
  nearside simulate --machine optane-8-sockets --kind write --bytes 2M --threads 1,8,28,224
  nearside simulate --machine my-machine.toml --system nearside --json
  nearside simulate --system odinfs --system nearside --kind read --bytes 4K --pictures /tmp
  nearside simulate --workload fileserver --threads 28,224
  nearside simulate --list
  nearside simulate --trace calls --system nearside --system odinfs
  nearside simulate --published
  nearside simulate --fit
  nearside simulate --paper odinfs --out figures

Threads with a file each read or write one call after the other, on a machine of which a file says
what its memory can do (see the manual), with file systems of which is known where data goes and who
copies it, and no more. Who copies is decided by the engine's own policy. The same seed gives the
same.")]
pub struct SimulateArgs {
    /// The machine: a file, or one that comes along by its name.
    #[arg(long, value_name = "MACHINE", default_value = "optane-8-sockets")]
    pub machine: PathBuf,
    /// A file system by its name, as --list says; once for each [default: all].
    #[arg(long = "system", value_name = "NAME")]
    pub systems: Vec<String>,
    /// What calls do.
    #[arg(long, value_enum, default_value_t = Calls::Write)]
    pub kind: Calls,
    /// Bytes of a call.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "2M")]
    pub bytes: u64,
    /// A program instead: Filebench's or YCSB's by its name, or of a file that describes it (see
    /// the manual).
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["kind", "bytes", "fit"])]
    #[arg(conflicts_with_all = ["list", "published", "paper"])]
    pub workload: Option<PathBuf>,
    /// Numbers of threads [default: 1 to 224; of a program as many as it has].
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub threads: Vec<u32>,
    /// Nodes on which the threads run, the first ones [default: all, one after the other].
    #[arg(long, value_name = "N")]
    pub on_nodes: Option<u32>,
    /// Threads go round the nodes, and do not fill one before the next.
    #[arg(long)]
    pub spread: bool,
    /// Milliseconds of the machine that count; a tenth as much goes before [default: 50, or as many
    /// as it takes until there are eight calls for each thread; of a recording its own time, up to
    /// 100 s, and nothing before].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub milliseconds: Option<u32>,
    /// What chance follows from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The calls that were recorded in this file (see nearside trace), again and again: of its
    /// threads, with their pauses, on the nodes where they ran, about files that begin where they
    /// do, and of which the rest lies as the file system lays it.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["kind", "bytes", "workload", "threads", "on_nodes", "spread"])]
    #[arg(conflicts_with_all = ["list", "published", "fit", "paper"])]
    pub trace: Option<PathBuf>,
    /// Put a picture into this directory, as SVG.
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Print what is said beside what others have measured on two sockets of Optane, and how far
    /// off it is.
    #[arg(long, conflicts_with_all = ["list", "pictures"])]
    pub published: bool,
    /// Fit the machine's numbers to that anew, and print them, where each is from, how far off each
    /// row is, and how far with the numbers that follow without its table.
    #[arg(long, conflicts_with_all = ["list", "published", "pictures"])]
    pub fit: bool,
    /// Run what a paper shows (odinfs, jericho, dragonfly), with ours beside it, and print what it
    /// says in numbers and what the runs say; up to some minutes.
    #[arg(long, value_name = "PAPER", value_parser = PossibleValuesParser::new(sim::PAPERS))]
    #[arg(conflicts_with_all = ["list", "published", "fit", "pictures"])]
    pub paper: Option<String>,
    /// Put each figure of the paper into this directory, as SVG, and its numbers as CSV.
    #[arg(long, value_name = "DIR", requires = "paper")]
    pub out: Option<PathBuf>,
    /// List the file systems and the machines that come along, and where their numbers are from.
    #[arg(long)]
    pub list: bool,
    /// Print JSON; bytes, nanoseconds, and MiB a second.
    #[arg(long)]
    pub json: bool,
}

/// What calls do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Calls {
    /// They read.
    Read,
    /// They write.
    Write,
}

impl Calls {
    fn kind(self) -> Kind {
        match self {
            Calls::Read => Kind::Read,
            Calls::Write => Kind::Write,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Calls::Read => "reads",
            Calls::Write => "writes",
        }
    }
}

#[derive(Serialize)]
struct Report {
    machine: String,
    source: String,
    /// What calls did, and their bytes; of recorded ones the longest one's.
    calls: String,
    bytes: u64,
    seed: u64,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    system: &'static str,
    threads: u32,
    mib_per_s: f64,
    calls: u64,
    mean_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
    /// The part of the bytes that callers on other nodes copied.
    remote_part: f64,
    /// How often threads moved to another node, and bytes of data that did.
    thread_moves: u64,
    moved_bytes: u64,
    nodes: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    local_bytes: u64,
    remote_bytes: u64,
    worker_bytes: u64,
}

#[derive(Serialize)]
struct Known {
    name: &'static str,
    source: String,
}

/// Simulates.
pub fn run(args: &SimulateArgs) -> Result<()> {
    if args.list {
        return list(args.json);
    }
    if let Some(name) = &args.paper {
        return paper::run(name, args.out.as_deref(), args.json);
    }
    if args.published {
        return published::run(args.json);
    }
    if args.fit {
        return fit::run(args.json);
    }
    let machine = nearside_bench::machine(&args.machine)?;
    let systems = match args.systems.is_empty() {
        true => SYSTEMS.to_vec(),
        false => args.systems.iter().map(|name| known(name)).collect::<Result<_>>()?,
    };
    let asked = Asked::of(args, &machine)?;
    let mut runs = Vec::new();
    for system in &systems {
        for workload in &asked.workloads {
            runs.push(one(args, &machine, system, workload)?);
        }
    }
    if let Some(dir) = &args.pictures {
        let line = |system: &System| {
            let its = runs.iter().filter(|run| run.system == system.name);
            let points = its.map(|run| (f64::from(run.threads), run.mib_per_s)).collect();
            (system.name.to_owned(), points)
        };
        let lines: Vec<(String, Vec<(f64, f64)>)> = systems.iter().map(line).collect();
        let title = format!("{}, {}", machine.name, asked.title());
        let words = Words { title: &title, x: "threads", y: "MiB/s", places: &[] };
        let name: String = asked.calls.chars().filter(|it| it.is_alphanumeric()).collect();
        draw(dir, &format!("simulate-{name}-{}", asked.bytes), words, &lines)?;
    }
    let Machine { name, source, .. } = machine;
    let Asked { calls, bytes, workloads, trace } = asked;
    let report = Report { machine: name, source, calls, bytes, seed: args.seed, runs };
    let threads: Vec<u32> = workloads.iter().map(|workload| workload.threads).collect();
    match (args.json, trace) {
        (true, _) => output::json(&report),
        (false, None) => output::text(&text(&report, &threads)),
        (false, Some(trace)) => output::text(&text_of_trace(&report, &trace)),
    }
}

fn known(name: &str) -> Result<System> {
    System::known(name).ok_or_else(|| {
        let names: Vec<_> = SYSTEMS.iter().map(|system| system.name).collect();
        Error::Usage(format!("no file system {name} is known; there are {}", names.join(", ")))
    })
}

fn one(
    args: &SimulateArgs,
    machine: &Machine,
    system: &System,
    workload: &Workload,
) -> Result<Run> {
    let threads = workload.threads;
    // a recording is played once, and then what comes of it again is none of it
    let span = workload.trace.as_ref().map(|trace| trace.span_ns.clamp(1e6, LONGEST));
    let asked = args.milliseconds.map(|it| f64::from(it) * 1e6);
    let counted = asked.or(span).unwrap_or(f64::from(MILLISECONDS) * 1e6);
    let before = if span.is_some() && asked.is_none() { 0.0 } else { counted / 10.0 };
    let mut setting = Setting {
        machine: machine.clone(),
        system: system.clone(),
        workload: workload.clone(),
        others: Vec::new(),
        seed: args.seed,
        time: [before, counted],
    };
    let refused = |refused: sim::Refused| Error::Usage(refused.to_string());
    let mut outcome = simulated(&setting).map_err(refused)?;
    let enough = CALLS_EACH * u64::from(threads);
    while args.milliseconds.is_none()
        && span.is_none()
        && outcome.latency.calls() < enough
        && setting.time[1] < LONGEST
    {
        setting.time = setting.time.map(|time| time * 4.0);
        outcome = simulated(&setting).map_err(refused)?;
    }
    let Outcome { latency, nodes, .. } = &outcome;
    let node = |node: &sim::NodeOutcome| Node {
        local_bytes: node.local,
        remote_bytes: node.remote,
        worker_bytes: node.workers,
    };
    Ok(Run {
        system: system.name,
        threads,
        mib_per_s: outcome.rate(),
        calls: latency.calls(),
        mean_ns: latency.mean(),
        p50_ns: latency.quantile(0.5),
        p99_ns: latency.quantile(0.99),
        remote_part: outcome.remote_part(),
        thread_moves: outcome.thread_moves,
        moved_bytes: outcome.moved_bytes,
        nodes: nodes.iter().map(node).collect(),
    })
}

/// A line for each number of threads, a column for each system.
fn text(report: &Report, threads: &[u32]) -> String {
    let bytes = show(report.bytes);
    let mut text = format!("{}, {} of {bytes}: MiB/s\n", report.machine, report.calls);
    let names = report.runs.chunks(threads.len().max(1)).filter_map(|its| its.first());
    let names: String = names.map(|run| format!("{:>12}", run.system)).collect();
    text.push_str(&format!("THREADS{names}\n"));
    for (index, count) in threads.iter().enumerate() {
        text.push_str(&format!("{count:>7}"));
        let its = report.runs.iter().skip(index).step_by(threads.len());
        its.for_each(|run| text.push_str(&format!("{:>12.0}", run.mib_per_s)));
        text.push('\n');
    }
    text
}

/// A line for each system.
fn text_of_trace(report: &Report, trace: &Trace) -> String {
    let mut text = format!(
        "{}: {} recorded calls in {:.1} s, of {} threads about {} files; {} more were lost\n",
        report.machine,
        trace.calls(),
        trace.span_ns / 1e9,
        trace.threads.len(),
        trace.files.len(),
        trace.lost,
    );
    let heads = ["SYSTEM", "CALLS", "MIB/S", "MEAN", "P99", "REMOTE", "THREADS MOVED", "MOVED"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(report.runs.iter().map(|run| {
        vec![
            run.system.to_owned(),
            run.calls.to_string(),
            format!("{:.0}", run.mib_per_s),
            nanos(run.mean_ns as u64),
            nanos(run.p99_ns as u64),
            format!("{:.0} %", run.remote_part * 100.0),
            run.thread_moves.to_string(),
            show(run.moved_bytes),
        ]
    }));
    text.push_str(&output::table(&rows));
    text
}

fn list(json: bool) -> Result<()> {
    let system = |it: &System| Known { name: it.name, source: it.source.to_owned() };
    let systems: Vec<Known> = SYSTEMS.iter().map(system).collect();
    let machine = |(name, text): &(&'static str, &str)| {
        let source = sim::parse(text).map(|machine| machine.source).unwrap_or_default();
        Known { name, source }
    };
    let machines: Vec<Known> = sim::KNOWN.iter().map(machine).collect();
    if json {
        return output::json(&serde_json::json!({ "systems": systems, "machines": machines }));
    }
    let mut text = String::new();
    for (title, all) in [("file systems", systems), ("machines", machines)] {
        text.push_str(&format!("{title}\n"));
        all.iter().for_each(|it| text.push_str(&format!("  {}: {}\n", it.name, it.source)));
    }
    output::text(&text)
}
