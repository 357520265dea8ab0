//! The `nearside` command: makes, mounts and looks after pools.
//!
//! Exit codes: 0 done, 1 failed (the message is on stderr), 2 wrong usage (`check`: could not
//! look).
#![forbid(unsafe_code)]

mod args;
mod bench;
mod check;
mod daemon;
mod dying;
mod error;
mod format;
mod info;
mod mount;
mod output;
mod place;
mod server;
mod server_lock;
mod signals;
mod size;
mod umount;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use error::Error;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nearside: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: &Command) -> Result<(), Error> {
    match command {
        Command::Format(args) => format::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Info(args) => info::run(args),
        Command::Check(args) => check::run(args),
        Command::Bench(args) => bench::run(args),
    }
}
