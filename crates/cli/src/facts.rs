//! What a pool says about itself, whoever has it open; so it goes over the control socket.

use nearside::files::{Copied, WorkerStats};
use nearside::{FileSystem, MirrorState};
use serde::{Deserialize, Serialize};

use crate::sample::Sample;
use crate::tier::facts::{DeviceFacts, TierFacts};

/// What a pool says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// Identity.
    pub uuid: String,
    /// Version of the format on the medium.
    pub format_version: u32,
    /// The pool's domain.
    pub domain: String,
    /// Generation of the last checkpoint.
    pub generation: u64,
    /// Bytes of log in use.
    pub log_used_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Data blocks in all slices, and on all devices of the capacity tier.
    pub blocks: u64,
    /// Blocks that files can still have.
    pub blocks_free: u64,
    /// Inodes that exist.
    pub inodes: u64,
    /// Inodes that could still be made.
    pub inodes_free: u64,
    /// The slices.
    pub slices: Vec<SliceFacts>,
    /// What was noticed and mended at opening.
    pub notes: Vec<String>,
    /// How far stale copies of a mirrored pool are brought up to date.
    #[serde(default)]
    pub resilver: Option<ResilverFacts>,
    /// The devices of the capacity tier.
    #[serde(default)]
    pub devices: Vec<DeviceFacts>,
    /// What the capacity tier does, if the pool has one.
    #[serde(default)]
    pub tier: Option<TierFacts>,
    /// Bytes that went to the slices for each that programs wrote through the server, if any were.
    #[serde(default)]
    pub bytes_per_user_byte: Option<f64>,
    /// How long a server has had the pool open, s; 0: it was opened for these facts.
    #[serde(default)]
    pub open_seconds: f64,
}

/// How far stale copies are brought up to date.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResilverFacts {
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Of how many.
    pub bytes: u64,
    /// Whether it has ended.
    pub ended: bool,
    /// Why it failed, if it did.
    #[serde(default)]
    pub failed: Option<String>,
    /// What can be read in no copy.
    pub unreadable: Vec<String>,
}

/// The second copy of a slice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MirrorFacts {
    /// Where it is, if it is there.
    pub path: Option<String>,
    /// `current`, `stale` or `missing`.
    pub state: String,
}

/// What one slice says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SliceFacts {
    /// Its place in the pool.
    pub index: u32,
    /// Where it is.
    pub path: String,
    /// NUMA node that it belongs to, if known.
    pub node: Option<u32>,
    /// What it lies on.
    pub medium: String,
    /// Its domain.
    pub domain: String,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Bytes of a line of its log.
    pub log_line_bytes: u32,
    /// Data blocks in all.
    pub blocks: u64,
    /// Data blocks free.
    pub blocks_free: u64,
    /// Ranges that cannot be read: first byte and bytes.
    #[serde(default)]
    pub unreadable: Vec<(u64, u64)>,
    /// Its second copy, in a mirrored pool.
    #[serde(default)]
    pub mirror: Option<MirrorFacts>,
    /// Its workers.
    #[serde(default)]
    pub workers: WorkerFacts,
    /// What callers copied themselves.
    #[serde(default)]
    pub copied: CopiedFacts,
}

/// Bytes of a slice that callers copied themselves; what they read only where slices lie on several
/// nodes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CopiedFacts {
    /// Read by callers on its node.
    pub local_read_bytes: u64,
    /// Read by callers on other nodes.
    pub remote_read_bytes: u64,
    /// Written by callers on its node.
    pub local_written_bytes: u64,
    /// Written by callers on other nodes.
    pub remote_written_bytes: u64,
}

impl CopiedFacts {
    /// Those of an open pool.
    pub fn of(copied: Copied) -> CopiedFacts {
        CopiedFacts {
            local_read_bytes: copied.local_read,
            remote_read_bytes: copied.remote_read,
            local_written_bytes: copied.local_written,
            remote_written_bytes: copied.remote_written,
        }
    }

    /// What was copied since `old`.
    pub fn since(self, old: CopiedFacts) -> CopiedFacts {
        let less = |now: u64, old: u64| now.saturating_sub(old);
        CopiedFacts {
            local_read_bytes: less(self.local_read_bytes, old.local_read_bytes),
            remote_read_bytes: less(self.remote_read_bytes, old.remote_read_bytes),
            local_written_bytes: less(self.local_written_bytes, old.local_written_bytes),
            remote_written_bytes: less(self.remote_written_bytes, old.remote_written_bytes),
        }
    }
}

/// The workers of a slice, and what they did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkerFacts {
    /// How many there are; none before the first is asked.
    pub count: u32,
    /// Of these asleep.
    pub asleep: u32,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// How often one died of a request, and was there again.
    pub deaths: u64,
    /// For how long one has been at the same request, at most.
    pub busy_seconds: f64,
    /// Callers were left waiting, and copy for themselves.
    pub stalled: bool,
}

/// A request that takes so long is no copy any more.
const HANGS_SECONDS: f64 = 2.0;

impl WorkerFacts {
    /// Those of an open pool.
    pub fn of(stats: &WorkerStats) -> WorkerFacts {
        WorkerFacts {
            count: stats.workers,
            asleep: stats.asleep,
            read_bytes: stats.read_bytes,
            written_bytes: stats.written_bytes,
            deaths: stats.deaths,
            busy_seconds: stats.busy.as_secs_f64(),
            stalled: stats.stalled,
        }
    }

    /// What is wrong with them, if anything is.
    pub fn trouble(&self) -> Option<String> {
        let stalled = self.stalled.then(|| {
            let at = self.busy_seconds;
            format!("serve nobody, one is at the same request for {at:.1} s; callers copy")
        });
        let deaths = self.deaths;
        let died = (deaths > 0).then(|| format!("died of {deaths} requests, which callers copied"));
        let hangs = (self.busy_seconds >= HANGS_SECONDS).then(|| {
            let at = self.busy_seconds;
            format!("one is at the same request for {at:.1} s; others serve")
        });
        stalled.or(hangs).or(died)
    }
}

impl SliceFacts {
    /// Whether it should have two copies, and has one.
    pub fn is_single(&self) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.state != MirrorState::Current.name())
    }
}

impl Facts {
    /// Those of an open pool.
    pub fn of(fs: &FileSystem) -> Facts {
        let (info, space) = (fs.info(), fs.statfs());
        let stats = fs.stats();
        let of_slice = |index: u32| stats.slices.get(index as usize);
        let slices = info.slices.into_iter().map(|slice| SliceFacts {
            index: slice.index,
            path: slice.path.display().to_string(),
            node: slice.node,
            medium: slice.medium.to_owned(),
            domain: slice.domain.to_owned(),
            bytes: slice.bytes,
            log_bytes: slice.log_bytes,
            log_line_bytes: slice.log_line_bytes,
            blocks: slice.blocks,
            blocks_free: slice.blocks_free,
            unreadable: slice.unreadable,
            mirror: slice.mirror.map(|mirror| MirrorFacts {
                path: mirror.path.map(|path| path.display().to_string()),
                state: mirror.state.name().to_owned(),
            }),
            workers: of_slice(slice.index)
                .map(|it| WorkerFacts::of(&it.workers))
                .unwrap_or_default(),
            copied: of_slice(slice.index).map(|it| CopiedFacts::of(it.copied)).unwrap_or_default(),
        });
        let resilver = fs.resilvered().map(|so_far| ResilverFacts {
            done_bytes: so_far.done,
            bytes: so_far.of,
            ended: so_far.ended.is_some(),
            failed: so_far.ended.and_then(|ended| ended.err()),
            unreadable: so_far.unreadable,
        });
        let sample = Sample::of(&stats);
        Facts {
            uuid: info.uuid,
            format_version: info.format_version,
            domain: info.domain.to_owned(),
            generation: info.generation,
            log_used_bytes: info.log_used_bytes,
            block_bytes: space.block_bytes,
            blocks: space.blocks,
            blocks_free: space.blocks_free,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
            slices: slices.collect(),
            notes: info.notes.into_iter().chain(info.remark).collect(),
            resilver,
            devices: info.devices.into_iter().map(DeviceFacts::from).collect(),
            bytes_per_user_byte: sample.bytes_per_user_byte(),
            open_seconds: 0.0,
            tier: sample.tier,
        }
    }

    /// Free blocks of all slices and devices, clean copies among them; some are kept for
    /// checkpoints and are not for files.
    pub fn blocks_free_in_all(&self) -> u64 {
        let below: u64 = self.devices.iter().map(|device| device.blocks_free).sum();
        let copies = self.tier.map_or(0, |tier| tier.slice_blocks_clean);
        let free = self.slices.iter().map(|slice| slice.blocks_free).sum::<u64>() + below + copies;
        // what is between two owners is free for files, too
        free.max(self.blocks_free)
    }

    /// Blocks in use.
    pub fn blocks_used(&self) -> u64 {
        self.blocks.saturating_sub(self.blocks_free_in_all())
    }

    /// Free blocks that are not for files.
    pub fn blocks_kept(&self) -> u64 {
        self.blocks_free_in_all().saturating_sub(self.blocks_free)
    }

    /// Bytes of so many blocks.
    pub fn bytes(&self, blocks: u64) -> u64 {
        blocks * u64::from(self.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_die_hang_or_serve_nobody_are_told_of() {
        let fine = WorkerFacts { count: 4, busy_seconds: 0.01, ..WorkerFacts::default() };
        assert_eq!(fine.trouble(), None);
        let stalled = WorkerFacts { stalled: true, busy_seconds: 0.5, ..fine.clone() };
        assert!(stalled.trouble().unwrap().starts_with("serve nobody, one is at the same request"));
        // the others of its slice serve
        let hangs = WorkerFacts { busy_seconds: 3600.0, deaths: 1, ..fine.clone() };
        assert_eq!(
            hangs.trouble().unwrap(),
            "one is at the same request for 3600.0 s; others serve"
        );
        let died = WorkerFacts { deaths: 2, ..fine };
        assert_eq!(died.trouble().unwrap(), "died of 2 requests, which callers copied");
    }
}
