//! `nearside cat`: the bytes of files of a pool, on stdout.

use clap::Args;

use crate::error::{self, Result};
use crate::inside::{Inside, Opening};
use crate::pool_path::PoolPath;
use crate::{access, output};

/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Arguments of `cat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside cat /data/pool:/notes/today
  nearside cat /data/pool:/log.1 /data/pool:/log.2 | grep error

The bytes come as they are, also on a terminal.
A mounted pool is used through its mount, with the rights that you have there.")]
pub struct CatArgs {
    /// Files in pools, one after the other.
    #[arg(value_name = "POOL:/PATH", required = true, value_parser = PoolPath::parser())]
    pub files: Vec<PoolPath>,
}

/// Prints files.
pub fn run(args: &CatArgs) -> Result<()> {
    for group in args.files.chunk_by(|one, next| one.pool == next.pool) {
        let pool = access::reading(&group[0].pool)?;
        let mut is_read = true;
        output::each_of(group, |at| {
            if is_read {
                is_read = print(&pool, at)?;
            }
            Ok(())
        })?;
        if !is_read {
            return Ok(());
        }
    }
    Ok(())
}

/// Prints one file; false when nobody reads any more.
fn print(pool: &Inside, at: &PoolPath) -> Result<bool> {
    let opened = pool.open(&at.path, Opening::Read);
    let mut file = opened.map_err(|failure| match failure.errno {
        libc::EISDIR => at.refuse("is a directory; list it with nearside ls"),
        _ => error::inside(&at.pool)(failure),
    })?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let bytes = file.read(&mut buffer, offset).map_err(|error| at.refuse(error.to_string()))?;
        if bytes == 0 {
            return Ok(true);
        }
        if !output::piece(&buffer[..bytes])? {
            return Ok(false);
        }
        offset += bytes as u64;
    }
}
