//! `nearside upgrade`: another program serves a mount from now on; its files stay in use.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nearside_fuse::mounts::MountEntry;
use serde::Serialize;

use crate::args::UpgradeArgs;
use crate::error::{self, Error, Result};
use crate::keeper::{self, Reply, Request};
use crate::progress::Bar;
use crate::server_lock::Watch;
use crate::{output, place, whereabouts};

#[derive(Serialize)]
struct Upgraded<'a> {
    dir: &'a Path,
    from: &'a str,
    to: &'a str,
    process: u32,
    gap_us: u64,
}

/// Upgrades the server of a mount.
pub fn run(args: &UpgradeArgs) -> Result<()> {
    let dir = &args.dir;
    let entry = whereabouts::mount_at(dir)?;
    let mounted = entry.as_ref().and_then(place::pool_of);
    let is_served = || Watch::open(dir).is_some_and(|watch| watch.is_served());
    let pool = match mounted {
        Some(pool) => pool,
        None if is_served() => dir.clone(),
        None => return Err(place::nothing_here(dir)),
    };
    let program = program(args.program.as_deref())?;
    if entry.is_some_and(|entry| lies_on(&program, &entry)) {
        return Err(Error::Place {
            dir: program,
            reason: "lies on the mount that it is to serve: it would wait for itself; copy it \
                     to another place"
                .to_owned(),
        });
    }
    let bar = Bar::new("waiting for the next server");
    let reply = keeper::ask(&pool, &Request::Upgrade { program })?;
    drop(bar);
    match reply {
        Reply::Refused(reason) => {
            Err(Error::Server(format!("{}: not upgraded: {reason}", dir.display())))
        }
        Reply::Upgraded { from, to, process, gap_us } => {
            let done = Upgraded { dir, from: &from, to: &to, process, gap_us };
            if args.json { output::json(&done) } else { output::text(&text(&done)) }
        }
    }
}

/// The program as its keeper, who stands in another directory, finds it.
fn program(named: Option<&Path>) -> Result<PathBuf> {
    match named {
        Some(path) => path.canonicalize().map_err(error::io(path)),
        None => std::env::current_exe().map_err(error::io(Path::new("/proc/self/exe"))),
    }
}

fn lies_on(program: &Path, mount: &MountEntry) -> bool {
    let device = |id| (rustix::fs::major(id), rustix::fs::minor(id));
    std::fs::metadata(program).is_ok_and(|file| device(file.dev()) == mount.device)
}

fn text(done: &Upgraded<'_>) -> String {
    let gap = Duration::from_micros(done.gap_us);
    format!(
        "{}: version {} serves, after {} (process {}); calls waited {gap:.1?} at most\n",
        done.dir.display(),
        done.to,
        done.from,
        done.process
    )
}
