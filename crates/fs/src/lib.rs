//! Files, directories, attributes, locks: the POSIX semantics.
//!
//! [`FileSystem`] is the whole interface: by inode number, as a mount needs it. Every change is
//! one record of the pool's log; see `core` for how a change is made, `read` for how one is seen,
//! `checkpoint` and `replay` for what becomes of it.
#![forbid(unsafe_code)]

mod accessed;
mod acl;
mod acls;
mod append;
mod arrival;
mod attr;
mod away;
mod background;
mod brake;
mod by_slice;
mod bytes;
mod caches;
mod calibrate;
mod check;
mod check_below;
mod check_live;
mod check_names;
mod check_places;
mod checkpoint;
mod clean;
mod cold;
mod commit;
mod copy;
mod core;
mod create;
mod delegate;
mod dir;
mod dirty;
mod durable;
mod effort;
mod entries;
mod error;
mod extents;
mod fallocate;
mod flush;
mod for_caller;
mod format;
mod handle;
mod holes;
mod in_place;
mod inline;
mod inode;
mod inode_hash;
mod inode_table;
mod item;
mod item_decode;
#[cfg(test)]
mod item_tests;
mod keys;
mod layout;
mod leaf;
mod leaf_value;
mod leased;
mod leaves;
mod lines;
mod lock_calls;
mod lock_held;
mod lock_types;
mod lock_waits;
mod locks;
#[cfg(test)]
mod locks_model_tests;
#[cfg(test)]
mod locks_tests;
mod log_pace;
mod long_record;
mod map;
mod mapped;
pub mod meter;
mod migrate;
mod moves;
mod namespace;
mod pace;
mod patches;
mod permits;
mod pieces;
mod range_lock;
#[cfg(test)]
mod range_lock_tests;
mod read;
mod read_ahead;
mod read_block;
mod references;
mod refused;
mod region_memory;
mod rename;
mod repair;
mod replay;
mod request;
mod reserve;
mod reserve_below;
mod resilver;
mod resize;
mod rights;
#[cfg(test)]
mod rights_tests;
mod scrub;
mod second_copy;
mod sequence;
mod setattr;
mod share;
mod short_name;
mod slot;
mod stats;
mod sync;
mod system;
mod take_over;
mod tickets;
#[cfg(test)]
mod tickets_tests;
mod tier_stats;
mod torn;
mod traffic;
mod twins;
mod types;
mod unlink;
mod watch;
mod write;
mod write_back;
mod write_pieces;
mod writer;
mod xattr;

pub use arrival::Arrival;
pub use calibrate::{EachMeasured, Measured};
pub use check::{CheckReport, Finding, check, check_candidates, check_watched};
pub use commit::{Expected, Write};
pub use core::stop_clock;
pub use error::{Error, Result};
pub use extents::{ExtentOn, FileExtent, FileExtras, NearSlice};
pub use for_caller::ForCaller;
pub use format::{format, format_mappings, format_watched};
pub use handle::Handle;
pub use layout::Layout;
pub use leased::{Blocks, Lender, Recalled, Spare, folding};
pub use lock_types::{
    LIBRARY_DOOR, LockChange, LockClass, LockDone, LockKind, LockObserver, LockOwner, LockTicket,
};
pub use mapped::Mapped;
pub use meter::{Call, CallCount, Meter};
pub use migrate::Migrated;
pub use placement::{Calibration, Kind, Place, Point, Policy, Side};
pub use pmem::Process;
pub use range_lock::{RangeGuard, RangeLock};
pub use region_memory::{RegionMemory, check_buffer, is_region_memory, outside};
pub use repair::{Repair, RepairReport, repair, repair_candidates, undo};
pub use request::{Answer, RequestId};
pub use resilver::{EachResilvered, Resilvered, replace_slice};
pub use rights::{Access, Caller};
pub use scrub::{EachScrubbed, ScrubReport};
pub use stats::{CacheStats, SliceStats, Stats, WorkerStats};
pub use system::FileSystem;
pub use take_over::TakeOver;
pub use tier_stats::TierStats;
pub use traffic::Copied;
pub use types::*;
pub use watch::Watch;
