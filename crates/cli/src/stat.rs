//! `nearside stat`: all that a pool says of one file.

use std::os::unix::ffi::OsStrExt;

use clap::Args;

use crate::error::Result;
use crate::ls::Entry;
use crate::pool_path::PoolPath;
use crate::size::show;
use crate::{about, access, output};

/// Arguments of `stat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside stat /data/pool:/notes/today
  nearside stat /data/pool:/ --json

A symbolic link is shown itself, not what it leads to. Times are UTC.
A mounted pool is used through its mount, with the rights that you have there.")]
pub struct StatArgs {
    /// A file or directory in a pool.
    #[arg(value_name = "POOL:/PATH", value_parser = PoolPath::parser())]
    pub at: PoolPath,
    /// Print JSON; all sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

/// Shows the attributes of a file.
pub fn run(args: &StatArgs) -> Result<()> {
    let pool = access::reading(&args.at.pool)?;
    let name = args.at.path.as_os_str().as_bytes().to_vec();
    let entry = Entry::find(&pool, &args.at, name)?;
    if args.json { output::json(&entry.about()) } else { output::bytes(&text(&entry)) }
}

fn text(entry: &Entry) -> Vec<u8> {
    let attr = entry.meta().attr();
    let mut text = b"path      ".to_vec();
    text.extend(entry.line());
    let rows = [
        ("kind", about::kind(attr.kind).to_owned()),
        ("size", format!("{} bytes ({})", attr.size, show(attr.size))),
        ("stored", format!("{} in blocks", show(attr.sectors * 512))),
        ("mode", format!("{:04o} ({})", attr.mode, about::mode(attr.kind, attr.mode))),
        ("owner", format!("{}:{}", attr.uid, attr.gid)),
        ("inode", attr.ino.0.to_string()),
        ("links", attr.links.to_string()),
        ("accessed", about::time(attr.accessed)),
        ("modified", about::time(attr.modified)),
        ("changed", about::time(attr.changed)),
        ("created", entry.created().map_or_else(|| "unknown".to_owned(), about::time)),
    ];
    for (name, value) in rows {
        text.extend(format!("\n{name:<8}  {value}").into_bytes());
    }
    text.push(b'\n');
    text
}
