//! What a pool is made and opened with, and what it says about itself.

use crate::device::Device;
use crate::emulated::Emulated;
use crate::error::Result;
use crate::record_correction::RecordProbe;
use crate::state::boot_id;
use placement::{Costs, Levers, Policy, ThreadRule};
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use topology::Topology;

/// One slice to be made.
#[derive(Clone, Debug, Default)]
pub struct SliceSpec {
    /// A device or file elsewhere, linked into the pool's directory; `None` makes a file in it.
    pub path: Option<PathBuf>,
    /// Its size, bytes; `None` takes the device's or `FormatOptions::slice_bytes`.
    pub bytes: Option<u64>,
}

/// Makes a device of so many bytes at a URL.
pub type MakeDevice = fn(&str, u64) -> Result<Arc<dyn Device>>;

/// How to make a pool.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The slices; at least one.
    pub slices: Vec<SliceSpec>,
    /// Size of slices that do not say theirs, bytes.
    pub slice_bytes: u64,
    /// Treat the slices as lying on this many virtual nodes.
    pub virtual_nodes: Option<u32>,
    /// Take the `process` domain: survives a killed process, not a power cut.
    pub process: bool,
    /// Log per slice, bytes; `None` chooses by the slice's size.
    pub log_bytes: Option<u64>,
    /// Bytes of a line of the logs, 64 or 256: every write to a log fills whole lines. `None` takes
    /// what each slice's memory writes at once.
    pub log_line_bytes: Option<u32>,
    /// Bytes of a stripe: how much of a large file lies on one slice before the next one comes. A
    /// power of two of blocks; `None`: 256 KiB.
    pub stripe_bytes: Option<u64>,
    /// What is in the places of slices and devices may be lost, data and other pools.
    pub force: bool,
    /// Copies of everything: 1, or 2 to have each slice mirrored in the file of the next one, which
    /// takes half of each file.
    pub data_copies: u32,
    /// The devices of the capacity tier, below the slices; none: there is no such tier.
    pub capacity: Vec<SliceSpec>,
    /// What makes a device of the capacity tier whose path is the URL of an object store; `None`:
    /// there can be none.
    pub make_object_device: Option<MakeDevice>,
    /// The same, for who has them at hand: instead of `capacity`.
    pub devices: Vec<Arc<dyn Device>>,
    /// What the identities of the pool and its slices are made of, for who makes the same pool
    /// again; `None`: they are random.
    pub identity: Option<u64>,
}

impl Default for FormatOptions {
    /// One slice of 1 GiB, a file in the pool's directory.
    fn default() -> FormatOptions {
        FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 1 << 30,
            virtual_nodes: None,
            process: false,
            log_bytes: None,
            log_line_bytes: None,
            stripe_bytes: None,
            force: false,
            data_copies: 1,
            capacity: Vec::new(),
            make_object_device: None,
            devices: Vec::new(),
            identity: None,
        }
    }
}

/// How to open a pool.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Change nothing, not even by recovery.
    pub read_only: bool,
    /// DRAM that caches may use, bytes; `None` is [`MEMORY_BYTES`].
    pub memory_bytes: Option<u64>,
    /// When a read moves the time of the last read on.
    pub atime: Atime,
    /// The machine, for who opens pools by the thousand; `None`: it is looked at.
    pub machine: Option<Arc<Topology>>,
    /// A machine that is played instead.
    pub emulated: Option<Arc<dyn Emulated>>,
    /// Workers of each slice; 0: every caller copies for itself; `None`: as many as its memory
    /// likes, or its node has CPUs for.
    pub workers: Option<u16>,
    /// What the memory of the slices' nodes likes; `None`: nothing is known of it.
    pub policy: Option<Policy>,
    /// What accesses take; `None`: as the pool's calibration says, if it has one.
    pub costs: Option<Costs>,
    /// What moves, where it is known what accesses take.
    pub levers: Levers,
    /// When threads move; `None`: as what they take says.
    pub thread_rule: Option<ThreadRule>,
    /// Write tree pages once, for who measures what their second copies cost.
    pub single_pages: bool,
    /// For a repair: open what can be read of a damaged pool, without knowing what is free. Says
    /// whether a log record that was corrected makes sense.
    pub salvage: Option<RecordProbe>,
    /// The devices of the capacity tier that were found.
    pub devices: Vec<Arc<dyn Device>>,
    /// The share of a slice, in percent, above which blocks of it are written back to the capacity
    /// tier; `None` is [`WRITE_BACK_PERCENT`].
    pub write_back_percent: Option<u8>,
    /// DRAM for blocks of the capacity tier, bytes for each node, shared by the slices on it;
    /// `None`: a quarter of all that caches may use, for all slices together.
    pub tier_cache_bytes: Option<u64>,
    /// The id of this boot of the machine, for who plays restarts; `None`: the kernel's.
    pub boot: Option<[u8; 16]>,
}

/// When a read moves an inode's time of the last read on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// When the last change is not older than it, or it is a day old (Linux's relatime).
    #[default]
    Relatime,
    /// Never; only who sets it changes it.
    Never,
}

/// DRAM that caches may use where nothing else is asked for.
pub const MEMORY_BYTES: u64 = 1 << 30;

/// The share of a slice, in percent, above which blocks of it are written back where nothing else
/// is asked for.
pub const WRITE_BACK_PERCENT: u8 = 30;
/// Most that can be asked for: what is behind it is for trees, and for who writes meanwhile.
pub const WRITE_BACK_PERCENT_MAX: u8 = 90;

impl OpenOptions {
    /// The share of a slice, in percent, above which blocks of it are written back.
    pub fn write_back_percent(&self) -> u8 {
        self.write_back_percent.unwrap_or(WRITE_BACK_PERCENT).min(WRITE_BACK_PERCENT_MAX)
    }

    /// DRAM that caches may use, bytes.
    pub fn memory(&self) -> u64 {
        self.memory_bytes.unwrap_or(MEMORY_BYTES)
    }

    /// The id of this boot of the machine.
    pub fn boot(&self) -> [u8; 16] {
        self.boot.unwrap_or_else(boot_id)
    }
}

/// One of the names that a pool says about itself: it can be compared, and shown.
pub type Name = &'static str;

/// The names of domains, media and ways to devices that a pool may say about itself.
const NAMES: [Name; 14] = [
    "cpu-cache",
    "cpu-flush",
    "sync",
    "process",
    "file",
    "tmpfs",
    "dax",
    "devdax",
    "memory",
    "calls",
    "calls, page cache",
    "object store",
    "io_uring, direct",
    "io_uring, page cache",
];

/// A name as another process told it.
fn known<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Name, D::Error> {
    let told = String::deserialize(from)?;
    Ok(NAMES.into_iter().find(|name| *name == told).unwrap_or("unknown"))
}

/// What one slice says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SliceInfo {
    /// Where it is.
    pub path: PathBuf,
    /// Its place in the pool.
    pub index: u32,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Bytes of a line of its log: 64 or 256.
    pub log_line_bytes: u32,
    /// NUMA node (real or virtual) that it belongs to, if known.
    pub node: Option<u32>,
    /// What it lies on: `file`, `tmpfs`, `dax`, `devdax` or `memory`.
    #[serde(deserialize_with = "known")]
    pub medium: Name,
    /// Its durability domain: `cpu-cache`, `cpu-flush`, `sync` or `process`.
    #[serde(deserialize_with = "known")]
    pub domain: Name,
    /// Ranges that cannot be read, because the memory fails there: first byte and bytes.
    pub unreadable: Vec<(u64, u64)>,
    /// Its second copy, in a mirrored pool.
    pub mirror: Option<MirrorInfo>,
    /// Data blocks in all.
    pub blocks: u64,
    /// Data blocks free.
    pub blocks_free: u64,
}

/// What one device of the capacity tier says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Where it is.
    pub path: String,
    /// Its place in the tier.
    pub index: u32,
    /// Bytes in all.
    pub bytes: u64,
    /// NUMA node that it is near, if known.
    pub node: Option<u32>,
    /// By which calls it is read and written.
    #[serde(deserialize_with = "known")]
    pub access: Name,
    /// Data blocks in all.
    pub blocks: u64,
    /// Data blocks free.
    pub blocks_free: u64,
    /// Damaged ones, which are not used again until the pool is opened anew.
    pub blocks_withdrawn: u64,
}

/// The second copy of a slice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MirrorInfo {
    /// Where it is, if it is there.
    pub path: Option<PathBuf>,
    /// Whether it can take the first one's place.
    pub state: MirrorState,
}

/// Whether a second copy can take the first one's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MirrorState {
    /// It has all that the first one has.
    Current,
    /// It was away, and is being brought up to date.
    Stale,
    /// Its file is not there.
    Missing,
}

impl MirrorState {
    /// Its name: `current`, `stale` or `missing`.
    pub fn name(self) -> &'static str {
        match self {
            MirrorState::Current => "current",
            MirrorState::Stale => "stale",
            MirrorState::Missing => "missing",
        }
    }
}

/// What a pool says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolInfo {
    /// Identity.
    pub uuid: String,
    /// Version of the format on the medium.
    pub format_version: u32,
    /// The pool's domain: that of its weakest slice.
    #[serde(deserialize_with = "known")]
    pub domain: Name,
    /// Generation of the last checkpoint.
    pub generation: u64,
    /// Bytes of log in use.
    pub log_used_bytes: u64,
    /// The slices.
    pub slices: Vec<SliceInfo>,
    /// The devices of the capacity tier.
    pub devices: Vec<DeviceInfo>,
    /// What was noticed and mended at opening (a superblock repaired from its copy, say).
    pub notes: Vec<String>,
    /// What else there is to say, of which nothing is wrong.
    pub remark: Option<String>,
}
