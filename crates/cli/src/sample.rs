//! What a server has done and holds, at one moment: for `stats`, `top` and Prometheus.

use std::path::Path;
use std::time::Duration;

use nearside::files::meter::{BUCKETS, quantile};
use nearside::files::{CallCount, SliceStats, Stats};
use serde::{Deserialize, Serialize};

use crate::facts::{CopiedFacts, WorkerFacts};

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
        let slices: Vec<_> = stats.slices.iter().map(SliceSample::new).collect();
        Sample {
            pool: pool.display().to_string(),
            dir: dir.display().to_string(),
            process: std::process::id(),
            serving_seconds: serving.as_secs_f64(),
            calls: stats.calls.iter().map(CallSample::new).collect(),
            checkpoints: Checkpoints {
                count: stats.checkpoints,
                bytes: stats.checkpoint_bytes,
                seconds: stats.checkpoint_time.as_secs_f64(),
                last_seconds: stats.checkpoint_last.as_secs_f64(),
                age_seconds: stats.checkpoint_age.map(|age| age.as_secs_f64()),
            },
            syncs: stats.syncs,
            cache: Cache {
                limit_bytes: stats.cache_limit_bytes,
                held: slices.iter().fold(Held::default(), |sum, slice| sum.and(&slice.cache)),
            },
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
        new.syncs = new.syncs.saturating_sub(before.syncs);
        for (now, old) in new.slices.iter_mut().zip(&before.slices) {
            now.subtract(old);
        }
        new
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
            calls: calls.collect(),
        }
    }

    fn subtract(&mut self, old: &SliceSample) {
        self.log_written_bytes = self.log_written_bytes.saturating_sub(old.log_written_bytes);
        self.copied = self.copied.since(old.copied);
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
pub mod tests {
    use super::*;

    pub fn sample(count: u64, seconds: f64) -> Sample {
        let held =
            Held { map_bytes: 1 << 20, entry_bytes: 2 << 20, page_bytes: 4 << 20, inodes: 9 };
        Sample {
            pool: "/p".to_owned(),
            dir: "/mnt".to_owned(),
            process: 7,
            serving_seconds: seconds,
            calls: vec![CallSample {
                call: "read".to_owned(),
                count,
                errors: count / 10,
                bytes: count * 4096,
                nanos: count * 1000,
                buckets: vec![(30, count / 2), (60, count - count / 2), (9999, 1)],
            }],
            checkpoints: Checkpoints {
                count: count / 100,
                bytes: count,
                seconds: 0.5,
                last_seconds: 0.25,
                age_seconds: Some(3.0),
            },
            syncs: 4,
            cache: Cache { limit_bytes: 1 << 30, held: held.clone() },
            slices: vec![SliceSample {
                index: 0,
                log_bytes: 64 << 20,
                log_used_bytes: 16 << 20,
                log_written_bytes: count,
                blocks: 1000,
                blocks_free: 250,
                copies: 1,
                cache: held,
                workers: WorkerFacts::default(),
                copied: CopiedFacts::default(),
                calls: vec![SliceCall {
                    call: "read".to_owned(),
                    count,
                    errors: count / 10,
                    bytes: count * 4096,
                    nanos: count * 1000,
                }],
            }],
        }
    }

    #[test]
    fn an_interval_is_what_happened_in_it() {
        let (first, second) = (sample(1000, 10.0), sample(3000, 14.0));
        let between = second.since(&first);
        let call = &between.calls[0];
        assert_eq!((call.count, call.errors, call.bytes), (2000, 200, 2000 * 4096));
        assert!((between.rate(call.count) - 500.0).abs() < 1e-9);
        assert_eq!(call.buckets[..2], [(30, 1000), (60, 1000)]);
        assert_eq!(between.checkpoints.count, 20);
        assert_eq!(between.slices[0].blocks_free, 250);
        assert_eq!(between.slices[0].calls_and_bytes(), (2000, 2000 * 4096));
        assert_eq!(between.slices[0].log_written_bytes, 2000);
        let none = second.since(&second);
        assert!(none.calls.is_empty() && none.slices[0].calls.is_empty());
        // A server that began anew has counted from 0.
        let other = Sample { process: 8, ..sample(50, 1.0) };
        assert_eq!(other.since(&first).calls[0].count, 50);
    }

    #[test]
    fn what_an_older_server_says_is_understood() {
        let mut old = serde_json::to_value(sample(1000, 1.0)).unwrap();
        assert_eq!(old["cache"]["page_bytes"], 4 << 20, "beside the limit, not below it");
        let slice = old["slices"][0].as_object_mut().unwrap();
        assert!(slice.remove("cache").is_some() && slice.remove("calls").is_some());
        let read: Sample = serde_json::from_value(old).unwrap();
        assert_eq!(read.slices[0].calls_and_bytes(), (0, 0));
    }

    #[test]
    fn a_quantile_lies_in_its_bucket_whatever_was_sent() {
        let call = &sample(1000, 1.0).calls[0];
        let (half, most) = (call.quantile(0.5).unwrap(), call.quantile(0.99).unwrap());
        assert_eq!(half, nearside::files::meter::bucket_end(30));
        assert_eq!(most, nearside::files::meter::bucket_end(60));
    }
}
