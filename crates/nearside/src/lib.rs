//! Files on persistent memory, as a library: the engine's public face.
//!
//! A [`Pool`] is a directory of slices (plain files, DAX files or devices). One process owns it
//! at a time; all of its threads may use it at once. Paths are inside the pool: `/a/b` starts at
//! the pool's root directory, and so does `a/b`, since a pool has no working directory.
//!
//! ```
//! # fn main() -> nearside::Result<()> {
//! # let scratch = tempfile::tempdir().unwrap();
//! # let dir = scratch.path();
//! use nearside::{FormatOptions, OpenFlags, Pool, SliceSpec};
//!
//! // `process`: changes survive a killed process, not a power cut. Right for a test.
//! let options = FormatOptions {
//!     slices: vec![SliceSpec::default(); 2],
//!     slice_bytes: 32 << 20,
//!     process: true,
//!     ..FormatOptions::default()
//! };
//! Pool::format(dir, &options)?;
//!
//! let pool = Pool::open(dir)?;
//! pool.create_dir("/notes")?;
//! let file = pool.open_file("/notes/today", &OpenFlags::new().write(true).create_new(true))?;
//! file.write_all_at(b"one fence", 0)?;
//! file.sync()?; // needed in the `sync` domain only; elsewhere the write was durable already
//! assert_eq!(pool.read("/notes/today")?, b"one fence");
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! The process that owns the pool may do everything: it could read the bytes anyway. For others it
//! acts through [`Pool::for_caller`]: permission bits, owners and access lists are checked there as
//! Linux checks them (the mount has the kernel do it).
//!
//! What this is not: it has no working directory and no umask; it does not share a pool with a
//! forked child: a child gets [`Error::Forked`] (EPERM) from every call, and what it inherited can
//! be dropped there without harm.
#![forbid(unsafe_code)]

mod attached;
mod attributes;
mod caller;
mod error;
mod file;
mod flags;
mod lock;
mod metadata;
mod names;
mod open;
mod owner;
mod pipelined;
mod pool_door;
mod read_dir;
mod regions;
mod walk;

pub use client::{Error as ServiceError, Options as AttachOptions};
pub use error::{Error, Result};
pub use file::File;
pub use flags::OpenFlags;
pub use fs::{
    self as files, Caller, CheckReport, FileKind, FileSystem, Finding, LockKind, Process,
    RenameMode, Repair, RepairReport, Resilvered, ScrubReport, XattrMode,
};
pub use metadata::Metadata;
pub use pipelined::Pipelined;
pub use pool::{
    Atime, DeviceInfo, Emulated, FormatOptions, MirrorInfo, MirrorState, OpenOptions, PoolInfo,
    SLICES_MAX, SliceInfo, SliceSpec, as_url,
};
pub use pool_door::{Pool, check, check_watched, repair, replace_slice, undo};
pub use read_dir::{DirEntry, ReadDir};
pub use region::{
    Error as RegionError, Faults, Isolation, Region, Regions, RegionsInfo,
    Settings as RegionSettings, Transaction,
};

/// What the socket of a pool's service is called in the pool's directory.
pub const ATTACH_SOCKET: &str = wire::SOCKET_NAME;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
