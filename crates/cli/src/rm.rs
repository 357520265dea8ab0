//! `nearside rm`: removes files and directories of a pool.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use nearside::files::Error as FsError;
use nearside::{Error as PoolError, FileKind, Pool};

use crate::error::{self, Result};
use crate::pool_path::PoolPath;
use crate::{access, output};

/// Arguments of `rm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside rm /data/pool:/notes/today
  nearside rm -r --dry-run /data/pool:/notes    what -r would remove
  nearside rm -rf /data/pool:/notes

A symbolic link is removed itself, never what it leads to. There is no way back.")]
pub struct RmArgs {
    /// What to remove; the pool must not be mounted.
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
}

/// Removes.
pub fn run(args: &RmArgs) -> Result<()> {
    for group in args.paths.chunk_by(|one, next| one.pool == next.pool) {
        let dir = &group[0].pool;
        let all = |pool: &Pool| group.iter().try_for_each(|at| remove(pool, at, args));
        match args.dry_run {
            true => all(&access::reading(dir)?)?,
            false => access::changing(dir, all)?,
        }
    }
    Ok(())
}

fn remove(pool: &Pool, at: &PoolPath, args: &RmArgs) -> Result<()> {
    // Refused before anything in it is removed.
    if at.is_nameless() {
        return Err(at.refuse("names no entry of a directory; name what to remove"));
    }
    let bytes = at.path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let path = Path::new(OsStr::from_bytes(&bytes[..end]));
    let meta = match pool.symlink_metadata(path) {
        Err(PoolError::Path { source: FsError::NotFound, .. }) if args.force => return Ok(()),
        found => found.map_err(error::inside(&at.pool))?,
    };
    if end < bytes.len() && !meta.is_dir() {
        return Err(at.refuse("is no directory; name it without the slash at the end"));
    }
    if meta.is_dir() && !args.recursive {
        return Err(at.refuse("is a directory; add -r to remove it with all that is in it"));
    }
    let at = PoolPath { pool: at.pool.clone(), path: path.to_owned() };
    walk(pool, &at, meta.kind(), args.dry_run)
}

/// Removes what is in a directory before the directory.
fn walk(pool: &Pool, at: &PoolPath, kind: FileKind, dry_run: bool) -> Result<()> {
    let failed = error::inside(&at.pool);
    if kind == FileKind::Directory {
        for entry in pool.read_dir(&at.path).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            walk(pool, &at.child(entry.name_bytes()), entry.kind(), dry_run)?;
        }
    }
    if dry_run {
        let mut line = output::name(at.shown().as_os_str().as_bytes());
        line.push(b'\n');
        return output::bytes(&line);
    }
    let removed = match kind {
        FileKind::Directory => pool.remove_dir(&at.path),
        _ => pool.remove_file(&at.path),
    };
    removed.map_err(failed)
}
