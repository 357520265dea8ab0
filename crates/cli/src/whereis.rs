//! `nearside where`: on which slices and devices a file lies, and how much of it is near.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use nearside::files::{ExtentOn, FileExtent, Heat, NearSlice, Placing};
use serde::Serialize;

use crate::error::{self, Result};
use crate::pool_path::Operand;
use crate::size::show;
use crate::stats::nanos;
use crate::{access, output, placed};

/// Arguments of `where`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside where /mnt/near/db/table
  nearside where /data/pool:/db/table --extents
  nearside where /mnt/near/db --json

Local is what lies on the node of the CPU that this runs on. Blocks count as a whole; what a small
file holds may lie in a log or a tree, and counts nowhere. What lies on a device of the capacity
tier is local to nobody. Heat is what readers near a slice have lost lately by what is not there;
nearside why says more. nearside set says where new blocks go.")]
pub struct WhereArgs {
    /// A file or directory: in a pool, or of a mount.
    #[arg(value_name = "PATH|POOL:/PATH", value_parser = Operand::parser())]
    pub at: Operand,
    /// List each extent, too.
    #[arg(long)]
    pub extents: bool,
    /// Print JSON; all sizes are bytes.
    #[arg(long)]
    pub json: bool,
}

/// What is told of one file.
#[derive(Serialize)]
struct Report {
    path: String,
    layout: String,
    /// How far it, and threads to it, may move, as it was set there.
    move_data: String,
    move_threads: String,
    /// These three in words.
    #[serde(skip)]
    placing: String,
    /// Bytes of blocks.
    bytes: u64,
    /// The node that this runs on, if a slice is near it.
    node: Option<u32>,
    /// Of the bytes.
    local_percent: Option<f64>,
    slices: Vec<Share>,
    /// Devices of the capacity tier, those that it lies on.
    devices: Vec<Below>,
    extents: Vec<Extent>,
}

#[derive(Serialize)]
struct Share {
    slice: u8,
    node: u32,
    bytes: u64,
    local: bool,
    /// What callers near it have lost lately by parts of the file that are not there, ns.
    heat_ns: u64,
}

#[derive(Serialize)]
struct Below {
    device: u8,
    bytes: u64,
}

#[derive(Serialize)]
struct Extent {
    offset: u64,
    bytes: u64,
    /// Either a slice or a device.
    slice: Option<u8>,
    device: Option<u8>,
    at: u64,
}

impl Extent {
    fn new(extent: &FileExtent) -> Extent {
        let (slice, device) = match extent.on {
            ExtentOn::Slice(slice) => (Some(slice), None),
            ExtentOn::Device(device) => (None, Some(device)),
        };
        Extent { offset: extent.offset, bytes: extent.bytes, slice, device, at: extent.at }
    }

    fn on(&self) -> String {
        match (self.slice, self.device) {
            (Some(slice), _) => slice.to_string(),
            (None, device) => device.map_or_else(String::new, device_name),
        }
    }
}

/// What was asked of the pool.
struct Seen {
    shown: PathBuf,
    placing: Placing,
    slices: Vec<NearSlice>,
    extents: Vec<FileExtent>,
    heat: Vec<Heat>,
}

/// Shows where a file lies.
pub fn run(args: &WhereArgs) -> Result<()> {
    let seen = match &args.at {
        Operand::Inside(at) => {
            let pool = access::reading(&at.pool)?;
            let said = |failure| error::inside(&at.pool)(failure);
            let is_dir = pool.metadata(&at.path).map_err(said)?.is_dir();
            Seen {
                shown: at.shown(),
                placing: pool.placing(&at.path).map_err(said)?,
                slices: pool.near_slices().map_err(said)?,
                extents: all(is_dir, &mut |from| pool.extents(&at.path, from).map_err(said))?,
                heat: all(is_dir, &mut |from| pool.heat(&at.path, from).map_err(said))?,
            }
        }
        Operand::Outside(path) => {
            let said = error::of_mount(path);
            let is_dir = path.is_dir();
            Seen {
                shown: path.clone(),
                placing: placed::placing(path).map_err(&said)?,
                slices: placed::slices(path).map_err(&said)?,
                extents: all(is_dir, &mut |from| placed::extents(path, from).map_err(&said))?,
                heat: all(is_dir, &mut |from| placed::heat(path, from).map_err(&said))?,
            }
        }
    };
    let report = report(&seen, ::topology::current_cpu());
    if args.json { output::json(&report) } else { output::text(&text(&report, args.extents)) }
}

/// Some of what is told of a file's parts, and where to go on.
type Part<T> = (Vec<T>, Option<u64>);

/// All that is told of a file's parts; a directory has none. What says to go on where it was is not
/// believed.
pub fn all<T>(is_dir: bool, some: &mut dyn FnMut(u64) -> Result<Part<T>>) -> Result<Vec<T>> {
    let mut parts = Vec::new();
    let mut from = if is_dir { None } else { Some(0) };
    while let Some(offset) = from {
        let (more, next) = some(offset)?;
        parts.extend(more);
        from = next.filter(|next| *next > offset);
    }
    Ok(parts)
}

fn report(seen: &Seen, cpu: u32) -> Report {
    let near = seen.slices.iter().find(|slice| slice.cpus.contains(&cpu));
    let node = near.map(|slice| slice.node);
    let bytes_on = |on: ExtentOn| -> u64 {
        let there = seen.extents.iter().filter(|extent| extent.on == on);
        there.map(|extent| extent.bytes).sum()
    };
    let share = |slice: &NearSlice| Share {
        slice: slice.slice,
        node: slice.node,
        bytes: bytes_on(ExtentOn::Slice(slice.slice)),
        local: slice.cpus.contains(&cpu),
        heat_ns: {
            let its = seen.heat.iter().filter(|heat| heat.slice == slice.slice);
            its.map(|heat| heat.lost_ns as u64).fold(0, u64::saturating_add)
        },
    };
    let slices: Vec<Share> = seen.slices.iter().map(share).collect();
    let named: BTreeSet<u8> = seen.extents.iter().filter_map(|it| device_of(it.on)).collect();
    let below = |device: u8| Below { device, bytes: bytes_on(ExtentOn::Device(device)) };
    let devices: Vec<Below> = named.into_iter().map(below).collect();
    let bytes = slices.iter().map(|share| share.bytes).sum::<u64>()
        + devices.iter().map(|below| below.bytes).sum::<u64>();
    let local: u64 = slices.iter().filter(|share| share.local).map(|share| share.bytes).sum();
    Report {
        path: seen.shown.display().to_string(),
        layout: seen.placing.layout.to_string(),
        move_data: seen.placing.levers.data.to_string(),
        move_threads: seen.placing.levers.threads.to_string(),
        placing: placed::said(&seen.placing),
        bytes,
        node,
        local_percent: (bytes > 0 && node.is_some()).then(|| percent(local, bytes)),
        slices,
        devices,
        extents: seen.extents.iter().map(Extent::new).collect(),
    }
}

fn device_of(on: ExtentOn) -> Option<u8> {
    match on {
        ExtentOn::Slice(_) => None,
        ExtentOn::Device(device) => Some(device),
    }
}

fn device_name(device: u8) -> String {
    format!("device {device}")
}

fn percent(part: u64, of: u64) -> f64 {
    (part as f64 * 1000.0 / of as f64).round() / 10.0
}

fn text(report: &Report, with_extents: bool) -> String {
    let local = match (report.local_percent, report.node) {
        (Some(percent), Some(node)) => format!(", {percent} % of it local to node {node}"),
        _ => String::new(),
    };
    let mut text = format!(
        "{}\n{}; {} in {} extents{local}\n\n",
        output::shown(report.path.as_bytes()),
        report.placing,
        show(report.bytes),
        report.extents.len(),
    );
    let mut rows =
        vec![["SLICE", "NODE", "BYTES", "SHARE", "LOCAL", "HEAT"].map(str::to_owned).to_vec()];
    for share in &report.slices {
        rows.push(vec![
            share.slice.to_string(),
            share.node.to_string(),
            show(share.bytes),
            format!("{} %", percent(share.bytes, report.bytes.max(1))),
            if share.local { "yes" } else { "-" }.to_owned(),
            if share.heat_ns > 0 { nanos(share.heat_ns) } else { "-".to_owned() },
        ]);
    }
    for Below { device, bytes } in &report.devices {
        let share = format!("{} %", percent(*bytes, report.bytes.max(1)));
        let none = || "-".to_owned();
        rows.push(vec![device_name(*device), none(), show(*bytes), share, none(), none()]);
    }
    text.push_str(&output::table(&rows));
    if with_extents {
        let mut rows = vec![["OFFSET", "BYTES", "SLICE", "AT"].map(str::to_owned).to_vec()];
        rows.extend(report.extents.iter().map(|it| {
            vec![it.offset.to_string(), it.bytes.to_string(), it.on(), it.at.to_string()]
        }));
        text.push('\n');
        text.push_str(&output::table(&rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let near = |slice, node, cpus: &[u32]| NearSlice { slice, node, cpus: cpus.to_vec() };
        let extent = |offset, bytes, slice| FileExtent {
            offset,
            bytes,
            on: ExtentOn::Slice(slice),
            at: 4096,
        };
        Seen {
            shown: "/mnt/file".into(),
            placing: Placing::default(),
            slices: vec![near(0, 0, &[0, 2]), near(1, 1, &[1]), near(2, 0, &[0, 2])],
            extents: vec![extent(0, 8192, 0), extent(8192, 4096, 1), extent(20480, 12288, 2)],
            heat: vec![
                Heat { offset: 0, slice: 1, lost_ns: 70_000.0 },
                Heat { offset: 524_288, slice: 1, lost_ns: 20_000.0 },
            ],
        }
    }

    #[test]
    fn slices_of_the_askers_node_are_local() {
        let found = report(&seen(), 2);
        assert_eq!((found.bytes, found.node, found.local_percent), (24576, Some(0), Some(83.3)));
        let of = |share: &Share| (share.slice, share.bytes, share.local);
        let shares: Vec<_> = found.slices.iter().map(of).collect();
        assert_eq!(shares, [(0, 8192, true), (1, 4096, false), (2, 12288, true)]);
        let text = text(&found, true);
        assert!(text.contains("83.3 % of it local to node 0"), "{text}");
        assert!(text.contains("\n1      1     4 KiB   16.7 %  -      90 us\n"), "{text}");
        assert!(text.ends_with("20480   12288  2      4096\n"), "{text}");
    }

    #[test]
    fn what_lies_on_a_device_is_on_no_slice_and_local_to_nobody() {
        let mut seen = seen();
        for (offset, device) in [(65536, 1), (131072, 0), (262144, 1)] {
            let on = ExtentOn::Device(device);
            seen.extents.push(FileExtent { offset, bytes: 8192, on, at: 1 << 16 });
        }
        let found = report(&seen, 2);
        assert_eq!((found.bytes, found.local_percent), (49152, Some(41.7)));
        let devices: Vec<_> = found.devices.iter().map(|it| (it.device, it.bytes)).collect();
        assert_eq!(devices, [(0, 8192), (1, 16384)]);
        let last = &found.extents[5];
        assert_eq!((last.slice, last.device), (None, Some(1)));
        let text = text(&found, true);
        assert!(text.contains("\ndevice 1  -     16 KiB  33.3 %  -      -\n"), "{text}");
        assert!(text.ends_with("262144  8192   device 1  65536\n"), "{text}");
    }

    #[test]
    fn who_is_near_no_slice_has_nothing_local() {
        let found = report(&seen(), 77);
        assert_eq!((found.node, found.local_percent), (None, None));
        let none = Seen { extents: Vec::new(), ..seen() };
        assert_eq!(report(&none, 0).local_percent, None);
        assert!(text(&report(&none, 0), false).contains("0 B in 0 extents\n"));
    }
}
