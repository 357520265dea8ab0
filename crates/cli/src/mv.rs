//! `nearside mv`: renames in a pool, in one atomic step.

use clap::Args;

use crate::access;
use crate::error::{self, Error, Result};
use crate::inside::Inside;
use crate::pool_path::{self, PoolPath};

/// Arguments of `mv`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside mv /data/pool:/notes/today /data/pool:/notes/yesterday
  nearside mv /data/pool:/notes /data/pool:/old/    into the directory old

A file that has the new name is replaced; a crash leaves the old state or the new one.
A mounted pool is used through its mount, with the rights that you have there.")]
pub struct MvArgs {
    /// What to rename.
    #[arg(value_name = "POOL:/FROM", value_parser = PoolPath::parser())]
    pub from: PoolPath,
    /// Its new name, or a directory of the same pool to move it into.
    #[arg(value_name = "POOL:/TO", value_parser = PoolPath::parser())]
    pub to: PoolPath,
}

/// Renames.
pub fn run(args: &MvArgs) -> Result<()> {
    if !pool_path::is_same(&args.from.pool, &args.to.pool) {
        let text = "mv works within one pool; between two, use nearside cp, then nearside rm";
        return Err(Error::Usage(text.to_owned()));
    }
    access::changing(&args.from.pool, |pool| rename(pool, args))
}

fn rename(pool: &Inside, args: &MvArgs) -> Result<()> {
    let (from, to) = (&args.from, &args.to);
    if from.is_nameless() {
        return Err(from.refuse("names no entry of a directory; name what to move"));
    }
    let into = pool.metadata(&to.path).is_ok_and(|meta| meta.is_dir());
    let path = match from.path.file_name() {
        Some(name) if into => to.path.join(name),
        _ => to.path.clone(),
    };
    pool.rename(&from.path, &path).map_err(error::inside(&from.pool))
}
