//! `nearside mkdir`: makes directories in a pool.

use clap::Args;
use nearside::files::Error as FsError;
use nearside::{Error as PoolError, Pool};

use crate::access;
use crate::error::{self, Result};
use crate::pool_path::PoolPath;

/// Arguments of `mkdir`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside mkdir /data/pool:/notes
  nearside mkdir -p /data/pool:/notes/2031/may

A new directory is its maker's and has the mode 0755.")]
pub struct MkdirArgs {
    /// Directories to make; the pool must not be mounted.
    #[arg(value_name = "POOL:/PATH", required = true, value_parser = PoolPath::parser())]
    pub dirs: Vec<PoolPath>,
    /// Make those above it that are missing, and be content with one that is there.
    #[arg(short, long)]
    pub parents: bool,
}

/// Makes directories.
pub fn run(args: &MkdirArgs) -> Result<()> {
    for group in args.dirs.chunk_by(|one, next| one.pool == next.pool) {
        access::changing(&group[0].pool, |pool| {
            group.iter().try_for_each(|at| make(pool, at, args.parents))
        })?;
    }
    Ok(())
}

fn make(pool: &Pool, at: &PoolPath, parents: bool) -> Result<()> {
    let made = match parents {
        true => pool.create_dir_all(&at.path),
        false => pool.create_dir(&at.path),
    };
    made.map_err(|error| match error {
        PoolError::Path { source: FsError::NotFound, .. } if !parents => {
            at.refuse("the directory above it is missing; add -p to make that, too")
        }
        PoolError::Path { source: FsError::Exists, .. } if !parents => {
            at.refuse("the name exists; choose another (with -p a directory that exists is fine)")
        }
        error => error::inside(&at.pool)(error),
    })
}
