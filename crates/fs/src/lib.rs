//! Files, directories, attributes, locks: the POSIX semantics.
//!
//! [`FileSystem`] is the whole interface: by inode number, as a mount needs it. Every change is
//! one record of the pool's log; see `core` for how a change is made, `read` for how one is seen,
//! `checkpoint` and `replay` for what becomes of it.
#![forbid(unsafe_code)]

mod attr;
mod bytes;
mod check;
mod check_live;
mod check_names;
mod checkpoint;
mod core;
mod dir;
mod entries;
mod error;
mod holes;
mod in_place;
mod inline;
mod inode;
mod inode_hash;
mod inode_table;
mod item;
mod keys;
mod leaf;
mod leaf_value;
mod leaves;
mod map;
pub mod meter;
mod namespace;
mod patches;
mod range_lock;
#[cfg(test)]
mod range_lock_tests;
mod read;
mod rename;
mod replay;
mod resize;
mod sequence;
mod setattr;
mod short_name;
mod slot;
mod stats;
mod sync;
mod system;
mod torn;
mod types;
mod unlink;
mod write;
mod xattr;

pub use check::{CheckReport, Finding, check, check_candidates};
pub use error::{Error, Result};
pub use meter::{Call, CallCount, Meter};
pub use stats::{CacheStats, SliceStats, Stats};
pub use system::{FileSystem, Handle, format, format_mappings};
pub use types::*;
