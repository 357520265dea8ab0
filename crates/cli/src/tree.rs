//! `nearside tree`: all that is in a directory of a pool, as a tree.

use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside::FileKind;
use serde::Serialize;

use crate::error::{self, Result};
use crate::inside::Inside;
use crate::pool_path::PoolPath;
use crate::progress::Bar;
use crate::{about, access, output};

/// Arguments of `tree`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside tree /data/pool
  nearside tree /data/pool:/notes --json

A mounted pool is used through its mount, with the rights that you have there.")]
pub struct TreeArgs {
    /// A directory in a pool [default path: its root].
    #[arg(value_name = "POOL[:/PATH]", value_parser = PoolPath::or_root_parser())]
    pub at: PoolPath,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Node {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<Vec<u8>>,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<Node>>,
    #[serde(skip)]
    raw: Vec<u8>,
}

/// What a tree holds.
#[derive(Default)]
struct Count {
    directories: u64,
    others: u64,
}

/// Shows a tree.
pub fn run(args: &TreeArgs) -> Result<()> {
    let at = &args.at;
    let pool = access::reading(&at.pool)?;
    let kind = pool.metadata(&at.path).map_err(error::inside(&at.pool))?.kind();
    if kind != FileKind::Directory {
        return Err(at.refuse("is no directory; nearside stat shows what it is"));
    }
    let bar = Bar::new("listing");
    let root = node(&pool, at, at.path.as_os_str().as_bytes().to_vec(), kind)?;
    drop(bar);
    if args.json {
        return output::json(&root);
    }
    let (mut text, mut count) = (Vec::new(), Count::default());
    text.extend(output::name(at.shown().as_os_str().as_bytes()));
    text.push(b'\n');
    draw(&root, "", &mut text, &mut count);
    text.extend(format!("{} directories, {} files\n", count.directories, count.others).bytes());
    output::bytes(&text)
}

fn node(pool: &Inside, at: &PoolPath, raw: Vec<u8>, kind: FileKind) -> Result<Node> {
    let entries = match kind {
        FileKind::Directory => Some(entries(pool, at)?),
        _ => None,
    };
    Ok(Node {
        name: String::from_utf8_lossy(&raw).into_owned(),
        name_bytes: about::inexact(&raw),
        kind: about::kind(kind),
        entries,
        raw,
    })
}

/// What is in a directory, in the order of the names' bytes.
fn entries(pool: &Inside, at: &PoolPath) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for entry in pool.entries(&at.path).map_err(error::inside(&at.pool))? {
        nodes.push(node(pool, &at.child(&entry.name), entry.name, entry.kind)?);
    }
    nodes.sort_by(|one, next| one.raw.cmp(&next.raw));
    Ok(nodes)
}

fn draw(node: &Node, indent: &str, text: &mut Vec<u8>, count: &mut Count) {
    let entries = node.entries.as_deref().unwrap_or_default();
    for (n, entry) in entries.iter().enumerate() {
        let is_last = n + 1 == entries.len();
        let (branch, below) =
            if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
        text.extend(indent.bytes().chain(branch.bytes()));
        text.extend(output::name(&entry.raw));
        text.push(b'\n');
        match entry.entries {
            Some(_) => count.directories += 1,
            None => count.others += 1,
        }
        draw(entry, &format!("{indent}{below}"), text, count);
    }
}
