//! `nearside bench`: what the engine costs, beside the floor of the same run.

use std::path::PathBuf;

use clap::Args;
use nearside_bench::{Options, Study, run_each, study, table};

use crate::error::Result;
use crate::output;

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside bench --quick
  nearside bench --only overwrite_4k --json
  nearside bench --dir /mnt/pmem0 --disk /var/tmp
  nearside bench --only emulated_write_crowd --emulate my-machine.toml --pictures .
  nearside bench deck --array 512M
  nearside bench ycsb --plot bars.svg
  nearside bench engine --direct
  nearside bench service --idle 300
  nearside bench sharing --quick

A ratio above 1 is better than the floor or peer. Every row names its domain and medium; what the
background does for a call is part of the call's cost.")]
pub struct BenchArgs {
    /// Directory for the scratch pool, made and removed [default: /dev/shm].
    #[arg(long, global = true)]
    pub dir: Option<PathBuf>,
    /// Directory on a disk for the rows in the `sync` domain [default: the temporary directory].
    #[arg(long, global = true)]
    pub disk: Option<PathBuf>,
    /// Run this measurement only.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Play this machine where one is emulated: a file, or one that comes along by its name
    /// [default: the machine that the row is about].
    #[arg(long, value_name = "MACHINE")]
    pub emulate: Option<PathBuf>,
    /// Put pictures of curves into this directory, as SVG.
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Fewer rounds and files: for a look, not for a record.
    #[arg(long, global = true)]
    pub quick: bool,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// A measurement that is more than a row.
    #[command(subcommand)]
    pub study: Option<Study>,
}

/// Measures.
pub fn run(args: &BenchArgs) -> Result<()> {
    let options = Options {
        dir: args.dir.clone(),
        disk: args.disk.clone(),
        only: args.only.clone(),
        quick: args.quick,
        emulate: args.emulate.as_deref().map(nearside_bench::machine).transpose()?,
        pictures: args.pictures.clone(),
    };
    if let Some(asked) = &args.study {
        return Ok(study(&options, asked, args.json, &mut |text| print!("{text}"))?);
    }
    let rows = run_each(&options, &mut |row| {
        if !args.json {
            print!("{}", table(std::slice::from_ref(row)));
        }
    })?;
    if args.json { output::json(&rows) } else { Ok(()) }
}
