//! What a server begins with: the pool, how it is mounted, and who is answered.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use nearside::files::{Levers, TakeOver};
use nearside::{OpenOptions, Pool};
use nearside_fuse::{Connection, MountOptions};

use crate::error::{self, Error, Result};
use crate::served::Served;
use crate::{control, own_file, place};

/// How the pool is mounted.
pub fn options(args: &Served) -> MountOptions {
    let usual = MountOptions::default();
    MountOptions {
        read_only: args.serving.read_only,
        threads: args.serving.threads.map(usize::from),
        allow_other: usual.allow_other || args.serving.allow_other,
        trusted: own_file::is_roots_alone(&args.pool),
        // attached processes change files behind the kernel's back
        sole_door: args.attaching.is_none(),
        source: place::source(&args.pool),
        ..usual
    }
}

/// Answers questions about the pool while it is mounted. `may_listen`: nobody else can be the
/// pool's server. `may_wait`: the port of `--http` may come later.
pub fn answer(
    pool: &Pool,
    args: &Served,
    may_listen: bool,
    may_wait: bool,
) -> Result<control::Server> {
    let subject = control::Subject::new(
        pool.fs().clone(),
        args.pool.clone(),
        args.dir.clone().unwrap_or_default(),
    );
    control::Server::start(&args.pool, subject, args.serving.http, may_listen, may_wait).map_err(
        |error| {
            let asked = args.serving.http.map_or_else(String::new, |it| format!(" (--http {it})"));
            Error::Server(format!("cannot answer questions about the pool{asked}: {error}"))
        },
    )
}

/// Takes a mount away that nobody serves.
pub fn clear(dir: &Path) {
    if let Err(error) = nearside_fuse::mounts::clear(dir) {
        tracing::warn!("{error}");
    }
}

/// What an earlier server told the keeper to keep.
pub fn connection_of(kept: Vec<OwnedFd>) -> Result<Connection> {
    let [device, state] = <[OwnedFd; 2]>::try_from(kept)
        .map_err(|kept| Error::Server(format!("{} descriptors were kept, not 2", kept.len())))?;
    Ok(Connection::from_descriptors(device, state)?)
}

/// Opens the pool and logs what it is.
pub fn open(args: &Served, taken: Option<&Connection>) -> Result<Pool> {
    let options = OpenOptions {
        read_only: args.serving.read_only,
        memory_bytes: args.serving.memory,
        workers: args.serving.workers,
        levers: Levers {
            data: args.serving.move_data.unwrap_or(Levers::default().data),
            threads: args.serving.move_threads.unwrap_or(Levers::default().threads),
        },
        write_back_percent: args.serving.write_back_at,
        tier_cache_bytes: args.serving.tier_cache,
        ..OpenOptions::default()
    };
    let started = Instant::now();
    let mut take_over = match taken {
        Some(connection) => connection.left_undone()?,
        None => TakeOver::default(),
    };
    if args.attaching.is_some() {
        // who was attached to a service that died comes back
        take_over.returning = true;
        take_over.keep_orphans = true;
    }
    let pool = Pool::take_over(&args.pool, &options, &take_over);
    let pool = pool.map_err(error::pool(&args.pool))?;
    let info = pool.info();
    for note in &info.notes {
        tracing::warn!("{note}");
    }
    tracing::info!(
        pool = %args.pool.display(), uuid = info.uuid, domain = info.domain,
        generation = info.generation, open_ms = started.elapsed().as_millis() as u64, "pool open"
    );
    Ok(pool)
}
