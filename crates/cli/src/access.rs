//! A pool that this process opens for one command, without a mount.
//!
//! A verb that only reads opens it for reading only, which changes not one byte of it.

use std::path::Path;

use nearside::{OpenOptions, Pool};

use crate::error::{self, Result};
use crate::server_lock::ServerLock;

/// Opens the pool in `dir` for reading.
pub fn reading(dir: &Path) -> Result<Pool> {
    ServerLock::refuse_if_served(dir)?;
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    Pool::open_with(dir, &options).map_err(error::pool(dir))
}

/// Opens the pool in `dir`, does `work` and closes it, so that all that was done is durable in
/// every domain when this returns: what came before a failure, too.
pub fn changing(dir: &Path, work: impl FnOnce(&Pool) -> Result<()>) -> Result<()> {
    ServerLock::refuse_if_served(dir)?;
    let pool = Pool::open(dir).map_err(error::pool(dir))?;
    let done = work(&pool);
    let closed = pool.close().map_err(error::pool(dir));
    done.and(closed)
}
