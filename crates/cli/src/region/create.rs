//! `nearside region create`: makes a file of a size.

use clap::Args;
use nearside::files::FILE_BYTES_MAX;

use super::At;
use crate::error::{self, Result};
use crate::inside::{Failure, Inside, Opening};
use crate::pool_path::PoolPath;
use crate::{access, size};

/// Arguments of `region create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside region create /data/pool /counters --size 1G
  nearside region create /data/pool:/db/heap --size 64M --mode 600 --reserve")]
pub struct CreateArgs {
    #[command(flatten)]
    at: At,
    /// Its size, like 1G.
    #[arg(long, value_parser = bytes)]
    size: u64,
    /// Its permission bits, in octal.
    #[arg(long, value_name = "OCTAL", default_value = "644", value_parser = mode)]
    mode: u16,
    /// Set space aside for all of it, so that no store finds the pool full.
    #[arg(long)]
    reserve: bool,
}

/// A size that a file can have.
fn bytes(text: &str) -> std::result::Result<u64, String> {
    match size::parse(text)? {
        0 => Err("a region has at least one byte".to_owned()),
        bytes if bytes > FILE_BYTES_MAX => {
            Err(format!("a file has at most {FILE_BYTES_MAX} bytes; choose a smaller size"))
        }
        bytes => Ok(bytes),
    }
}

fn mode(text: &str) -> std::result::Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("\"{text}\" are no permission bits; write them in octal, like 640"))
}

/// Makes it.
pub fn run(args: &CreateArgs) -> Result<()> {
    let at = args.at.place()?;
    access::changing(&at.pool, |pool| make(pool, &at, args))
}

fn make(pool: &Inside, at: &PoolPath, args: &CreateArgs) -> Result<()> {
    let opened = pool.open(&at.path, Opening::New(args.mode));
    let file = opened.map_err(|failure: Failure| match failure.errno {
        libc::EEXIST | libc::EISDIR => at.refuse("the name exists; choose another"),
        libc::ENOENT => {
            at.refuse("the directory above it is missing; make it with nearside mkdir -p")
        }
        _ => error::inside(&at.pool)(failure),
    })?;
    let sized = match args.reserve {
        true => file.reserve(args.size),
        false => file.set_len(args.size),
    };
    sized.map_err(|error| {
        drop(file);
        let left = match pool.remove_file(&at.path) {
            Ok(()) => String::new(),
            Err(failure) => format!(", and the file that was made is left: {}", failure.what),
        };
        at.refuse(format!("{error}{left}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_modes_that_no_file_has_are_refused() {
        assert_eq!(bytes("1K"), Ok(1024));
        assert_eq!(bytes(&FILE_BYTES_MAX.to_string()), Ok(FILE_BYTES_MAX));
        for text in ["0", "0K", "-1", "", "16777215T", &(FILE_BYTES_MAX + 1).to_string()] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!((mode("0"), mode("640"), mode("0777")), (Ok(0), Ok(0o640), Ok(0o777)));
        for text in ["", "8", "1000", "4755", "-1", "rw"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }
}
