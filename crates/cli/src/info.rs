//! `nearside info`: what a pool is and how full.

use std::path::Path;

use serde::Serialize;

use crate::args::InfoArgs;
use crate::error::Result;
use crate::facts::{CopiedFacts, Facts, MirrorFacts, ResilverFacts, WorkerFacts};
use crate::output::{self, table};
use crate::size::show;
use crate::tier::facts::DeviceFacts;
use crate::{access, tier, whereabouts};

#[derive(Serialize)]
struct Info<'a> {
    pool: String,
    uuid: &'a str,
    format_version: u32,
    domain: &'a str,
    generation: u64,
    log_used_bytes: u64,
    bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    /// Free in slices, but not for files.
    kept_bytes: u64,
    inodes: u64,
    /// Bytes that went to the slices for each that programs wrote; none before any did.
    bytes_per_user_byte: Option<f64>,
    slices: Vec<Slice<'a>>,
    /// The devices of the capacity tier.
    devices: &'a [DeviceFacts],
    /// What the capacity tier does, if the pool has one.
    tier: Option<Tier>,
    /// How far stale copies of a mirrored pool are brought up to date.
    resilver: Option<&'a ResilverFacts>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct Slice<'a> {
    index: u32,
    path: &'a str,
    node: Option<u32>,
    medium: &'a str,
    domain: &'a str,
    bytes: u64,
    log_bytes: u64,
    log_line_bytes: u32,
    block_bytes: u32,
    blocks: u64,
    blocks_free: u64,
    unreadable: Vec<Range>,
    /// The second copy, in a mirrored pool.
    mirror: Option<&'a MirrorFacts>,
    workers: &'a WorkerFacts,
    copied: CopiedFacts,
}

/// A capacity tier, since the pool was opened.
#[derive(Serialize)]
struct Tier {
    /// Of a hundred looks for its blocks so many needed no device; none before anybody looked.
    hit_percent: Option<f64>,
    /// How much of the slices is in use: what is written back there is free.
    dirty_percent: f64,
    written_back_bytes_per_second: f64,
    /// DRAM in the caches.
    cached_bytes: u64,
    #[serde(skip)]
    line: String,
}

impl Tier {
    fn of(facts: &Facts) -> Option<Tier> {
        let tier = facts.tier?;
        let moved = tier.moved_bytes() as f64;
        let rate = if facts.open_seconds > 0.0 { moved / facts.open_seconds } else { 0.0 };
        Some(Tier {
            hit_percent: tier.hit_percent(),
            dirty_percent: tier.dirty_percent(),
            written_back_bytes_per_second: rate,
            cached_bytes: tier.cached_bytes,
            line: tier.line(rate),
        })
    }
}

/// Bytes of a slice that cannot be read.
#[derive(Serialize)]
struct Range {
    offset: u64,
    bytes: u64,
}

/// Shows a pool.
pub fn run(args: &InfoArgs) -> Result<()> {
    let pool = whereabouts::pool_at(&args.pool)?;
    let facts = access::facts(&pool)?;
    let info = info(&pool, &facts);
    if args.json { output::json(&info) } else { output::text(&text(&info)) }
}

fn info<'a>(pool: &Path, facts: &'a Facts) -> Info<'a> {
    let slices = facts.slices.iter().map(|slice| Slice {
        index: slice.index,
        path: &slice.path,
        node: slice.node,
        medium: &slice.medium,
        domain: &slice.domain,
        bytes: slice.bytes,
        log_bytes: slice.log_bytes,
        log_line_bytes: slice.log_line_bytes,
        block_bytes: facts.block_bytes,
        blocks: slice.blocks,
        blocks_free: slice.blocks_free,
        unreadable: slice
            .unreadable
            .iter()
            .map(|&(offset, bytes)| Range { offset, bytes })
            .collect(),
        mirror: slice.mirror.as_ref(),
        workers: &slice.workers,
        copied: slice.copied,
    });
    Info {
        pool: pool.display().to_string(),
        uuid: &facts.uuid,
        format_version: facts.format_version,
        domain: &facts.domain,
        generation: facts.generation,
        log_used_bytes: facts.log_used_bytes,
        bytes: facts.bytes(facts.blocks),
        used_bytes: facts.bytes(facts.blocks_used()),
        free_bytes: facts.bytes(facts.blocks_free),
        kept_bytes: facts.bytes(facts.blocks_kept()),
        inodes: facts.inodes,
        bytes_per_user_byte: facts.bytes_per_user_byte,
        slices: slices.collect(),
        devices: &facts.devices,
        tier: Tier::of(facts),
        resilver: facts.resilver.as_ref(),
        notes: &facts.notes,
    }
}

fn text(info: &Info<'_>) -> String {
    let mut text = format!(
        "pool        {}\nuuid        {}\nformat      {}\ndomain      {}\ncheckpoint  {}\n",
        output::shown(info.pool.as_bytes()),
        info.uuid,
        info.format_version,
        info.domain,
        info.generation
    );
    let percent = (info.used_bytes * 100).checked_div(info.bytes).unwrap_or(0);
    text.push_str(&format!(
        "log         {} in use\nspace       {}, {} used ({percent} %), {} free, {} kept\n\
         inodes      {}\n",
        show(info.log_used_bytes),
        show(info.bytes),
        show(info.used_bytes),
        show(info.free_bytes),
        show(info.kept_bytes),
        info.inodes
    ));
    if let Some(each) = info.bytes_per_user_byte {
        text.push_str(&format!("writes      {each} PM bytes per user byte\n"));
    }
    if let Some(tier) = &info.tier {
        text.push_str(&format!("tier        {}\n", tier.line));
    }
    text.push('\n');
    let copies = info.slices.iter().filter_map(|slice| slice.mirror);
    if copies.clone().count() > 0 {
        let single = copies.filter(|mirror| mirror.state != "current").count();
        text.push_str(&copies_line(info, single));
    }
    let heads =
        ["SLICE", "NODE", "MEDIUM", "DOMAIN", "SIZE", "LOG", "LINE", "USED", "FREE", "PATH"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(info.slices.iter().map(row));
    text.push_str(&table(&rows));
    if !info.devices.is_empty() {
        text.push_str(&format!("\n{}", tier::table(info.devices)));
    }
    for slice in &info.slices {
        if let Some(MirrorFacts { path, state }) = slice.mirror {
            let at = path
                .as_deref()
                .map_or(String::new(), |path| format!(", {}", output::shown(path.as_bytes())));
            text.push_str(&format!("mirror of slice {}: {state}{at}\n", slice.index));
        }
        if let Some(trouble) = slice.workers.trouble() {
            text.push_str(&format!("workers of slice {}: {trouble}\n", slice.index));
        }
        for Range { offset, bytes } in &slice.unreadable {
            let index = slice.index;
            text.push_str(&format!("unreadable: slice {index}, {bytes} bytes at {offset}\n"));
        }
    }
    for note in info.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn copies_line(info: &Info<'_>, single: usize) -> String {
    let state = match (single, info.resilver.filter(|going| !going.ended)) {
        (0, _) => "2, all current".to_owned(),
        (_, Some(going)) => {
            let percent = (going.done_bytes * 100).checked_div(going.bytes).unwrap_or(0);
            format!("2, but one of {single} slices, which get their second: {percent} %")
        }
        _ => format!("2, but one of {single} slices: degraded"),
    };
    format!("copies      {state}\n\n")
}

fn row(slice: &Slice<'_>) -> Vec<String> {
    let bytes = |blocks: u64| show(blocks * u64::from(slice.block_bytes));
    vec![
        slice.index.to_string(),
        slice.node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
        slice.medium.to_owned(),
        slice.domain.to_owned(),
        show(slice.bytes),
        show(slice.log_bytes),
        show(u64::from(slice.log_line_bytes)),
        bytes(slice.blocks.saturating_sub(slice.blocks_free)),
        bytes(slice.blocks_free),
        output::shown(slice.path.as_bytes()),
    ]
}
