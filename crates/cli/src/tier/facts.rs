//! What a pool says of its capacity tier; so it goes over the control socket.

use nearside::DeviceInfo;
use nearside::files::TierStats;
use serde::{Deserialize, Serialize};

use crate::size::show;

/// Bytes of a block.
const BLOCK_BYTES: u64 = 4096;

/// A device of the capacity tier.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Its place in the tier.
    pub index: u32,
    /// Where it is.
    pub path: String,
    /// NUMA node that it is near, if known.
    pub node: Option<u32>,
    /// By which calls it is read and written.
    #[serde(default)]
    pub access: String,
    /// Bytes in all.
    pub bytes: u64,
    /// Data blocks in all.
    pub blocks: u64,
    /// Data blocks free.
    pub blocks_free: u64,
    /// Damaged ones, which are not used again until the pool is opened anew.
    #[serde(default)]
    pub blocks_withdrawn: u64,
}

impl From<DeviceInfo> for DeviceFacts {
    fn from(info: DeviceInfo) -> DeviceFacts {
        DeviceFacts {
            index: info.index,
            path: info.path,
            node: info.node,
            access: info.access.to_owned(),
            bytes: info.bytes,
            blocks: info.blocks,
            blocks_free: info.blocks_free,
            blocks_withdrawn: info.blocks_withdrawn,
        }
    }
}

/// What the tier has done since the pool was opened, and what it holds. Blocks are of 4 KiB.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TierFacts {
    /// Looks that found a block of a device in DRAM, or in a slice.
    pub hits: u64,
    /// Blocks that were read from devices.
    pub read_blocks: u64,
    /// Of these ahead of who reads in order.
    #[serde(default)]
    pub ahead_blocks: u64,
    /// Blocks that were written to devices.
    pub written_blocks: u64,
    /// Blocks that files have on devices since, and no longer in slices.
    pub moved_blocks: u64,
    /// Time that changes were delayed by, all together, while blocks were written back.
    #[serde(default)]
    pub delayed_ns: u64,
    /// How often a change found no room at all, and waited for some.
    #[serde(default)]
    pub waits: u64,
    /// DRAM in the caches.
    pub cached_bytes: u64,
    /// Data blocks of all slices.
    pub slice_blocks: u64,
    /// Of these copies of what lies on devices, let go of when their room is needed.
    #[serde(default)]
    pub slice_blocks_clean: u64,
    /// Of these neither free for files nor such copies.
    pub slice_blocks_used: u64,
    /// Data blocks of all devices.
    pub device_blocks: u64,
    /// Of these free.
    pub device_blocks_free: u64,
    /// Of these damaged ones, which are not used again until the pool is opened anew.
    #[serde(default)]
    pub blocks_withdrawn: u64,
}

impl From<TierStats> for TierFacts {
    fn from(stats: TierStats) -> TierFacts {
        TierFacts {
            hits: stats.hits,
            read_blocks: stats.read_blocks,
            ahead_blocks: stats.ahead_blocks,
            written_blocks: stats.written_blocks,
            moved_blocks: stats.moved_blocks,
            delayed_ns: stats.delayed_ns,
            waits: stats.waits,
            cached_bytes: stats.cached_bytes,
            slice_blocks: stats.slice_blocks,
            slice_blocks_clean: stats.slice_blocks_clean,
            slice_blocks_used: stats.slice_blocks_used,
            device_blocks: stats.device_blocks,
            device_blocks_free: stats.device_blocks_free,
            blocks_withdrawn: stats.blocks_withdrawn,
        }
    }
}

impl TierFacts {
    /// What was done since `old`; what is held is as now.
    pub fn since(self, old: TierFacts) -> TierFacts {
        TierFacts {
            hits: self.hits.saturating_sub(old.hits),
            read_blocks: self.read_blocks.saturating_sub(old.read_blocks),
            ahead_blocks: self.ahead_blocks.saturating_sub(old.ahead_blocks),
            written_blocks: self.written_blocks.saturating_sub(old.written_blocks),
            moved_blocks: self.moved_blocks.saturating_sub(old.moved_blocks),
            delayed_ns: self.delayed_ns.saturating_sub(old.delayed_ns),
            waits: self.waits.saturating_sub(old.waits),
            ..self
        }
    }

    /// How many of a hundred looks found their block without a device, if anybody looked. What was
    /// read ahead nobody had looked for.
    pub fn hit_percent(&self) -> Option<f64> {
        let missed = self.read_blocks.saturating_sub(self.ahead_blocks);
        percent(self.hits, self.hits.saturating_add(missed))
    }

    /// How much of the slices is in use: what is written back there is free.
    pub fn dirty_percent(&self) -> f64 {
        percent(self.slice_blocks_used, self.slice_blocks).unwrap_or(0.0)
    }

    /// How much of the devices is in use.
    pub fn used_percent(&self) -> f64 {
        let used = self.device_blocks.saturating_sub(self.device_blocks_free);
        percent(used, self.device_blocks).unwrap_or(0.0)
    }

    /// What it does, on one line, where so much is written back each second.
    pub fn line(&self, bytes_per_second: f64) -> String {
        let hits =
            self.hit_percent().map_or_else(|| "no looks".to_owned(), |it| format!("{it} % hits"));
        format!(
            "{} % dirty, {}/s written back, {} cached, {hits}",
            self.dirty_percent(),
            show(bytes_per_second as u64),
            show(self.cached_bytes),
        )
    }

    /// Bytes that were written back.
    pub fn moved_bytes(&self) -> u64 {
        bytes(self.moved_blocks)
    }
}

/// Bytes of so many blocks. What a server says is not believed to fit.
pub fn bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_BYTES)
}

/// With one digit behind the point.
fn percent(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| (part as f64 * 1000.0 / of as f64).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_there_is() {
        let none = TierFacts::default();
        assert_eq!(
            (none.hit_percent(), none.dirty_percent(), none.used_percent()),
            (None, 0.0, 0.0)
        );
        let first = TierFacts { hits: 10, read_blocks: 10, moved_blocks: 5, ..none };
        let second = TierFacts {
            hits: 12,
            read_blocks: 11,
            moved_blocks: 7,
            slice_blocks: 1000,
            slice_blocks_used: 333,
            device_blocks: 8,
            device_blocks_free: 7,
            ..none
        };
        let between = second.since(first);
        assert_eq!((between.hit_percent(), between.moved_bytes()), (Some(66.7), 8192));
        assert_eq!((between.dirty_percent(), between.used_percent()), (33.3, 12.5));
        let ahead = TierFacts { hits: 988, read_blocks: 1000, ahead_blocks: 988, ..none };
        assert_eq!(ahead.hit_percent(), Some(98.8), "what is read ahead is no miss");
        let nonsense = TierFacts { hits: u64::MAX, read_blocks: 9, moved_blocks: 1 << 60, ..none };
        assert_eq!(nonsense.hit_percent(), Some(100.0));
        assert_eq!(nonsense.moved_bytes(), u64::MAX);
    }
}
