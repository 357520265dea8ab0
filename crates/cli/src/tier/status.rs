//! `nearside tier status`: how full slices and devices are, and what moves between them.

use std::path::Path;

use serde::Serialize;

use super::facts::{DeviceFacts, TierFacts, bytes};
use crate::error::Result;
use crate::facts::Facts;
use crate::size::show;
use crate::{access, output};

#[derive(Serialize)]
struct Status<'a> {
    pool: String,
    /// Whether a server tells what it has done, and holds; else all that is 0.
    mounted: bool,
    slice_bytes: u64,
    slice_used_bytes: u64,
    /// Copies of what lies on devices, let go of when their room is needed.
    slice_clean_bytes: u64,
    /// How much of the slices is in use.
    dirty_percent: f64,
    device_bytes: u64,
    device_used_bytes: u64,
    used_percent: f64,
    /// Damaged places, which are not used again until the pool is opened anew.
    withdrawn_bytes: u64,
    cached_bytes: u64,
    hits: u64,
    hit_percent: Option<f64>,
    read_bytes: u64,
    /// Of these ahead of who reads in order.
    ahead_bytes: u64,
    written_bytes: u64,
    /// What moved from slices to devices.
    written_back_bytes: u64,
    /// Time that changes were delayed by, all together, while blocks were written back.
    delayed_seconds: f64,
    /// How often a change found no room at all, and waited for some.
    waits: u64,
    devices: &'a [DeviceFacts],
}

/// Shows the tier of a pool.
pub fn run(pool: &Path, json: bool) -> Result<()> {
    let mounted = access::mount_of(pool)?.is_some();
    let facts = access::facts(pool)?;
    let tier = facts.tier.ok_or_else(|| super::no_tier(pool))?;
    let status = status(pool, mounted, &facts, tier);
    if json { output::json(&status) } else { output::text(&text(&status)) }
}

fn status<'a>(pool: &Path, mounted: bool, facts: &'a Facts, tier: TierFacts) -> Status<'a> {
    Status {
        pool: pool.display().to_string(),
        mounted,
        slice_bytes: bytes(tier.slice_blocks),
        slice_used_bytes: bytes(tier.slice_blocks_used),
        slice_clean_bytes: bytes(tier.slice_blocks_clean),
        dirty_percent: tier.dirty_percent(),
        device_bytes: bytes(tier.device_blocks),
        device_used_bytes: bytes(tier.device_blocks.saturating_sub(tier.device_blocks_free)),
        used_percent: tier.used_percent(),
        withdrawn_bytes: bytes(tier.blocks_withdrawn),
        cached_bytes: tier.cached_bytes,
        hits: tier.hits,
        hit_percent: tier.hit_percent(),
        read_bytes: bytes(tier.read_blocks),
        ahead_bytes: bytes(tier.ahead_blocks),
        written_bytes: bytes(tier.written_blocks),
        written_back_bytes: tier.moved_bytes(),
        delayed_seconds: tier.delayed_ns as f64 / 1e9,
        waits: tier.waits,
        devices: &facts.devices,
    }
}

fn text(status: &Status<'_>) -> String {
    let mut text = format!(
        "pool        {}\n\
         slices      {} of {} in use ({} %), {} copies of what devices have\n\
         devices     {} of {} in use ({} %)\n",
        output::shown(status.pool.as_bytes()),
        show(status.slice_used_bytes),
        show(status.slice_bytes),
        status.dirty_percent,
        show(status.slice_clean_bytes),
        show(status.device_used_bytes),
        show(status.device_bytes),
        status.used_percent,
    );
    if status.withdrawn_bytes > 0 {
        let withdrawn = show(status.withdrawn_bytes);
        text.push_str(&format!("withdrawn   {withdrawn} of damaged places on devices\n"));
    }
    // who opened the pool for this has done nothing yet
    if status.mounted {
        let found = match status.hit_percent {
            Some(percent) => format!("{percent} % of what was looked for was there"),
            None => "nothing was looked for yet".to_owned(),
        };
        text.push_str(&format!(
            "cache       {} in DRAM; {found}\n\
             moved       {} written back; {} read from devices, {} of it ahead, {} written \
             there\n\
             changes     delayed by {:.3} s in all, {} times without any room\n",
            show(status.cached_bytes),
            show(status.written_back_bytes),
            show(status.read_bytes),
            show(status.ahead_bytes),
            show(status.written_bytes),
            status.delayed_seconds,
            status.waits,
        ));
    }
    text.push('\n');
    text.push_str(&super::table(status.devices));
    text
}
