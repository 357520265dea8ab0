//! `nearside mkdir`: makes directories in a pool.

use clap::Args;

use crate::access;
use crate::error::{self, Result};
use crate::inside::Inside;
use crate::pool_path::PoolPath;

/// Arguments of `mkdir`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside mkdir /data/pool:/notes
  nearside mkdir -p /data/pool:/notes/2031/may

A new directory is its maker's and has the mode 0755.
A mounted pool is used through its mount, with the rights that you have there.")]
pub struct MkdirArgs {
    /// Directories to make.
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

fn make(pool: &Inside, at: &PoolPath, parents: bool) -> Result<()> {
    let made = match parents {
        true => pool.create_dir_all(&at.path),
        false => pool.create_dir(&at.path),
    };
    made.map_err(|failure| match failure.errno {
        libc::ENOENT if !parents => {
            at.refuse("the directory above it is missing; add -p to make that, too")
        }
        libc::EEXIST if !parents => {
            at.refuse("the name exists; choose another (with -p a directory that exists is fine)")
        }
        _ => error::inside(&at.pool)(failure),
    })
}
