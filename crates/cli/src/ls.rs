//! `nearside ls`: what is in a directory of a pool.

use std::os::unix::ffi::OsStrExt;

use clap::Args;
use nearside::Metadata;
use nearside::files::Timestamp;

use crate::about::{self, About};
use crate::error::{self, Result};
use crate::inside::Inside;
use crate::pool_path::PoolPath;
use crate::size::show;
use crate::{access, output};

/// Arguments of `ls`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside ls /data/pool
  nearside ls -l /data/pool:/notes
  nearside ls -a --json /data/pool:/notes

Times are UTC. On a terminal, control characters in names are escaped.
A mounted pool is used through its mount, with the rights that you have there.")]
pub struct LsArgs {
    /// A directory or file in a pool [default path: its root].
    #[arg(value_name = "POOL[:/PATH]", value_parser = PoolPath::or_root_parser())]
    pub at: PoolPath,
    /// Mode, links, owner, group, size and time of the last change, too.
    #[arg(short, long)]
    pub long: bool,
    /// Names that begin with a dot, too.
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON; all sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

/// A name and what it names.
pub struct Entry {
    name: Vec<u8>,
    meta: Metadata,
    created: Option<Timestamp>,
    target: Option<Vec<u8>>,
}

impl Entry {
    /// Looks up what `at` names; `name` is what to call it.
    pub fn find(pool: &Inside, at: &PoolPath, name: Vec<u8>) -> Result<Entry> {
        let meta = pool.symlink_metadata(&at.path).map_err(error::inside(&at.pool))?;
        let target = match meta.is_symlink() {
            true => Some(pool.read_link(&at.path).map_err(error::inside(&at.pool))?),
            false => None,
        };
        let target = target.map(|it| it.as_os_str().as_bytes().to_vec());
        Ok(Entry { name, meta, created: pool.created(&meta), target })
    }

    /// As JSON shows it.
    pub fn about(&self) -> About {
        About::new(&self.name, &self.meta, self.created, self.target.as_deref())
    }

    /// What it is.
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// When it was made, where that is known.
    pub fn created(&self) -> Option<Timestamp> {
        self.created
    }

    /// The name, and where it leads if it is a symbolic link, as stdout is to show them.
    pub fn line(&self) -> Vec<u8> {
        let mut line = output::name(&self.name);
        if let Some(target) = &self.target {
            line.extend_from_slice(b" -> ");
            line.extend(output::name(target));
        }
        line
    }
}

/// Lists a directory, or one file.
pub fn run(args: &LsArgs) -> Result<()> {
    let pool = access::reading(&args.at.pool)?;
    let is_dir = is_dir(&pool, &args.at)?;
    if is_dir && !args.long && !args.json {
        let names = names(&pool, args)?;
        return output::bytes(&lines(names.iter().map(|name| output::name(name))));
    }
    let entries = if is_dir { entries(&pool, args)? } else { vec![one(&pool, &args.at)?] };
    if args.json {
        return output::json(&entries.iter().map(Entry::about).collect::<Vec<_>>());
    }
    match args.long {
        true => output::bytes(&long(&entries)),
        false => output::bytes(&lines(entries.iter().map(|entry| output::name(&entry.name)))),
    }
}

/// Whether there is a directory to list. A link to one is followed, a link to nowhere is shown.
fn is_dir(pool: &Inside, at: &PoolPath) -> Result<bool> {
    let own = pool.symlink_metadata(&at.path).map_err(error::inside(&at.pool))?;
    Ok(own.is_dir() || pool.metadata(&at.path).is_ok_and(|meta| meta.is_dir()))
}

fn one(pool: &Inside, at: &PoolPath) -> Result<Entry> {
    Entry::find(pool, at, at.path.as_os_str().as_bytes().to_vec())
}

/// The names to list, in the order of their bytes.
fn names(pool: &Inside, args: &LsArgs) -> Result<Vec<Vec<u8>>> {
    let at = &args.at;
    let mut names = Vec::new();
    for entry in pool.entries(&at.path).map_err(error::inside(&at.pool))? {
        if args.all || !entry.name.starts_with(b".") {
            names.push(entry.name);
        }
    }
    names.sort();
    Ok(names)
}

fn entries(pool: &Inside, args: &LsArgs) -> Result<Vec<Entry>> {
    let find = |name: Vec<u8>| Entry::find(pool, &args.at.child(&name), name);
    names(pool, args)?.into_iter().map(find).collect()
}

fn lines(lines: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend(line);
        text.push(b'\n');
    }
    text
}

fn long(entries: &[Entry]) -> Vec<u8> {
    let rows: Vec<Vec<String>> = entries.iter().map(|entry| columns(&entry.meta)).collect();
    // The names are no text, so they come behind the table.
    let table = output::table(&rows);
    lines(table.lines().zip(entries).map(|(columns, entry)| {
        let mut line = format!("{columns}  ").into_bytes();
        line.extend(entry.line());
        line
    }))
}

fn columns(meta: &Metadata) -> Vec<String> {
    let attr = meta.attr();
    vec![
        about::mode(attr.kind, attr.mode),
        attr.links.to_string(),
        attr.uid.to_string(),
        attr.gid.to_string(),
        show(attr.size),
        about::short_time(attr.modified),
    ]
}
