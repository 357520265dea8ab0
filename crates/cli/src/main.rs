//! The `nearside` command: makes, mounts and looks after pools.
//!
//! Exit codes: 0 done, 1 failed (the message is on stderr), 2 wrong usage (`check`: could not
//! look). A signal that ended it is what it died of.
#![forbid(unsafe_code)]

mod about;
mod access;
mod args;
mod attaching;
mod bench;
mod calibrate;
mod cat;
mod cert;
mod check;
mod content;
mod control;
mod copy;
mod cp;
mod daemon;
mod df;
mod dying;
mod error;
mod events;
mod facts;
mod format;
mod forwarding;
mod info;
mod inside;
mod keep;
mod keeper;
mod listening;
mod log;
mod ls;
mod manual;
mod metrics;
mod mkdir;
mod mount;
mod moves;
mod mv;
mod origin;
mod output;
mod own_file;
mod place;
mod placed;
mod plan;
mod pool_path;
mod progress;
mod region;
mod repair;
mod resilver;
mod rm;
mod sample;
mod screen;
mod scrub;
mod served;
mod server;
mod server_lock;
mod server_start;
mod set;
mod side;
mod signals;
mod simulate;
mod size;
mod stat;
mod stats;
mod stop;
mod tier;
mod top;
mod topology;
mod trace;
mod tree;
mod umount;
mod upgrade;
mod verdict;
mod version;
mod whereabouts;
mod whereis;
mod why;
mod xattrs;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use error::Error;

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == nearside_fuse::PAGE_DROPPER) {
        return match nearside_fuse::run_page_dropper() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                output::complain(&error.to_string());
                ExitCode::FAILURE
            }
        };
    }
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error.to_string());
            if let Error::Stopped(signal) = error {
                signals::die_of(signal);
            }
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: &Command) -> Result<(), Error> {
    match command {
        Command::Format(args) => format::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Serve(args) => mount::run_service(args),
        Command::Cert(args) => cert::run(args),
        Command::Stop(args) => stop::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Upgrade(args) => upgrade::run(args),
        Command::Info(args) => info::run(args),
        Command::Check(args) => check::run(args),
        Command::Scrub(args) => scrub::run(args),
        Command::Resilver(args) => resilver::run(args),
        Command::Tier(args) => tier::run(args),
        Command::Region(args) => region::run(args),
        Command::Df(args) => df::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Tree(args) => tree::run(args),
        Command::Stat(args) => stat::run(args),
        Command::Where(args) => whereis::run(args),
        Command::Why(args) => why::run(args),
        Command::Set(args) => set::run(args),
        Command::Cat(args) => cat::run(args),
        Command::Cp(args) => cp::run(args),
        Command::Rm(args) => rm::run(args),
        Command::Mv(args) => mv::run(args),
        Command::Mkdir(args) => mkdir::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Top(args) => top::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Topology(args) => topology::run(args),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::man(args),
        Command::Bench(args) => bench::run(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Version(args) => version::run(args),
    }
}
