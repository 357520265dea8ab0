//! `nearside where`: on which slices a file lies, and how much of it is near.

use std::path::PathBuf;

use clap::Args;
use nearside::files::{FileExtent, Layout, NearSlice};
use serde::Serialize;

use crate::error::{self, Result};
use crate::pool_path::Operand;
use crate::size::show;
use crate::{access, output, placed};

/// Arguments of `where`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside where /mnt/near/db/table
  nearside where /data/pool:/db/table --extents
  nearside where /mnt/near/db --json

Local is what lies on the node of the CPU that this runs on. Blocks count as a whole; what a small
file holds may lie in a log or a tree, and counts nowhere. nearside set says where new blocks go.")]
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
    /// Bytes of blocks.
    bytes: u64,
    /// The node that this runs on, if a slice is near it.
    node: Option<u32>,
    /// Of the bytes.
    local_percent: Option<f64>,
    slices: Vec<Share>,
    extents: Vec<Extent>,
}

#[derive(Serialize)]
struct Share {
    slice: u8,
    node: u32,
    bytes: u64,
    local: bool,
}

#[derive(Serialize)]
struct Extent {
    offset: u64,
    bytes: u64,
    slice: u8,
    at: u64,
}

/// What was asked of the pool.
struct Seen {
    shown: PathBuf,
    layout: Layout,
    slices: Vec<NearSlice>,
    extents: Vec<FileExtent>,
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
                layout: pool.layout(&at.path).map_err(said)?,
                slices: pool.near_slices().map_err(said)?,
                extents: all(is_dir, &mut |from| pool.extents(&at.path, from).map_err(said))?,
            }
        }
        Operand::Outside(path) => {
            let said = error::of_mount(path);
            Seen {
                shown: path.clone(),
                layout: placed::layout(path).map_err(&said)?,
                slices: placed::slices(path).map_err(&said)?,
                extents: all(path.is_dir(), &mut |from| {
                    placed::extents(path, from).map_err(&said)
                })?,
            }
        }
    };
    let report = report(&seen, ::topology::current_cpu());
    if args.json { output::json(&report) } else { output::text(&text(&report, args.extents)) }
}

/// Some extents, and where to go on.
type Part = (Vec<FileExtent>, Option<u64>);

/// All extents; a directory has none. What says to go on where it was is not believed.
fn all(is_dir: bool, some: &mut dyn FnMut(u64) -> Result<Part>) -> Result<Vec<FileExtent>> {
    let mut extents: Vec<FileExtent> = Vec::new();
    let mut from = if is_dir { None } else { Some(0) };
    while let Some(offset) = from {
        let (more, next) = some(offset)?;
        extents.extend(more);
        from = next.filter(|next| *next > offset);
    }
    Ok(extents)
}

fn report(seen: &Seen, cpu: u32) -> Report {
    let near = seen.slices.iter().find(|slice| slice.cpus.contains(&cpu));
    let node = near.map(|slice| slice.node);
    let bytes_on = |slice: u8| {
        let on = seen.extents.iter().filter(|extent| extent.slice == slice);
        on.map(|extent| extent.bytes).sum()
    };
    let share = |slice: &NearSlice| Share {
        slice: slice.slice,
        node: slice.node,
        bytes: bytes_on(slice.slice),
        local: slice.cpus.contains(&cpu),
    };
    let slices: Vec<Share> = seen.slices.iter().map(share).collect();
    let bytes: u64 = slices.iter().map(|share| share.bytes).sum();
    let local: u64 = slices.iter().filter(|share| share.local).map(|share| share.bytes).sum();
    let extent =
        |it: &FileExtent| Extent { offset: it.offset, bytes: it.bytes, slice: it.slice, at: it.at };
    Report {
        path: seen.shown.display().to_string(),
        layout: seen.layout.to_string(),
        bytes,
        node,
        local_percent: (bytes > 0 && node.is_some()).then(|| percent(local, bytes)),
        slices,
        extents: seen.extents.iter().map(extent).collect(),
    }
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
        "{}\nlayout {}; {} in {} extents{local}\n\n",
        output::shown(report.path.as_bytes()),
        report.layout,
        show(report.bytes),
        report.extents.len(),
    );
    let mut rows = vec![["SLICE", "NODE", "BYTES", "SHARE", "LOCAL"].map(str::to_owned).to_vec()];
    for share in &report.slices {
        rows.push(vec![
            share.slice.to_string(),
            share.node.to_string(),
            show(share.bytes),
            format!("{} %", percent(share.bytes, report.bytes.max(1))),
            if share.local { "yes" } else { "-" }.to_owned(),
        ]);
    }
    text.push_str(&output::table(&rows));
    if with_extents {
        let mut rows = vec![["OFFSET", "BYTES", "SLICE", "AT"].map(str::to_owned).to_vec()];
        rows.extend(report.extents.iter().map(|it| {
            let slice = u64::from(it.slice);
            [it.offset, it.bytes, slice, it.at].map(|number| number.to_string()).to_vec()
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
        let extent = |offset, bytes, slice| FileExtent { offset, bytes, slice, at: 4096 };
        Seen {
            shown: "/mnt/file".into(),
            layout: Layout::Auto,
            slices: vec![near(0, 0, &[0, 2]), near(1, 1, &[1]), near(2, 0, &[0, 2])],
            extents: vec![extent(0, 8192, 0), extent(8192, 4096, 1), extent(20480, 12288, 2)],
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
        assert!(text.ends_with("20480   12288  2      4096\n"), "{text}");
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
