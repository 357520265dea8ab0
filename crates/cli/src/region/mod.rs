//! `nearside region`: files that programs map as transactional memory.

mod create;
mod dump;
mod info;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::error::{self, Error, Result};
use crate::inside::Failure;
use crate::pool_path::PoolPath;

/// Arguments of `region`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside region create /data/pool /counters --size 1G
  nearside region info /data/pool:/counters
  nearside region dump /mnt/near /counters --offset 4K --length 256

A region is a file: every verb works on it, and any program may read and write it. A program that
links the library maps it, loads from it as from any memory, and stores in transactions.
A mounted pool is used through its mount, with the rights that you have there.")]
pub struct RegionArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a file of a size, all of it holes: they are zeros, and take no space.
    Create(create::CreateArgs),
    /// Show where a region lies, and how this machine maps it.
    Info(info::InfoArgs),
    /// Print what a region holds.
    Dump(dump::DumpArgs),
}

/// Which file is meant.
#[derive(Debug, Args)]
pub struct At {
    /// A pool: its directory, or the one it is mounted on.
    #[arg(value_name = "POOL|POOL:/PATH", value_parser = PoolPath::or_root_parser())]
    pub pool: PoolPath,
    /// A file in it, unless that is said already.
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
}

impl At {
    /// The file.
    fn place(&self) -> Result<PoolPath> {
        let PoolPath { pool, path } = &self.pool;
        let is_root = path == Path::new("/");
        match &self.path {
            Some(_) if !is_root => {
                Err(Error::Usage("name the file once, as POOL PATH or POOL:/PATH".to_owned()))
            }
            Some(inner) => Ok(PoolPath { pool: pool.clone(), path: path.join(inner) }),
            None if is_root => {
                Err(Error::Usage("name the file, as POOL PATH or POOL:/PATH".to_owned()))
            }
            None => Ok(self.pool.clone()),
        }
    }
}

/// Looks after regions.
pub fn run(args: &RegionArgs) -> Result<()> {
    match &args.verb {
        Verb::Create(args) => create::run(args),
        Verb::Info(args) => info::run(args),
        Verb::Dump(args) => dump::run(args),
    }
}

/// Why a file could not be looked at.
fn refused(at: &PoolPath) -> impl Fn(Failure) -> Error + '_ {
    move |failure| match failure.errno {
        libc::EISDIR => at.refuse("is a directory; a region is a file"),
        _ => error::inside(&at.pool)(failure),
    }
}
