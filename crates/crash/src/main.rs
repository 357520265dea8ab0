//! `nearside-crash`: explores crash states, or repeats one.
#![forbid(unsafe_code)]

use crash::catalog;
use crash::chain::Chain;
use crash::explore::{Settings, explore, repeat};
use crash::flips::Closed;
use crash::images::Shape;
use crash::recording::{Start, Workload, record};
use crash::report::{Crash, Report};
use crash::run::{Plan, run};
use crash::select::decode;
use pmem::Domain;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: nearside-crash run [--minutes M] [--seed S] [--ops N] [--threads T] [--sequences-only]
       nearside-crash repeat --domain D --start S --ops A,B --cpu C --point P --kept K
                             [--inner-point P --inner-kept K]
       nearside-crash repeat --domain D --start S --ops A,B [--seed S]
       nearside-crash chain --slices N --crashes C --ops N --seed S

run explores every single operation, then sequences of up to N operations chosen by the seed,
until the time is up; it ends with the line `states=N workloads=N violations=V`, and exits 1 if V
is above 0. repeat makes exactly the crash that a failure printed, or explores all of these
operations, chain the chain of crashes.";

type Arguments = BTreeMap<String, String>;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let verb = args.next().unwrap_or_default();
    let done = parse(args).and_then(|arguments| match verb.as_str() {
        "run" => run_plan(&arguments),
        "repeat" => repeat_one(&arguments),
        "chain" => run_chain(&arguments),
        "flips" => run_flips(&arguments),
        _ => Err(format!("unknown command {verb:?}")),
    });
    match done {
        Ok(report) => {
            let (states, workloads) = (report.states, report.workloads);
            println!("{report}");
            println!(
                "states={states} workloads={workloads} violations={}",
                report.violations.len()
            );
            ExitCode::from(u8::from(!report.violations.is_empty()))
        }
        Err(message) => {
            eprintln!("nearside-crash: {message}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::new();
    while let Some(arg) = args.next() {
        let Some(name) = arg.strip_prefix("--") else {
            return Err(format!("unexpected argument {arg:?}"));
        };
        let value = match name {
            "sequences-only" => Some(String::new()),
            "minutes" | "seed" | "ops" | "threads" | "start" | "domain" | "cpu" | "point" | "kept"
            | "every" | "first" | "inner-point" | "inner-kept" | "slices" | "crashes" => args.next(),
            _ => return Err(format!("unknown option --{name}")),
        };
        let value = value.ok_or_else(|| format!("--{name} needs a value"))?;
        arguments.insert(name.to_owned(), value);
    }
    Ok(arguments)
}

fn number<T: std::str::FromStr>(arguments: &Arguments, name: &str, or: T) -> Result<T, String> {
    match arguments.get(name) {
        None => Ok(or),
        Some(text) => text.parse().map_err(|_| format!("--{name} {text} is no number")),
    }
}

fn run_plan(arguments: &Arguments) -> Result<Report, String> {
    let minutes: f64 = number(arguments, "minutes", 1.0)?;
    if !(0.0..=100_000.0).contains(&minutes) {
        return Err("--minutes is 0 to 100000".to_owned());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan {
        time: Duration::from_secs_f64(minutes * 60.0),
        seed: number(arguments, "seed", 1)?,
        ops_max: number(arguments, "ops", 2)?,
        threads: number(arguments, "threads", threads)?,
        singles: !arguments.contains_key("sequences-only"),
    };
    println!("seed={} threads={}", plan.seed, plan.threads);
    Ok(run(&plan, &|line| println!("{line}")))
}

fn repeat_one(arguments: &Arguments) -> Result<Report, String> {
    let needed = |name: &str| arguments.get(name).ok_or_else(|| format!("repeat needs --{name}"));
    let start = needed("start")?;
    let start = Start::find(start).ok_or_else(|| format!("unknown start {start:?}"))?;
    let find = |name| catalog::find(name).ok_or_else(|| format!("unknown operation {name:?}"));
    let domain = needed("domain")?;
    let named = |domain: &Domain| domain.name();
    let domains = [Domain::CpuFlush, Domain::CpuCache, Domain::Sync];
    let domain = domains.into_iter().find(|known| named(known) == domain);
    let domain = domain.ok_or("--domain is cpu-flush, cpu-cache or sync")?;
    let ops = needed("ops")?.split(',').map(find).collect::<Result<Vec<_>, _>>()?;
    let crash = |point: &str, kept: &str| {
        let kept = decode(needed(kept)?).ok_or_else(|| format!("--{kept} makes no sense"))?;
        let point = needed(point)?.parse().map_err(|_| format!("--{point} is no number"))?;
        Ok::<Crash, String>(Crash { point, kept })
    };
    let workload = Workload { start, domain, ops, cpu: number(arguments, "cpu", 0)? };
    let recording = record(&workload)?;
    if !arguments.contains_key("point") {
        let seed = number(arguments, "seed", 1)?;
        let report = explore(&recording, &Settings::thorough(seed));
        report.violations.iter().for_each(|violation| println!("{violation}\n"));
        return Ok(report);
    }
    let first = crash("point", "kept")?;
    let inner = arguments.get("inner-point");
    let inner = inner.map(|_| crash("inner-point", "inner-kept")).transpose()?;
    let report = repeat(&recording, &first, inner.as_ref());
    report.violations.iter().for_each(|violation| println!("{violation}\n"));
    Ok(report)
}

fn run_flips(arguments: &Arguments) -> Result<Report, String> {
    let (every, first): (usize, u64) =
        (number(arguments, "every", 1)?, number(arguments, "first", 0)?);
    let closed = Closed::new(&Shape::SMALL)?;
    println!("{} bits are looked at", closed.bits());
    let flips = closed.flip((first..closed.bits()).step_by(every.max(1)), None);
    flips.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
    println!("bits={} seen={} harmless={}", flips.bits, flips.seen, flips.harmless);
    Ok(Report::default())
}

fn run_chain(arguments: &Arguments) -> Result<Report, String> {
    let slices: usize = number(arguments, "slices", 2)?;
    if !(1..=255).contains(&slices) {
        return Err("--slices is 1 to 255".to_owned());
    }
    let seed = number(arguments, "seed", 1)?;
    let chain = Chain {
        shape: Shape { slices, ..Shape::SMALL },
        crashes: number(arguments, "crashes", 6)?,
        ops: number(arguments, "ops", 6)?,
        seed,
    };
    let report = chain.run(&Chain::settings(seed));
    report.violations.iter().for_each(|violation| println!("{violation}\n"));
    Ok(report)
}
