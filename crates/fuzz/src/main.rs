//! `nearside-fuzz`: uses damaged and hostile images for a time, or repeats one case.
#![forbid(unsafe_code)]

use fuzz::case::Corpus;
use fuzz::runner::{Settings, run, scratch};
use fuzz::targets;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: nearside-fuzz run
       nearside-fuzz repeat NUMBER [DIRECTORY]
       nearside-fuzz corpus
       nearside-fuzz seeds DIRECTORY
       nearside-fuzz input TARGET FILE

run uses images for NEARSIDE_FUZZ_SECONDS (60), from case NEARSIDE_FUZZ_SEED (1) on, and exits 1 if
a case failed. repeat runs one case, and leaves its image in DIRECTORY, if one is given.

corpus lists the images that cases start from, each with its checksum: where these are the same,
numbers mean the same cases. (An image knows the boot of the machine that made it.)

seeds writes what the fuzz targets of scripts/libfuzzer begin with, by target. input runs a target
with the bytes of FILE.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match &words[..] {
        ["run"] => run_all(),
        ["repeat", number] => repeat(number, None),
        ["repeat", number, dir] => repeat(number, Some(Path::new(dir))),
        ["corpus"] => corpus(),
        ["seeds", dir] => seeds(Path::new(dir)),
        ["input", target, file] => input(target, Path::new(file)),
        // the runner's own
        ["worker", dir, first, step] => match (first.parse(), step.parse()) {
            (Ok(first), Ok(step)) => {
                fuzz::worker::work(Path::new(dir), first, step);
                ExitCode::SUCCESS
            }
            _ => usage("worker needs numbers"),
        },
        _ => usage("unknown arguments"),
    }
}

fn usage(message: &str) -> ExitCode {
    eprintln!("nearside-fuzz: {message}\n\n{USAGE}");
    ExitCode::from(2)
}

fn run_all() -> ExitCode {
    let program = std::env::current_exe().unwrap_or_default();
    let settings = match Settings::from_environment(&program.to_string_lossy(), 1, 60) {
        Ok(settings) => settings,
        Err(message) => return usage(&message),
    };
    match run(&settings) {
        Ok(report) => {
            print!("seed={} {report}", settings.seed);
            ExitCode::from(u8::from(!report.failures.is_empty()))
        }
        Err(error) => usage(&error.to_string()),
    }
}

fn corpus() -> ExitCode {
    let Ok(scratch) = scratch() else { return usage("corpus needs room for the images") };
    fuzz::worker::prepare();
    for seed in Corpus::make(scratch.path()).seeds() {
        println!("{:08x} {}", seed.image.checksum(), seed.name);
    }
    ExitCode::SUCCESS
}

fn seeds(dir: &Path) -> ExitCode {
    match targets::write_seeds(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => usage(&format!("{}: {error}", dir.display())),
    }
}

fn input(target: &str, file: &Path) -> ExitCode {
    match std::fs::read(file) {
        Ok(bytes) => targets::run(target, &bytes),
        Err(error) => return usage(&format!("{}: {error}", file.display())),
    }
    ExitCode::SUCCESS
}

fn repeat(number: &str, dir: Option<&Path>) -> ExitCode {
    let (Ok(number), Ok(scratch)) = (number.parse(), scratch()) else {
        return usage("repeat needs a number, and room for the image");
    };
    fuzz::worker::prepare();
    let corpus = Corpus::make(scratch.path());
    let case = corpus.case(number);
    println!("case {number}: {}", case.story);
    if let Some(dir) = dir {
        case.write(dir);
    }
    println!("{:?}", case.run(&scratch.path().join("image")));
    ExitCode::SUCCESS
}
