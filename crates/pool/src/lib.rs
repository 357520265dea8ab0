//! Superblocks, slices, free space, log, tree.
//!
//! The pool knows blocks, records and keys; what they mean is for the file system above it.
#![forbid(unsafe_code)]

pub mod addr;
mod bitmap;
mod blocks;
mod calibration;
mod checkpoint;
mod closed_epochs;
mod copies;
mod crc_correction;
mod device;
mod directory;
mod emulated;
mod epoch;
mod error;
mod files;
mod fold;
mod format;
mod gate;
mod lane_salvage;
mod log;
mod members;
mod mirror;
mod nodes;
mod notes;
mod open;
mod options;
mod page_cache;
mod page_correction;
mod places;
mod plain_device;
mod pool;
mod reclaim;
mod record;
mod record_correction;
mod replace;
mod root;
mod salvage;
mod scan;
mod scatter;
mod scrub;
mod slice;
mod space;
mod spill;
mod state;
mod superblock;
mod sync;
#[cfg(test)]
mod tests;
pub mod tree;
mod used;
mod withdrawn;

pub use addr::{BlockAddr, Extent};
pub use bitmap::GROUP_BLOCKS;
pub use checkpoint::{Cut, Written};
pub use closed_epochs::ClosedEpoch;
pub use copies::Which;
pub use device::{Capacity, DEVICE_BLOCK_FIRST, DEVICE_BYTES_MIN, Device, Transfer};
pub use directory::{as_url, candidates, device_paths, linked_url, slice_paths};
pub use emulated::Emulated;
pub use epoch::{Tail, is_until, records_until};
pub use error::{Error, Result};
pub use fold::{DataBlocks, FoldView, Folded, Pages, SliceBatch, group_of};
pub use format::{EachStep, format, format_mappings};
pub use gate::{Closed, Entered};
pub use log::LaneGuard;
pub use nodes::Nodes;
pub use open::Recovery;
pub use options::{
    Atime, DeviceInfo, FormatOptions, MEMORY_BYTES, MakeDevice, MirrorInfo, MirrorState,
    OpenOptions, PoolInfo, SliceInfo, SliceSpec,
};
pub use plain_device::PlainDevice;
pub use pool::{Pool, Roots};
pub use reclaim::Reclaim;
pub use record::{
    FLAG_SPILLED, KIND_CHANGE, KIND_EPOCH, PAYLOAD_BYTES_MAX, Record, RecordBuffer,
    STAMP_AT_OPEN_MAX,
};
pub use record_correction::RecordProbe;
pub use replace::replace_file;
pub use root::INODE_COUNTER_MAX;
pub use scan::{CorrectedRecord, Damage, LostStretch};
pub use scatter::{Scatter, scatter_by_copy};
pub use scrub::{ScrubPlace, Scrubbed};
pub use slice::{Candidate, Slice};
pub use spill::{SPILLED_BYTES_MAX, SPILLED_PAYLOAD_MAX, Spilled};
pub use state::Left;
pub use superblock::{BLOCK_BYTES, COPIES_MAX, FORMAT_VERSION, LOG_BLOCK, SLICES_MAX, Superblock};
pub use used::refuse_used;
