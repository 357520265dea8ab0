//! `nearside set`: where a file is to lie, and whether it or its readers move.

use clap::Args;

use crate::access;
use crate::error::{self, Error, Result};
use crate::placed::{self, Setting};
use crate::pool_path::Operand;

/// Arguments of `set`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside set /mnt/near/db layout=stripe         what is made in there lies in stripes
  nearside set /data/pool:/scratch layout=near    near whoever writes it
  nearside set /mnt/near/index layout=node:1      on node 1
  nearside set /mnt/near/db/table move-data=off   it stays, whoever reads it
  nearside set /mnt/near move-data=report         nothing of the pool moves; nearside why tells
                                                  what would

  layout=auto     the first stripe near its writer, so that small files lie whole on the writer's
                  node; what follows in stripes over all slices (as it is where nothing is set)
  layout=near     near whoever writes
  layout=stripe   all of it in stripes over all slices
  layout=node:K   on the slices of node K
  move-data=...   how far parts of it may move to their readers: on (as it is where nothing is set),
                  report or off
  move-threads=.. the same of threads that read it

What is there already stays where it is until it is written anew, or moves; what is made in a
directory begins with what is set there. A full slice spills to the others. What is set of moves at
the pool's root counts for the whole pool, also for what is there. Nothing moves further than the
options of nearside mount or serve let it, nor than the pool's root or the file do.")]
pub struct SetArgs {
    /// A file or directory: in a pool, or of a mount.
    #[arg(value_name = "PATH|POOL:/PATH", value_parser = Operand::parser())]
    pub at: Operand,
    /// What to set.
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = parse)]
    pub settings: Vec<Setting>,
}

fn parse(text: &str) -> std::result::Result<Setting, String> {
    let lever = |value: &str| value.parse().map_err(str::to_owned);
    match text.split_once('=') {
        Some(("layout", value)) => value
            .parse()
            .map(Setting::Layout)
            .map_err(|error: nearside::files::Error| error.to_string()),
        Some(("move-data", value)) => lever(value).map(Setting::MoveData),
        Some(("move-threads", value)) => lever(value).map(Setting::MoveThreads),
        _ => Err("what can be set is layout=auto|near|stripe|node:K, and move-data or \
                  move-threads=on|report|off"
            .to_owned()),
    }
}

/// Sets it.
pub fn run(args: &SetArgs) -> Result<()> {
    match &args.at {
        Operand::Inside(at) => access::changing(&at.pool, |pool| {
            pool.set_placed(&at.path, &args.settings).map_err(error::inside(&at.pool))
        }),
        Operand::Outside(path) => {
            placed::set(path, &args.settings).map_err(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => Error::Path {
                    shown: path.clone(),
                    reason: "no slice of the pool lies on that node, or it is neither file nor \
                             directory"
                        .to_owned(),
                },
                _ => error::of_mount(path)(error),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearside::files::{Layout, Lever};

    #[test]
    fn only_what_there_is_is_set() {
        assert_eq!(parse("layout=node:3"), Ok(Setting::Layout(Layout::Node(3))));
        assert_eq!(parse("move-data=off"), Ok(Setting::MoveData(Lever::Off)));
        assert_eq!(parse("move-threads=report"), Ok(Setting::MoveThreads(Lever::Report)));
        assert!(parse("layout=far").unwrap_err().contains("node:K"));
        assert!(parse("move-data=yes").unwrap_err().contains("off, report or on"));
        assert!(parse("size=3").unwrap_err().contains("layout="));
        assert!(parse("layout").unwrap_err().contains("layout="));
    }
}
