//! Making an empty file system.

use crate::attr::Stored;
use crate::clock::now;
use crate::core::Core;
use crate::error::Result;
use crate::inode::Inode;
use crate::types::{FileKind, Ino, Timestamp};
use pool::{Candidate, EachStep, FormatOptions, OpenOptions, Pool, Recovery};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes an empty file system: a pool with a root directory.
pub fn format(dir: &Path, options: &FormatOptions) -> Result<()> {
    format_watched(dir, options, &mut |_, _| true)
}

/// The same, step by step.
pub fn format_watched(dir: &Path, options: &FormatOptions, each: EachStep<'_>) -> Result<()> {
    let make_object_device = options.make_object_device.or(Some(tier::make_object_device));
    pool::format(dir, &FormatOptions { make_object_device, ..options.clone() }, each)?;
    let (pool, recovery) = crate::away::open_pool(dir, &OpenOptions::default())?;
    make_root(pool, &recovery)
}

/// Makes an empty file system in memory that is already mapped, a slice each.
pub fn format_mappings(mappings: Vec<pmem::Mapping>, options: &FormatOptions) -> Result<()> {
    pool::format_mappings(&mappings, options)?;
    let candidates: pool::Result<Vec<Candidate>> = mappings
        .into_iter()
        .map(|mapping| Candidate::from_mapping(Path::new("memory"), mapping, false))
        .collect();
    let devices = options.devices.clone();
    let options = OpenOptions { devices, ..OpenOptions::default() };
    let (pool, recovery) = Pool::open_candidates(candidates?, &options)?;
    make_root(pool, &recovery)
}

/// The root directory lies in the first checkpoint, not in the log.
fn make_root(pool: Pool, recovery: &Recovery) -> Result<()> {
    let core = Core::new(pool);
    core.replay(recovery)?;
    let stored = Stored {
        links: 2,
        // Whoever makes a pool may make the first file in it.
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Stored::new(FileKind::Directory, 0o755, Timestamp(now()))
    };
    let root = Arc::new(Inode::new(Ino::ROOT, &stored, false));
    core.insert_inode(&root);
    core.mark_dirty(&root);
    core.inodes.store(1, Ordering::Relaxed);
    core.checkpoint()?;
    Ok(core.pool.write_state(false)?)
}
