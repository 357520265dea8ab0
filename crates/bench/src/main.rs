//! `nearside-bench`: the rows from a binary of their own.

use clap::{Parser, Subcommand};
use nearside_bench::{Error, Options, Study, run_each, study, table};
use std::path::PathBuf;
use std::process::ExitCode;

/// What the engine costs, beside the floor of the same run.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory for the scratch pool (default: /dev/shm).
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
    /// Directory on a disk for the rows in the `sync` domain (default: the temporary directory).
    #[arg(long, global = true)]
    disk: Option<PathBuf>,
    /// Run this measurement only.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Play this machine where one is emulated: a file, or one that comes along by its name.
    #[arg(long, value_name = "MACHINE")]
    emulate: Option<PathBuf>,
    /// Put pictures of curves into this directory, as SVG.
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Fewer rounds and files: for a look, not for a record.
    #[arg(long, global = true)]
    quick: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Study(Study),
    /// Watch the locks of calls that make names, and play 224 threads with them.
    #[cfg(feature = "lock-trace")]
    Metadata,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nearside-bench: {error}");
            ExitCode::from(if error.is_usage() { 2 } else { 1 })
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let options = Options {
        dir: arguments.dir.clone(),
        disk: arguments.disk.clone(),
        only: arguments.only.clone(),
        quick: arguments.quick,
        emulate: arguments.emulate.as_deref().map(nearside_bench::machine).transpose()?,
        pictures: arguments.pictures.clone(),
    };
    if let Some(Verb::Study(asked)) = &arguments.verb {
        return study(&options, asked, arguments.json, &mut |text| print!("{text}"));
    }
    #[cfg(feature = "lock-trace")]
    if let Some(Verb::Metadata) = &arguments.verb {
        print!("{}", nearside_bench::metadata(&options)?);
        return Ok(());
    }
    let json = arguments.json;
    let rows = run_each(&options, &mut |row| {
        if !json {
            print!("{}", table(std::slice::from_ref(row)));
        }
    })?;
    if json {
        let text = serde_json::to_string_pretty(&rows);
        println!(
            "{}",
            text.map_err(|error| Error::Io {
                path: PathBuf::from("stdout"),
                source: std::io::Error::other(error),
            })?
        );
    }
    Ok(())
}
