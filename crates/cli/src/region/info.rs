//! `nearside region info`: where a region lies, and how this machine maps it.

use std::collections::BTreeMap;

use clap::Args;
use nearside::files::{ExtentOn, FileExtent, FileExtras, NearSlice};
use nearside::{Faults, RegionSettings};
use serde::Serialize;

use super::{At, refused};
use crate::error::Result;
use crate::inside::{Inside, Opening};
use crate::pool_path::PoolPath;
use crate::size::show;
use crate::{access, output, whereis};

/// Arguments of `region info`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside region info /data/pool /counters
  nearside region info /mnt/near /counters --json

What lies in slices or on devices counts in whole blocks, and holes in bytes; what a small file
holds may lie in a log or a tree, and is in neither. Which way faults of regions come is that of
this user's programs; one process at a time has a pool: they map none of it while it is mounted.")]
pub struct InfoArgs {
    #[command(flatten)]
    at: At,
    /// Print JSON; all sizes are bytes.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info {
    path: String,
    size_bytes: u64,
    /// All that is counted as taken: blocks, what is reserved, what lies in the log and the trees.
    allocated_bytes: u64,
    nodes: Vec<OnNode>,
    /// The devices of the capacity tier that it lies on.
    devices: Vec<OnDevice>,
    /// Of the size, what holds no data; it may be reserved.
    hole_bytes: u64,
    /// Space that is set aside for holes, also behind the end.
    reserved_bytes: u64,
    /// Copies in slices of what lies on devices; they belong to nobody.
    clean_bytes: u64,
    /// Whether a server has the pool, and no other process can map its regions.
    mounted: bool,
    mapping: Option<Mapping>,
    /// Why this process may not map regions.
    unmappable: Option<String>,
}

#[derive(Serialize)]
struct OnNode {
    node: u32,
    slices: Vec<u8>,
    bytes: u64,
}

#[derive(Serialize)]
struct OnDevice {
    device: u8,
    bytes: u64,
}

/// What a process that maps regions has here.
#[derive(Serialize)]
struct Mapping {
    /// Which way faults come.
    faults: &'static str,
    /// DRAM that pages of regions may take, unless the program says otherwise.
    memory_bytes: u64,
}

/// What was asked of the pool.
struct Seen {
    size: u64,
    allocated: u64,
    slices: Vec<NearSlice>,
    extents: Vec<FileExtent>,
    data: u64,
    extras: FileExtras,
}

/// Shows a region.
pub fn run(args: &InfoArgs) -> Result<()> {
    let at = args.at.place()?;
    let pool = access::reading(&at.pool)?;
    let mut info = info(&at, &look(&pool, &at)?);
    match &pool {
        Inside::Mounted(_) => {
            let memory_bytes = RegionSettings::default().memory_bytes;
            info.mounted = true;
            info.mapping = Some(Mapping { faults: Faults::best().name(), memory_bytes });
        }
        Inside::Opened(pool) => match pool.regions().map(|regions| regions.info()) {
            Ok(regions) => {
                let (faults, memory_bytes) = (regions.faults.name(), regions.memory_bytes);
                info.mapping = Some(Mapping { faults, memory_bytes });
            }
            Err(error) => info.unmappable = Some(error.to_string()),
        },
    }
    if args.json { output::json(&info) } else { output::text(&text(&info)) }
}

fn look(pool: &Inside, at: &PoolPath) -> Result<Seen> {
    let said = refused(at);
    let meta = pool.metadata(&at.path).map_err(&said)?;
    if meta.is_dir() {
        return Err(at.refuse("is a directory; a region is a file"));
    }
    if !meta.is_file() {
        return Err(at.refuse("is no regular file, as a region is"));
    }
    Ok(Seen {
        size: meta.len(),
        allocated: meta.attr().sectors.saturating_mul(512),
        slices: pool.near_slices().map_err(&said)?,
        extents: whereis::all(false, &mut |from| pool.extents(&at.path, from).map_err(&said))?,
        data: data_bytes(pool, at)?,
        extras: extras(pool, at)?,
    })
}

/// Bytes of the file that are in no hole.
fn data_bytes(pool: &Inside, at: &PoolPath) -> Result<u64> {
    let file = pool.open(&at.path, Opening::Read).map_err(refused(at))?;
    let (mut bytes, mut from) = (0, 0);
    let said = |error: std::io::Error| at.refuse(error.to_string());
    while let Some((start, end)) = file.next_data(from).map_err(said)? {
        // a server's answer is not believed to lead on
        if end <= from {
            break;
        }
        bytes += end.saturating_sub(start);
        from = end;
    }
    Ok(bytes)
}

fn extras(pool: &Inside, at: &PoolPath) -> Result<FileExtras> {
    let (mut sum, mut from) = (FileExtras::default(), Some(0));
    while let Some(offset) = from {
        let (more, next) = pool.extras(&at.path, offset).map_err(refused(at))?;
        sum.reserved = sum.reserved.saturating_add(more.reserved);
        sum.clean = sum.clean.saturating_add(more.clean);
        from = next.filter(|next| *next > offset);
    }
    Ok(sum)
}

fn info(at: &PoolPath, seen: &Seen) -> Info {
    let mut nodes: BTreeMap<u32, OnNode> = BTreeMap::new();
    for slice in &seen.slices {
        let none = || OnNode { node: slice.node, slices: Vec::new(), bytes: 0 };
        nodes.entry(slice.node).or_insert_with(none).slices.push(slice.slice);
    }
    let mut devices: BTreeMap<u8, u64> = BTreeMap::new();
    for extent in &seen.extents {
        match extent.on {
            ExtentOn::Device(device) => *devices.entry(device).or_default() += extent.bytes,
            ExtentOn::Slice(slice) => {
                let node = nodes.values_mut().find(|node| node.slices.contains(&slice));
                node.into_iter().for_each(|node| node.bytes += extent.bytes);
            }
        }
    }
    let on_device = |(device, bytes)| OnDevice { device, bytes };
    Info {
        path: at.shown().display().to_string(),
        size_bytes: seen.size,
        allocated_bytes: seen.allocated,
        nodes: nodes.into_values().collect(),
        devices: devices.into_iter().map(on_device).collect(),
        hole_bytes: seen.size.saturating_sub(seen.data),
        reserved_bytes: seen.extras.reserved,
        clean_bytes: seen.extras.clean,
        mounted: false,
        mapping: None,
        unmappable: None,
    }
}

fn text(info: &Info) -> String {
    let mut text = format!(
        "region      {}\n\
         size        {} bytes ({})\n\
         allocated   {}\n\
         holes       {}; {} reserved\n",
        output::shown(info.path.as_bytes()),
        info.size_bytes,
        show(info.size_bytes),
        show(info.allocated_bytes),
        show(info.hole_bytes),
        show(info.reserved_bytes),
    );
    for OnNode { node, slices, bytes } in &info.nodes {
        let slices: Vec<String> = slices.iter().map(u8::to_string).collect();
        let slices = slices.join(", ");
        text.push_str(&format!("node {node:<6} {} in slices {slices}\n", show(*bytes)));
    }
    for OnDevice { device, bytes } in &info.devices {
        text.push_str(&format!("device {device:<4} {}\n", show(*bytes)));
    }
    if !info.devices.is_empty() {
        let clean = show(info.clean_bytes);
        text.push_str(&format!("copies      {clean} of it in slices, too\n"));
    }
    let mapping = match (&info.mapping, &info.unmappable) {
        (Some(mapping), _) => {
            let once = if info.mounted { ", once the pool is unmounted" } else { "" };
            format!("{}; {} of DRAM for pages{once}", mapping.faults, show(mapping.memory_bytes))
        }
        (None, Some(why)) => format!("not by this user: {why}"),
        (None, None) => "unknown".to_owned(),
    };
    text.push_str(&format!("mapping     {mapping}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_one_node_are_one_line() {
        let near = |slice, node| NearSlice { slice, node, cpus: Vec::new() };
        let extent = |on, bytes| FileExtent { offset: 0, bytes, on, at: 0 };
        let seen = Seen {
            size: 1 << 20,
            allocated: 36864,
            slices: vec![near(0, 0), near(1, 3), near(2, 0)],
            extents: vec![
                extent(ExtentOn::Slice(0), 4096),
                extent(ExtentOn::Slice(2), 8192),
                extent(ExtentOn::Device(1), 16384),
                extent(ExtentOn::Device(1), 4096),
            ],
            data: 32768,
            extras: FileExtras { reserved: 4096, clean: 12288 },
        };
        let at = PoolPath { pool: "/pool".into(), path: "/a".into() };
        let text = text(&info(&at, &seen));
        for line in [
            "region      /pool:/a",
            "size        1048576 bytes (1 MiB)",
            "allocated   36 KiB",
            "holes       992 KiB; 4 KiB reserved",
            "node 0      12 KiB in slices 0, 2",
            "node 3      0 B in slices 1",
            "device 1    20 KiB",
            "copies      12 KiB of it in slices, too",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
    }
}
