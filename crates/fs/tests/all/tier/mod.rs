//! The capacity tier: what does not fit into the slices.

mod ahead;
mod asked;
mod cached;
mod copies;
mod faulty;
mod larger;
#[cfg(feature = "object-store")]
mod objects;
mod refused;
mod reserved;
mod rotten;
mod shared;

use crate::common::{TestPool, options};
use pool::{FormatOptions, SliceSpec};

/// A mebibyte.
const MIB: u64 = 1 << 20;

/// A pool with devices of so many bytes below its slices.
fn tiered(slices: usize, slice_bytes: u64, devices: &[u64]) -> FormatOptions {
    let device = |bytes: &u64| SliceSpec { path: None, bytes: Some(*bytes) };
    FormatOptions { capacity: devices.iter().map(device).collect(), ..options(slices, slice_bytes) }
}

/// Such a pool, formatted.
fn pool(slices: usize, slice_bytes: u64, devices: &[u64]) -> TestPool {
    TestPool::with(&tiered(slices, slice_bytes, devices))
}
