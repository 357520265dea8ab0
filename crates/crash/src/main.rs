//! `nearside-crash`: explores crash states, or repeats one.
#![forbid(unsafe_code)]

use crash::adequacy::{Adequacy, adequacy};
use crash::catalog;
use crash::chain::Chain;
use crash::explore::{Settings, explore, repeat};
use crash::flips::{Closed, Flips};
use crash::images::Shape;
use crash::pairs::Pair;
use crash::plan::Kind;
use crash::recording::{Start, Workload, record};
use crash::report::{Crash, Report};
use crash::run::{Plan, run};
use crash::select::decode;
use crash::turns::Schedule;
use pmem::Domain;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: nearside-crash run [--minutes M] [--seed S] [--threads T] [--from N] [--to N] [--kind K]
       nearside-crash repeat --domain D --start S --ops A,B --cpu C --point P --kept K
                             [--inner-point P --inner-kept K]
       nearside-crash repeat --domain D --start S --ops A,B [--cpu C] [--turns T] [--seed S]
       nearside-crash chain --slices N [--devices N] --crashes C --ops N --seed S
       nearside-crash mutants [--threads T]
       nearside-crash flips [--killed] [--every N] [--first B]

run explores workloads that the seed gives, from number N on, until the time is up: first all
sequences of one and two operations of the core, then by turns every operation from every start in
every domain (thoroughly), sequences of three, pairs of two threads, and chains of crashes; or of
one kind only: core, singles, triples, pairs, chains, mirrors, tiers, attached. Before that it
leaves out each flush, fence, sync and look at a checksum of the engine (not with --from), and
counts how many of these mutants it notices. It ends with the line
`states=N workloads=N mutants_killed=K/T violations=V`, and exits 1 if V is above 0, a mutant was
not noticed, or no workload was explored.

repeat makes exactly the crash that a failure printed, or explores all of these operations; chain
makes a chain of crashes; mutants lists who notices which; flips flips bits of a pool
that was closed, or killed.";

type Arguments = BTreeMap<String, String>;

/// What a command found: the line that it ends with, and whether all was well.
type Found = (String, bool);

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let verb = args.next().unwrap_or_default();
    let done = parse(args).and_then(|arguments| match verb.as_str() {
        "run" => run_plan(&arguments),
        "repeat" => repeat_one(&arguments).map(|report| told(&report)),
        "chain" => run_chain(&arguments).map(|report| told(&report)),
        "mutants" => run_mutants(&arguments),
        "flips" => run_flips(&arguments),
        _ => Err(format!("unknown command {verb:?}")),
    });
    match done {
        Ok((line, well)) => {
            println!("{line}");
            ExitCode::from(u8::from(!well))
        }
        Err(message) => {
            eprintln!("nearside-crash: {message}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn told(report: &Report) -> Found {
    println!("{report}");
    let violations = report.violations.len();
    let (states, workloads) = (report.states, report.workloads);
    (format!("states={states} workloads={workloads} violations={violations}"), violations == 0)
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::new();
    while let Some(arg) = args.next() {
        let Some(name) = arg.strip_prefix("--") else {
            return Err(format!("unexpected argument {arg:?}"));
        };
        let value = match name {
            "killed" => Some(String::new()),
            "minutes" | "seed" | "ops" | "threads" | "from" | "to" | "kind" | "start"
            | "domain" | "cpu" | "point" | "kept" | "turns" | "every" | "first" | "inner-point"
            | "inner-kept" | "slices" | "devices" | "crashes" => args.next(),
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

fn threads(arguments: &Arguments) -> Result<usize, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    number(arguments, "threads", threads)
}

fn run_plan(arguments: &Arguments) -> Result<Found, String> {
    let minutes: f64 = number(arguments, "minutes", 1.0)?;
    if !(0.0..=100_000.0).contains(&minutes) {
        return Err("--minutes is 0 to 100000".to_owned());
    }
    let kind = arguments.get("kind").map(|name| {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| format!("unknown kind {name:?}"))
    });
    let from_now = || Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let mut plan = Plan {
        deadline: from_now(),
        seed: number(arguments, "seed", 1)?,
        from: number(arguments, "from", 0)?,
        to: number(arguments, "to", u64::MAX)?,
        threads: threads(arguments)?,
        kind: kind.transpose()?,
    };
    println!("seed={} threads={}", plan.seed, plan.threads);
    let mutants = match plan.from {
        0 => adequacy(plan.threads, &|line| println!("{line}"))?,
        _ => Adequacy::default(),
    };
    // the time is for states: mutants take what they take
    plan.deadline = from_now();
    let (report, next) = run(&plan, &|line| println!("{line}"));
    println!("{report} next={next}");
    let (states, workloads) = (report.states, report.workloads);
    let (killed, violations) = (mutants.killed.len(), report.violations.len());
    let line = format!(
        "states={states} workloads={workloads} mutants_killed={killed}/{} violations={violations}",
        mutants.total()
    );
    // a run that comes to nothing has shown nothing
    Ok((line, workloads > 0 && violations == 0 && mutants.survived.is_empty()))
}

fn run_mutants(arguments: &Arguments) -> Result<Found, String> {
    let mutants = adequacy(threads(arguments)?, &|line| println!("{line}"))?;
    for (mutant, workload) in &mutants.killed {
        println!("killed: {mutant}, by {workload}");
    }
    for (mutant, why) in &mutants.equivalent {
        println!("equivalent: {mutant}: {why}");
    }
    let (killed, total) = (mutants.killed.len(), mutants.total());
    Ok((format!("mutants_killed={killed}/{total}"), killed == total))
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
    let recording = match arguments.get("turns") {
        Some(turns) => Pair { workload, schedule: schedule(turns)? }.record()?,
        None => record(&workload)?,
    };
    if !arguments.contains_key("point") {
        let seed = number(arguments, "seed", 1)?;
        let report = explore(&recording, &Settings::thorough(seed));
        report.violations.iter().for_each(|violation| println!("{violation}\n"));
        return Ok(report);
    }
    let first = crash("point", "kept")?;
    let inner = arguments.get("inner-point");
    let inner = inner.map(|_| crash("inner-point", "inner-kept")).transpose()?;
    let settings = Settings::thorough(1);
    let report = repeat(&recording, &settings, &first, inner.as_ref());
    report.violations.iter().for_each(|violation| println!("{violation}\n"));
    Ok(report)
}

/// First thread, its events before the other's, and that one's before its own again.
fn schedule(text: &str) -> Result<Schedule, String> {
    let numbers: Vec<usize> = text.split(',').filter_map(|part| part.parse().ok()).collect();
    match numbers[..] {
        [first @ 0..=1, before, between] => Ok(Schedule { first, before, between }),
        _ => Err("--turns is three numbers: 0 or 1, events, events".to_owned()),
    }
}

fn run_flips(arguments: &Arguments) -> Result<Found, String> {
    let every: usize = number(arguments, "every", 1)?;
    let closed = match arguments.contains_key("killed") {
        true => Closed::killed(&Shape::SMALL)?,
        false => Closed::new(&Shape::SMALL)?,
    };
    let bits = (number(arguments, "first", 0)?..closed.bits()).step_by(every.max(1));
    let flips = closed.flip(bits, None);
    flips.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
    let Flips { bits, seen, harmless, violations } = flips;
    let violations = violations.len();
    let line = format!("bits={bits} seen={seen} harmless={harmless} violations={violations}");
    Ok((line, violations == 0))
}

fn run_chain(arguments: &Arguments) -> Result<Report, String> {
    let slices: usize = number(arguments, "slices", 2)?;
    if !(1..=255).contains(&slices) {
        return Err("--slices is 1 to 255".to_owned());
    }
    let devices: usize = number(arguments, "devices", 0)?;
    if devices > 16 {
        return Err("--devices is 0 to 16".to_owned());
    }
    let seed = number(arguments, "seed", 1)?;
    let chain = Chain {
        shape: Shape { slices, devices, ..Shape::SMALL },
        crashes: number(arguments, "crashes", 6)?,
        ops: number(arguments, "ops", 6)?,
        seed,
    };
    let report = chain.run(&chain.settings());
    report.violations.iter().for_each(|violation| println!("{violation}\n"));
    Ok(report)
}
