//! `nearside rm`: removes files and directories of a pool.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use clap::Args;
use nearside::FileKind;
use serde::Serialize;

use crate::error::{self, Result};
use crate::inside::Inside;
use crate::pool_path::PoolPath;
use crate::progress::Bar;
use crate::{about, access, output};

/// Arguments of `rm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside rm /data/pool:/notes/today
  nearside rm -r --dry-run /data/pool:/notes    what -r would remove
  nearside rm -r --dry-run --json /data/pool:/notes
  nearside rm -rf /data/pool:/notes

A symbolic link is removed itself, never what it leads to. There is no way back.
A mounted pool is used through its mount, with the rights that you have there.")]
pub struct RmArgs {
    /// What to remove.
    #[arg(value_name = "POOL:/PATH", required = true, value_parser = PoolPath::parser())]
    pub paths: Vec<PoolPath>,
    /// Remove directories with all that is in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Be content when there is nothing to remove.
    #[arg(short, long)]
    pub force: bool,
    /// Remove nothing, print what would be removed, in that order.
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: print JSON.
    #[arg(long, requires = "dry_run")]
    pub json: bool,
}

/// What becomes of what is found.
enum Act<'a> {
    Remove,
    /// Nothing, it is only told.
    Tell(&'a mut dyn FnMut(Doomed)),
}

/// What would be removed.
#[derive(Serialize)]
struct Doomed {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<Vec<u8>>,
    kind: &'static str,
    #[serde(skip)]
    raw: Vec<u8>,
}

impl Doomed {
    fn new(at: &PoolPath, kind: FileKind) -> Doomed {
        let raw = at.shown().into_os_string().into_vec();
        let (path, kind) = (String::from_utf8_lossy(&raw).into_owned(), about::kind(kind));
        Doomed { path, path_bytes: about::inexact(&raw), kind, raw }
    }
}

/// Prints what would be removed, in that order.
fn tell(args: &RmArgs, would: &[Doomed]) -> Result<()> {
    if args.json {
        return output::json(&would);
    }
    let mut lines = Vec::new();
    for it in would {
        lines.extend(output::name(&it.raw));
        lines.push(b'\n');
    }
    output::bytes(&lines)
}

/// Removes.
pub fn run(args: &RmArgs) -> Result<()> {
    let mut would = Vec::new();
    let done = act_on_all(args, &mut would);
    // What was found before a failure is told, too.
    tell(args, &would).and(done)
}

fn act_on_all(args: &RmArgs, would: &mut Vec<Doomed>) -> Result<()> {
    for group in args.paths.chunk_by(|one, next| one.pool == next.pool) {
        let dir = &group[0].pool;
        match args.dry_run {
            true => {
                let (pool, mut each) = (access::reading(dir)?, |it| would.push(it));
                let mut act = Act::Tell(&mut each);
                output::each_of(group, |at| remove(&pool, at, args, &mut act))?;
            }
            false => access::changing(dir, |pool| {
                let _bar = Bar::new("removing");
                output::each_of(group, |at| remove(pool, at, args, &mut Act::Remove))
            })?,
        }
    }
    Ok(())
}

fn remove(pool: &Inside, at: &PoolPath, args: &RmArgs, act: &mut Act<'_>) -> Result<()> {
    // Refused before anything in it is removed.
    if at.is_nameless() {
        return Err(at.refuse("names no entry of a directory; name what to remove"));
    }
    let bytes = at.path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let path = Path::new(OsStr::from_bytes(&bytes[..end]));
    let meta = match pool.symlink_metadata(path) {
        Err(failure) if failure.errno == libc::ENOENT && args.force => return Ok(()),
        found => found.map_err(error::inside(&at.pool))?,
    };
    if end < bytes.len() && !meta.is_dir() {
        return Err(at.refuse("is no directory; name it without the slash at the end"));
    }
    if meta.is_dir() && !args.recursive {
        return Err(at.refuse("is a directory; add -r to remove it with all that is in it"));
    }
    let at = PoolPath { pool: at.pool.clone(), path: path.to_owned() };
    walk(pool, &at, meta.kind(), act)
}

/// Removes what is in a directory before the directory.
fn walk(pool: &Inside, at: &PoolPath, kind: FileKind, act: &mut Act<'_>) -> Result<()> {
    let failed = error::inside(&at.pool);
    if kind == FileKind::Directory {
        for entry in pool.entries(&at.path).map_err(&failed)? {
            walk(pool, &at.child(&entry.name), entry.kind, act)?;
        }
    }
    if let Act::Tell(each) = act {
        each(Doomed::new(at, kind));
        return Ok(());
    }
    let removed = match kind {
        FileKind::Directory => pool.remove_dir(&at.path),
        _ => pool.remove_file(&at.path),
    };
    removed.map_err(failed)
}
