//! `nearside df`: how much space there is, slice by slice, and on the devices below them.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::error::Result;
use crate::facts::{Facts, SliceFacts};
use crate::size::show;
use crate::tier::facts::DeviceFacts;
use crate::{access, output, whereabouts};

/// Arguments of `df`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside df /data/pool
  nearside df /data/pool --json

The sizes are those of the space for data, without logs; devices are those of the capacity tier.
The total's free space is what files can still take: less than that of all slices and devices by
what is kept for checkpoints and for removing files from a full pool. Inodes belong to the pool as a
whole. The server of a mounted pool is asked: it tells the pool's owner and root.")]
pub struct DfArgs {
    /// A pool: its directory, or the one it is mounted on.
    #[arg(value_name = "POOL|DIR")]
    pub pool: PathBuf,
    /// Print JSON; all sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    pool: String,
    #[serde(flatten)]
    space: Space,
    /// Free in slices, but not for files.
    kept_bytes: u64,
    inodes: u64,
    inodes_free: u64,
    slices: Vec<Slice>,
    /// The devices of the capacity tier.
    devices: Vec<Slice>,
}

/// A slice or a device.
#[derive(Serialize)]
struct Slice {
    index: u32,
    path: String,
    #[serde(flatten)]
    space: Space,
}

#[derive(Serialize)]
struct Space {
    bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    used_percent: u64,
}

impl Space {
    /// `kept` of the free blocks are not for files.
    fn new(blocks: u64, blocks_free: u64, kept: u64, block_bytes: u32) -> Space {
        let bytes = |blocks: u64| blocks * u64::from(block_bytes);
        let (used, free) = (blocks.saturating_sub(blocks_free), blocks_free.saturating_sub(kept));
        // Of what files can have, and rounded up, both as df(1) does: what is used a little is
        // not shown as empty, and a pool that takes no more is full.
        let percent = (u128::from(used) * 100).div_ceil(u128::from((used + free).max(1)));
        Space {
            bytes: bytes(blocks),
            used_bytes: bytes(used),
            free_bytes: bytes(free),
            used_percent: percent as u64,
        }
    }

    fn cells(&self) -> [String; 4] {
        let percent = format!("{} %", self.used_percent);
        [show(self.bytes), show(self.used_bytes), show(self.free_bytes), percent]
    }
}

/// Shows the space of a pool.
pub fn run(args: &DfArgs) -> Result<()> {
    let pool = whereabouts::pool_at(&args.pool)?;
    let report = report(&pool, access::facts(&pool)?);
    if args.json { output::json(&report) } else { output::text(&text(&report)) }
}

fn report(pool: &Path, facts: Facts) -> Report {
    let (free, kept) = (facts.blocks_free_in_all(), facts.blocks_kept());
    let slice = |slice: &SliceFacts| Slice {
        index: slice.index,
        path: slice.path.clone(),
        space: Space::new(slice.blocks, slice.blocks_free, 0, facts.block_bytes),
    };
    let device = |device: &DeviceFacts| Slice {
        index: device.index,
        path: device.path.clone(),
        space: Space::new(device.blocks, device.blocks_free, 0, facts.block_bytes),
    };
    Report {
        pool: pool.display().to_string(),
        space: Space::new(facts.blocks, free, kept, facts.block_bytes),
        kept_bytes: facts.bytes(kept),
        inodes: facts.inodes,
        inodes_free: facts.inodes_free,
        slices: facts.slices.iter().map(slice).collect(),
        devices: facts.devices.iter().map(device).collect(),
    }
}

fn text(report: &Report) -> String {
    let row = |name: &str, cells: [String; 4], inodes: &str, path: &str| {
        let mut row = vec![name.to_owned()];
        row.extend(cells);
        // A path is the last cell, so that what it is escaped to moves no column.
        row.extend([inodes.to_owned(), output::shown(path.as_bytes())]);
        row
    };
    let heads = ["SIZE", "USED", "FREE", "USE"].map(str::to_owned);
    let mut rows = vec![row("SLICE", heads, "INODES", "PATH")];
    for slice in &report.slices {
        rows.push(row(&slice.index.to_string(), slice.space.cells(), "-", &slice.path));
    }
    for device in &report.devices {
        let name = format!("device {}", device.index);
        rows.push(row(&name, device.space.cells(), "-", &device.path));
    }
    let inodes = report.inodes.to_string();
    rows.push(row("total", report.space.cells(), &inodes, &report.pool));
    output::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_use_is_not_shown_as_none() {
        let cases = [(1000, 1000, 0, 0), (1000, 999, 0, 1), (1000, 0, 0, 100), (0, 0, 0, 0)];
        for (blocks, free, kept, percent) in cases.into_iter().chain([(1000, 50, 50, 100)]) {
            assert_eq!(Space::new(blocks, free, kept, 4096).used_percent, percent);
        }
    }
}
