//! What the engine has done and holds, in numbers: for those who watch it.

use crate::decided::Moves;
use crate::meter::{CallCount, Meter};
use crate::system::FileSystem;
use crate::tier_stats::TierStats;
use crate::traffic::Copied;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What checkpoints took.
#[derive(Debug, Default)]
pub struct CheckpointTimes(Mutex<Times>);

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    all: Duration,
    last: Duration,
    ended: Option<Instant>,
}

impl CheckpointTimes {
    /// A checkpoint that began then has just ended.
    pub fn took(&self, began: Instant) {
        let ended = Instant::now();
        let mut times = self.0.lock();
        let last = ended - began;
        times.last = last;
        times.all += last;
        times.ended = Some(ended);
    }
}

/// What the engine has done since open, and what it holds.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Calls that doors served.
    pub calls: Vec<CallCount>,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes that they wrote.
    pub checkpoint_bytes: u64,
    /// Time that they took.
    pub checkpoint_time: Duration,
    /// Time that the last one took.
    pub checkpoint_last: Duration,
    /// Time since the last one ended; none: there was none.
    pub checkpoint_age: Option<Duration>,
    /// Time that changes were delayed, so that the log does not run full.
    pub log_delayed: Duration,
    /// How often a change found the log full, and waited for a checkpoint.
    pub log_waits: u64,
    /// Syncs of the medium that closed an epoch (domain `sync`).
    pub syncs: u64,
    /// DRAM that caches may use, bytes.
    pub cache_limit_bytes: u64,
    /// The capacity tier, if the pool has one.
    pub tier: Option<TierStats>,
    /// What moved to be near; `None` where nothing is known of what accesses take.
    pub moves: Option<Moves>,
    /// The slices.
    pub slices: Vec<SliceStats>,
}

/// DRAM in caches of what lies on a slice, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// In block maps, and counts of references to blocks.
    pub map_bytes: u64,
    /// In entries of directories.
    pub entry_bytes: u64,
    /// In pages of the trees.
    pub page_bytes: u64,
    /// Inodes (no bytes).
    pub inodes: u64,
}

/// The workers of a slice, who copy for callers on other nodes, and where its memory has limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerStats {
    /// Workers; none before the first is asked.
    pub workers: u32,
    /// Of these asleep, for nobody asks them.
    pub asleep: u32,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Turns of threads that read there and that write, now, as far as they are counted.
    pub active: [u32; 2],
    /// How many turns there are; `u32::MAX`: any number.
    pub limits: [u32; 2],
    /// How often one died of a request, and was there again.
    pub deaths: u64,
    /// For how long one has been at the same request, at most.
    pub busy: Duration,
    /// Callers were left waiting and copied for themselves, and none has served since.
    pub stalled: bool,
}

impl From<&workers::SliceStats> for WorkerStats {
    fn from(stats: &workers::SliceStats) -> WorkerStats {
        WorkerStats {
            workers: stats.seats.len() as u32,
            asleep: stats.asleep,
            read_bytes: stats.bytes[0],
            written_bytes: stats.bytes[1],
            active: stats.active,
            limits: stats.limits,
            deaths: stats.seats.iter().map(|seat| seat.deaths).sum(),
            busy: stats.seats.iter().filter_map(|seat| seat.busy).max().unwrap_or_default(),
            stalled: stats.stalled,
        }
    }
}

/// One slice.
#[derive(Clone, Debug)]
pub struct SliceStats {
    /// Its place in the pool.
    pub index: u32,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Of these in use.
    pub log_used_bytes: u64,
    /// Bytes of records written since open.
    pub log_written_bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Of these free, or copies of what lies on devices.
    pub blocks_free: u64,
    /// Copies of it that are current: in a mirrored pool 2, or 1.
    pub copies: u32,
    /// DRAM in caches of what lies there.
    pub cache: CacheStats,
    /// What its workers do.
    pub workers: WorkerStats,
    /// Bytes that callers copied themselves; of one node only what they wrote.
    pub copied: Copied,
    /// Bytes of files that moved there from other slices.
    pub arrived_bytes: u64,
    /// Calls that were served on CPUs near it; see [`Meter::counts`].
    pub calls: Vec<CallCount>,
}

impl FileSystem {
    /// The counters of calls, for the doors to count in.
    #[inline]
    pub fn meter(&self) -> &Meter {
        &self.core.meter
    }

    /// What it has done since open, and what it holds.
    pub fn stats(&self) -> Stats {
        let core = &self.core;
        let times = *core.checkpoint_times.0.lock();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (pages, inodes) = (core.pool.cached_page_bytes(), core.cached_inodes_by_slice());
        let caches =
            pages.iter().zip(&inodes).enumerate().map(|(slice, (pages, inodes))| CacheStats {
                map_bytes: core.leaf_bytes.of(slice) + core.references.bytes.of(slice),
                entry_bytes: core.dirents.of(slice) * crate::core::DIRENT_BYTES,
                page_bytes: *pages,
                inodes: *inodes,
            });
        let workers = core.delegation.stats();
        let copies_in = |slice| core.tier.as_ref().map_or(0, |tier| tier.copies_in(slice));
        let slices = core.pool.slices().iter().zip(caches).map(|(slice, cache)| {
            let info = slice.info();
            let workers = workers.get(info.index as usize).map(WorkerStats::from);
            let near = |cpu| u32::from(core.pool.slice_near(cpu)) == info.index;
            SliceStats {
                index: info.index,
                log_bytes: info.log_bytes,
                log_used_bytes: slice.log.used_bytes(),
                log_written_bytes: slice.log.bytes_written(),
                blocks: info.blocks,
                blocks_free: info.blocks_free + copies_in(info.index as usize),
                copies: 1 + u32::from(slice.mapping.mirror().is_some()),
                cache,
                workers: workers.unwrap_or_default(),
                copied: core.traffic.copied(info.index as usize),
                arrived_bytes: core.arrived.of(info.index as usize),
                calls: core.meter.counts(near),
            }
        });
        Stats {
            calls: core.meter.counts(|_| true),
            checkpoints: load(&core.checkpoints),
            checkpoint_bytes: load(&core.checkpoint_bytes),
            checkpoint_time: times.all,
            checkpoint_last: times.last,
            checkpoint_age: times.ended.map(|ended| ended.elapsed()),
            log_delayed: core.log_pace.brake.slept(),
            log_waits: core.log_pace.brake.waited(),
            syncs: core.pool.syncs(),
            cache_limit_bytes: core.pool.options().memory(),
            tier: core.tier_stats(),
            moves: self.moves(),
            slices: slices.collect(),
        }
    }
}
