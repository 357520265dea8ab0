//! What a server has done and holds, at one moment: for `stats`, `top` and Prometheus.

use std::path::Path;
use std::time::Duration;

use nearside::files::meter::{BUCKETS, quantile};
use nearside::files::{CallCount, SliceStats, Stats};
use serde::{Deserialize, Serialize};

use crate::facts::{CopiedFacts, WorkerFacts};
use crate::moves::MoveFacts;
use crate::tier::facts::TierFacts;

/// What a server has done and holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The pool.
    pub pool: String,
    /// Where it is mounted.
    pub dir: String,
    /// The server's process.
    pub process: u32,
    /// How long it serves.
    pub serving_seconds: f64,
    /// Calls, by name.
    pub calls: Vec<CallSample>,
    /// Checkpoints of the whole pool.
    pub checkpoints: Checkpoints,
    /// Syncs of the medium that closed an epoch.
    pub syncs: u64,
    /// DRAM in caches.
    pub cache: Cache,
    /// Whether what callers wrote is counted: older servers did so on several nodes only.
    #[serde(default)]
    pub counts_copied: bool,
    /// The capacity tier, if the pool has one.
    #[serde(default)]
    pub tier: Option<TierFacts>,
    /// What moved to be near, where it is known what accesses take.
    #[serde(default)]
    pub moves: Option<MoveFacts>,
    /// The slices.
    pub slices: Vec<SliceSample>,
}

/// What one call has cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallSample {
    /// Its name.
    pub call: String,
    /// How many there were.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Time that all took, ns.
    pub nanos: u64,
    /// How many took how long: number of the bucket, count; empty ones are left out.
    pub buckets: Vec<(usize, u64)>,
}

/// Checkpoints since the server began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoints {
    /// How many.
    pub count: u64,
    /// Bytes that they wrote.
    pub bytes: u64,
    /// Time that all took.
    pub seconds: f64,
    /// Time that the last one took.
    pub last_seconds: f64,
    /// Time since the last one ended.
    pub age_seconds: Option<f64>,
    /// Time that changes were delayed, so that the log does not run full.
    #[serde(default)]
    pub delay_seconds: f64,
    /// How often a change found the log full, and waited for one.
    #[serde(default)]
    pub waits: u64,
}

/// DRAM in caches of the whole pool, bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cache {
    /// That they may use.
    pub limit_bytes: u64,
    /// What they hold.
    #[serde(flatten)]
    pub held: Held,
}

/// What caches hold, bytes of DRAM.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    /// In block maps.
    pub map_bytes: u64,
    /// In entries of directories.
    pub entry_bytes: u64,
    /// In pages of the trees.
    pub page_bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// One slice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SliceSample {
    /// Its place in the pool.
    pub index: u32,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Of these in use.
    pub log_used_bytes: u64,
    /// Bytes of records written.
    pub log_written_bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Of these free.
    pub blocks_free: u64,
    /// Copies of it that are current.
    #[serde(default)]
    pub copies: u32,
    /// What caches hold of it.
    #[serde(default)]
    pub cache: Held,
    /// Its workers.
    #[serde(default)]
    pub workers: WorkerFacts,
    /// What callers copied themselves.
    #[serde(default)]
    pub copied: CopiedFacts,
    /// Bytes of files that moved there from other slices.
    #[serde(default)]
    pub arrived_bytes: u64,
    /// For how much of the time its memory is busy, where it is known what accesses take.
    #[serde(default)]
    pub busy_percent: Option<u32>,
    /// Calls that were served on CPUs near it, by name.
    #[serde(default)]
    pub calls: Vec<SliceCall>,
}

/// One call, near one slice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SliceCall {
    /// Its name.
    pub call: String,
    /// How many there were.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Time that all took, ns.
    pub nanos: u64,
}

impl Sample {
    /// Of the pool in `pool`, mounted on `dir`.
    pub fn new(stats: &Stats, pool: &Path, dir: &Path, serving: Duration) -> Sample {
        Sample {
            pool: pool.display().to_string(),
            dir: dir.display().to_string(),
            serving_seconds: serving.as_secs_f64(),
            ..Sample::of(stats)
        }
    }

    /// What an engine has counted, wherever it is.
    pub fn of(stats: &Stats) -> Sample {
        let mut slices: Vec<_> = stats.slices.iter().map(SliceSample::new).collect();
        for (slice, busy) in slices.iter_mut().zip(stats.moves.iter().flat_map(|it| &it.busy)) {
            slice.busy_percent = Some((busy * 100.0).round() as u32);
        }
        Sample {
            pool: String::new(),
            dir: String::new(),
            process: std::process::id(),
            serving_seconds: 0.0,
            calls: stats.calls.iter().map(CallSample::new).collect(),
            checkpoints: Checkpoints {
                count: stats.checkpoints,
                bytes: stats.checkpoint_bytes,
                seconds: stats.checkpoint_time.as_secs_f64(),
                last_seconds: stats.checkpoint_last.as_secs_f64(),
                age_seconds: stats.checkpoint_age.map(|age| age.as_secs_f64()),
                delay_seconds: stats.log_delayed.as_secs_f64(),
                waits: stats.log_waits,
            },
            syncs: stats.syncs,
            cache: Cache {
                limit_bytes: stats.cache_limit_bytes,
                held: slices.iter().fold(Held::default(), |sum, slice| sum.and(&slice.cache)),
            },
            counts_copied: true,
            tier: stats.tier.map(TierFacts::from),
            moves: stats.moves.as_ref().map(MoveFacts::from),
            slices,
        }
    }

    /// What happened between `before` and this, over the time between the two. What is held, and
    /// not done, is as in this. Another server has begun anew: then all of it happened since.
    pub fn since(&self, before: &Sample) -> Sample {
        let mut new = self.clone();
        if before.process != self.process || before.serving_seconds > self.serving_seconds {
            return new;
        }
        new.serving_seconds -= before.serving_seconds;
        for call in &mut new.calls {
            if let Some(old) = before.calls.iter().find(|old| old.call == call.call) {
                call.subtract(old);
            }
        }
        new.calls.retain(|call| call.count > 0);
        let (now, old) = (&mut new.checkpoints, &before.checkpoints);
        now.count = now.count.saturating_sub(old.count);
        now.bytes = now.bytes.saturating_sub(old.bytes);
        now.seconds = (now.seconds - old.seconds).max(0.0);
        now.delay_seconds = (now.delay_seconds - old.delay_seconds).max(0.0);
        now.waits = now.waits.saturating_sub(old.waits);
        new.syncs = new.syncs.saturating_sub(before.syncs);
        new.tier = match (self.tier, before.tier) {
            (Some(now), Some(old)) => Some(now.since(old)),
            (now, _) => now,
        };
        new.moves = match (self.moves, before.moves) {
            (Some(now), Some(old)) => Some(now.since(old)),
            (now, _) => now,
        };
        for (now, old) in new.slices.iter_mut().zip(&before.slices) {
            now.subtract(old);
        }
        new
    }

    /// Bytes that went to the slices (logs, checkpoints, blocks) for each that programs wrote; none
    /// where an older server does not count blocks, or nothing was written.
    pub fn bytes_per_user_byte(&self) -> Option<f64> {
        let mut written = self.calls.iter().filter(|call| call.call == "write");
        let user = written.next().map(|call| call.bytes).filter(|bytes| *bytes > 0)?;
        let of_slices = self.slices.iter().map(SliceSample::written_bytes);
        let all = of_slices.fold(self.checkpoints.bytes, u64::saturating_add);
        self.counts_copied.then(|| (all as f64 / user as f64 * 100.0).round() / 100.0)
    }

    /// So many a second.
    pub fn rate(&self, count: u64) -> f64 {
        if self.serving_seconds > 0.0 { count as f64 / self.serving_seconds } else { 0.0 }
    }
}

impl Held {
    fn and(self, other: &Held) -> Held {
        Held {
            map_bytes: self.map_bytes + other.map_bytes,
            entry_bytes: self.entry_bytes + other.entry_bytes,
            page_bytes: self.page_bytes + other.page_bytes,
            inodes: self.inodes + other.inodes,
        }
    }

    /// All that is counted in bytes.
    pub fn bytes(&self) -> u64 {
        // What a server says is not believed to fit.
        self.map_bytes.saturating_add(self.entry_bytes).saturating_add(self.page_bytes)
    }
}

impl SliceSample {
    fn new(slice: &SliceStats) -> SliceSample {
        let calls = slice.calls.iter().map(|call| SliceCall {
            call: call.name.to_owned(),
            count: call.count,
            errors: call.errors,
            bytes: call.bytes,
            nanos: call.nanos,
        });
        SliceSample {
            index: slice.index,
            log_bytes: slice.log_bytes,
            log_used_bytes: slice.log_used_bytes,
            log_written_bytes: slice.log_written_bytes,
            blocks: slice.blocks,
            blocks_free: slice.blocks_free,
            copies: slice.copies,
            cache: Held {
                map_bytes: slice.cache.map_bytes,
                entry_bytes: slice.cache.entry_bytes,
                page_bytes: slice.cache.page_bytes,
                inodes: slice.cache.inodes,
            },
            workers: WorkerFacts::of(&slice.workers),
            copied: CopiedFacts::of(slice.copied),
            arrived_bytes: slice.arrived_bytes,
            busy_percent: None,
            calls: calls.collect(),
        }
    }

    fn subtract(&mut self, old: &SliceSample) {
        self.log_written_bytes = self.log_written_bytes.saturating_sub(old.log_written_bytes);
        self.copied = self.copied.since(old.copied);
        self.arrived_bytes = self.arrived_bytes.saturating_sub(old.arrived_bytes);
        let (now, old_ones) = (&mut self.workers, &old.workers);
        now.read_bytes = now.read_bytes.saturating_sub(old_ones.read_bytes);
        now.written_bytes = now.written_bytes.saturating_sub(old_ones.written_bytes);
        for call in &mut self.calls {
            if let Some(old) = old.calls.iter().find(|old| old.call == call.call) {
                call.count = call.count.saturating_sub(old.count);
                call.errors = call.errors.saturating_sub(old.errors);
                call.bytes = call.bytes.saturating_sub(old.bytes);
                call.nanos = call.nanos.saturating_sub(old.nanos);
            }
        }
        self.calls.retain(|call| call.count > 0);
    }

    /// Bytes of records and blocks that were written to it.
    fn written_bytes(&self) -> u64 {
        let CopiedFacts { local_written_bytes, remote_written_bytes, .. } = self.copied;
        let moved = self.arrived_bytes;
        // What a server says is not believed to fit.
        [self.workers.written_bytes, local_written_bytes, remote_written_bytes, moved]
            .into_iter()
            .fold(self.log_written_bytes, u64::saturating_add)
    }

    /// Bytes that callers copied from other nodes, and all that were copied, by whom ever.
    pub fn remote_and_all(&self) -> (u64, u64) {
        let (own, workers) = (&self.copied, &self.workers);
        let sum = |parts: &[u64]| parts.iter().fold(0, |sum: u64, it| sum.saturating_add(*it));
        let remote = sum(&[own.remote_read_bytes, own.remote_written_bytes]);
        let local = [own.local_read_bytes, own.local_written_bytes];
        (remote, sum(&[remote, sum(&local), workers.read_bytes, workers.written_bytes]))
    }

    /// Bytes that were read from its memory, and written to it: blocks and records.
    pub fn read_and_written(&self) -> (u64, u64) {
        let own = &self.copied;
        let read = own.local_read_bytes.saturating_add(own.remote_read_bytes);
        (read.saturating_add(self.workers.read_bytes), self.written_bytes())
    }

    /// Calls near it, and the bytes that they moved.
    pub fn calls_and_bytes(&self) -> (u64, u64) {
        // What a server says is not believed to fit.
        self.calls.iter().fold((0, 0), |(count, bytes): (u64, u64), call| {
            (count.saturating_add(call.count), bytes.saturating_add(call.bytes))
        })
    }
}

impl CallSample {
    fn new(call: &CallCount) -> CallSample {
        let buckets = call.buckets.iter().copied().enumerate().filter(|&(_, count)| count > 0);
        CallSample {
            call: call.name.to_owned(),
            count: call.count,
            errors: call.errors,
            bytes: call.bytes,
            nanos: call.nanos,
            buckets: buckets.collect(),
        }
    }

    fn subtract(&mut self, old: &CallSample) {
        self.count = self.count.saturating_sub(old.count);
        self.errors = self.errors.saturating_sub(old.errors);
        self.bytes = self.bytes.saturating_sub(old.bytes);
        self.nanos = self.nanos.saturating_sub(old.nanos);
        for (index, count) in &mut self.buckets {
            let before = old.buckets.iter().find(|(other, _)| other == index);
            *count = count.saturating_sub(before.map_or(0, |(_, count)| *count));
        }
    }

    /// The time that this part of the calls stayed below, ns.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let mut all = [0; BUCKETS];
        for &(index, count) in &self.buckets {
            // What a server says is not believed to fit.
            if let Some(bucket) = all.get_mut(index) {
                *bucket = count;
            }
        }
        quantile(&all, part)
    }
}

#[cfg(test)]
#[path = "sample_tests.rs"]
pub mod tests;
