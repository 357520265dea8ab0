//! `nearside-history`: calls at all doors of a pool at once, recorded and checked.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use history::run::{Settings, Totals, canaries, run};
use history::{HostKind, Kind, Mutant, Result, owner, worker};

const USAGE: &str = "\
usage: nearside-history run --checker PROGRAM [--seed S] [--from N] [--minutes M] [--calls N]
                            [--kind K] [--host H] [--mount no] [--away no]
                            [--nearside PROGRAM] [--keep DIR]
       nearside-history canaries --checker PROGRAM [--keep DIR]

run makes histories that the seed gives, from number N on, until the time is up, and has each
checked; it exits 1 where one is not explained, or was not checked in time. Kinds: data,
transactions, pages, links, renames. Hosts: owner, serve. canaries makes histories of callers that
do wrong, each of which must be noticed. A mount over a network is a door of every second history of
pages or more; with --away no of none.";

type Arguments = BTreeMap<String, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match *words {
        ["work", process, place, first, ref nearside @ ..] => number_of(first).and_then(|it| {
            worker::run(process, Path::new(place), it, nearside.first().map(Path::new))
        }),
        ["own", pool, mnt] => owner::run(Path::new(pool), (mnt != "-").then_some(Path::new(mnt))),
        ["run", ..] => parse(&args[1..]).and_then(|it| run_all(&settings(&it)?)),
        ["canaries", ..] => parse(&args[1..]).and_then(|it| run_canaries(&settings(&it)?)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nearside-history: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number_of(word: &str) -> Result<u32> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn parse(args: &[String]) -> Result<Arguments> {
    let pairs = args.chunks(2).map(|pair| match pair {
        [name, value] => match name.strip_prefix("--") {
            Some(name) => Ok((name.to_owned(), value.clone())),
            None => Err(format!("unexpected argument {name:?}")),
        },
        _ => Err(format!("{pair:?} needs a value")),
    });
    pairs.collect()
}

fn number<T: std::str::FromStr>(arguments: &Arguments, name: &str, or: T) -> Result<T> {
    match arguments.get(name) {
        None => Ok(or),
        Some(text) => text.parse().map_err(|_| format!("--{name} {text} is no number")),
    }
}

/// One of what serde knows by these names.
fn one<T: serde::de::DeserializeOwned>(arguments: &Arguments, name: &str) -> Result<Option<T>> {
    let parse = |text: &String| {
        let quoted = format!("{text:?}");
        serde_json::from_str(&quoted).map_err(|_| format!("--{name} {text} is not known"))
    };
    arguments.get(name).map(parse).transpose()
}

fn settings(arguments: &Arguments) -> Result<Settings> {
    let known = [
        "away", "checker", "seed", "from", "minutes", "calls", "kind", "host", "mount", "nearside",
        "keep",
    ];
    if let Some(name) = arguments.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("unknown option --{name}\n\n{USAGE}"));
    }
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let path = |name: &str| arguments.get(name).map(PathBuf::from);
    let nearside = path("nearside").unwrap_or_else(|| this.with_file_name("nearside"));
    let mut host: Option<HostKind> = one(arguments, "host")?;
    if !nearside.exists() {
        println!("no {}: nothing is tried with `nearside serve`", nearside.display());
        host = Some(HostKind::Owner);
    }
    let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let may_mount = arguments.get("mount").is_none_or(|word| word != "no");
    let mounts = may_mount && fuse.is_ok() && rustix::process::geteuid().is_root();
    if may_mount && !mounts {
        println!("mounting takes root and /dev/fuse: nothing is tried at the mount");
    }
    if let Err(error) = history::io_uring() {
        println!("io_uring is refused here ({error}): nothing is tried with it");
    }
    let minutes: f64 = number(arguments, "minutes", 1.0)?;
    Ok(Settings {
        seed: number(arguments, "seed", 1)?,
        from: number(arguments, "from", 0)?,
        time: Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())?,
        calls: number(arguments, "calls", 480)?,
        kind: one::<Kind>(arguments, "kind")?,
        host,
        checker: path("checker").ok_or("--checker is wanted: scripts/histories builds it")?,
        nearside,
        away: arguments.get("away").is_none_or(|word| word != "no"),
        mounts,
        keep: path("keep").unwrap_or_else(|| "histories".into()),
    })
}

fn run_all(settings: &Settings) -> Result<()> {
    let mut told = [0; 3];
    let mut tell = |totals: &Totals| {
        let verdicts = &totals.verdicts;
        let all = [&verdicts.illegal, &verdicts.unknown, &verdicts.unsearched];
        for (words, told) in all.into_iter().zip(&mut told) {
            words.iter().skip(*told).for_each(|words| println!("{words}"));
            *told = words.len();
        }
    };
    let totals = run(settings, &mut tell)?;
    let verdicts = &totals.verdicts;
    for (door, count) in &verdicts.doors {
        println!("{count} calls by {door}");
    }
    for (event, count) in &totals.events {
        println!("{count} {event}");
    }
    println!(
        "seed={} histories={}..{} calls={} unfinished={} illegal={} unknown={} unsearched={}",
        settings.seed,
        settings.from,
        totals.next,
        verdicts.calls,
        verdicts.unfinished,
        verdicts.illegal.len(),
        verdicts.unknown.len(),
        verdicts.unsearched.len()
    );
    if verdicts.are_hardly_searched() {
        return Err("of too many histories of pages the search did not end".into());
    }
    let bad = verdicts.illegal.len() + verdicts.unknown.len();
    match (bad, verdicts.histories) {
        (_, 0) => Err("no history was made".into()),
        (0, _) => Ok(()),
        _ => Err(format!("{bad} histories; they are in {}", settings.keep.display())),
    }
}

fn run_canaries(settings: &Settings) -> Result<()> {
    // no caller there does wrong
    let canaries = canaries(&Settings { away: false, ..settings.clone() })?;
    let mut missed = Vec::new();
    for ((mutant, kind, door), noticed) in &canaries {
        match noticed {
            Some(count) => println!("{mutant:?} by {door:?}, {kind:?}: noticed in {count}"),
            None => missed.push((mutant, door)),
        }
    }
    let all = Mutant::ALL.len();
    println!(
        "{} of {all} mutants noticed, {} have no door here",
        canaries.len() - missed.len(),
        all - canaries.len()
    );
    match missed.is_empty() {
        true => Ok(()),
        false => Err(format!("not noticed: {missed:?}")),
    }
}
