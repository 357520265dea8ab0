//! `nearside set`: where a file is to lie.

use clap::Args;
use nearside::files::Layout;

use crate::error::{self, Error, Result};
use crate::pool_path::Operand;
use crate::{access, placed};

/// Arguments of `set`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside set /mnt/near/db layout=stripe         what is made in there lies in stripes
  nearside set /data/pool:/scratch layout=near    near whoever writes it
  nearside set /mnt/near/index layout=node:1      on node 1

  auto    the first stripe near its writer, so that small files lie whole on the writer's node;
          what follows in stripes over all slices (as it is where nothing is set)
  near    near whoever writes
  stripe  all of it in stripes over all slices
  node:K  on the slices of node K

What is there already stays where it is until it is written anew; what is made in a directory
begins with the directory's layout. A full slice spills to the others.")]
pub struct SetArgs {
    /// A file or directory: in a pool, or of a mount.
    #[arg(value_name = "PATH|POOL:/PATH", value_parser = Operand::parser())]
    pub at: Operand,
    /// What to set.
    #[arg(value_name = "layout=LAYOUT", value_parser = parse)]
    pub layout: Layout,
}

fn parse(text: &str) -> std::result::Result<Layout, String> {
    let Some(layout) = text.strip_prefix("layout=") else {
        return Err("what can be set is layout=auto|near|stripe|node:K".to_owned());
    };
    layout.parse().map_err(|error: nearside::files::Error| error.to_string())
}

/// Sets it.
pub fn run(args: &SetArgs) -> Result<()> {
    match &args.at {
        Operand::Inside(at) => access::changing(&at.pool, |pool| {
            pool.set_layout(&at.path, args.layout).map_err(error::inside(&at.pool))
        }),
        Operand::Outside(path) => {
            placed::set_layout(path, args.layout).map_err(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => Error::Path {
                    shown: path.clone(),
                    reason: "no slice of the pool lies on that node, or it is no file".to_owned(),
                },
                _ => error::of_mount(path)(error),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layouts_are_set() {
        assert_eq!(parse("layout=node:3"), Ok(Layout::Node(3)));
        assert!(parse("layout=far").unwrap_err().contains("node:K"));
        assert!(parse("size=3").unwrap_err().contains("layout="));
    }
}
