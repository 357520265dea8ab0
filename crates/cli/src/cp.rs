//! `nearside cp`: copies into a pool, out of it, and within it.

use clap::Args;

use crate::access;
use crate::copy::Copy;
use crate::error::{Error, Result};
use crate::inside::Inside;
use crate::pool_path::{self, Operand, PoolPath};
use crate::side::Side;
use crate::signals;

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside cp report.pdf /data/pool:/papers/
  nearside cp -rp /data/pool:/papers backup
  nearside cp -a /home/ann /data/pool:/home/    as it is: owners, attributes, links
  nearside cp --sparse disk.img /data/pool:/disk.img
  pg_dump base | nearside cp /dev/stdin /data/pool:/base.sql

Into a directory that exists goes a copy of the same name; a source without a name of its own
(POOL:/, or dir/.) is merged into it. With -r a symbolic link is copied as a link. Without -a a
copy is its maker's, extended attributes are not copied, and a file of two names becomes two files.
Without root -a keeps the owners that it may. ACLs, pipes, sockets and devices are left out. A file
outside whose path holds \":/\" is copied from its own directory.
Within a pool both files have the same blocks until one of them changes, and holes stay holes.
A mounted pool is used through its mount, with the rights that you have there.")]
pub struct CpArgs {
    /// What to copy: POOL:/path, or a path outside.
    #[arg(value_name = "SRC", value_parser = Operand::parser())]
    pub from: Operand,
    /// Where to: POOL:/path, or a path outside if SRC is in a pool.
    #[arg(value_name = "DST", value_parser = Operand::parser())]
    pub to: Operand,
    /// Copy directories with all that is in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Keep permission bits and times.
    #[arg(short, long)]
    pub preserve: bool,
    /// Keep all that can be kept: -r, -p, owners, extended attributes, and files of several names.
    #[arg(short, long)]
    pub archive: bool,
    /// Keep holes, instead of writing them as zeros.
    #[arg(long)]
    pub sparse: bool,
}

impl CpArgs {
    /// Whether directories are copied.
    pub fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// Whether permission bits and times are kept.
    pub fn preserves(&self) -> bool {
        self.preserve || self.archive
    }
}

/// Copies.
pub fn run(args: &CpArgs) -> Result<()> {
    // A pipe may be silent for ever, and the first signal is to end that.
    let waits = match &args.from {
        Operand::Outside(path) => {
            std::fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir())
        }
        Operand::Inside(_) => false,
    };
    if !waits {
        signals::end_between_steps();
    }
    match (&args.from, &args.to) {
        (Operand::Outside(_), Operand::Outside(_)) => Err(Error::Usage(
            "neither side is in a pool: write POOL:/path, or use cp(1)".to_owned(),
        )),
        (Operand::Inside(from), Operand::Outside(_)) => {
            let pool = access::reading(&from.pool)?;
            Copy::new(args, Side::Inside(&pool), Side::Outside, false).run()
        }
        (Operand::Outside(_), Operand::Inside(to)) => access::changing(&to.pool, |pool| {
            Copy::new(args, Side::Outside, Side::Inside(pool), false).run()
        }),
        (Operand::Inside(from), Operand::Inside(to)) => between(args, from, to),
    }
}

fn between(args: &CpArgs, from: &PoolPath, to: &PoolPath) -> Result<()> {
    let copy = |from: &Inside, to: &Inside, same| {
        Copy::new(args, Side::Inside(from), Side::Inside(to), same).run()
    };
    if pool_path::is_same(&from.pool, &to.pool) {
        return access::changing(&to.pool, |pool| copy(pool, pool, true));
    }
    let source = access::reading(&from.pool)?;
    access::changing(&to.pool, |pool| copy(&source, pool, false))
}
