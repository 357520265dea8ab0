//! The capacity tier: storage below the slices, and the DRAM caches in front of it.
//!
//! Blocks of the tier never change: one that is written again is written elsewhere. So a cached
//! block is right until its place is given to another, and whoever gives it says so first
//! ([`Tier::forget`]).
//!
//! Nobody waits for a device while others wait for him: what is not in memory is an error
//! (`pool::Error::Away`) to who holds a lock. He lets go of everything, has it fetched, and tries
//! again; what was fetched for a thread stays until the thread lets go of it, so that it makes
//! progress however small the caches are.
//!
//! `unsafe` is in `uring`, `part`, `aligned` and `frames`.

mod aligned;
mod cache;
mod circle;
mod copies;
mod evictor;
mod frames;
mod hasher;
mod held;
mod load;
#[cfg(any(test, not(feature = "object-store")))]
mod no_object;
#[cfg(feature = "object-store")]
mod object;
mod open;
mod page;
mod part;
mod read_blocks;
mod tier;
mod uring;

pub use aligned::BlockList;
#[cfg(not(feature = "object-store"))]
pub use no_object::{make_object_device, open_object_device};
#[cfg(feature = "object-store")]
pub use object::{OBJECT_BLOCKS, ObjectDevice, make_object_device, open_object_device};
pub use open::open_devices;
pub use page::Page;
pub use read_blocks::ReadBlocks;
pub use tier::{CacheRoom, Tier, TierCounts, read, sync};
pub use uring::UringDevice;
