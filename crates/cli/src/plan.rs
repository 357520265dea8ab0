//! `nearside format --dry-run`: what would be made, and whether there is room for it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nearside::{FormatOptions, Pool, SliceSpec, as_url};
use serde::Serialize;

use crate::error::{self, Error, Result};
use crate::size::show;
use crate::{about, output};

/// Smallest device of the capacity tier.
const DEVICE_BYTES_MIN: u64 = 1 << 20;

/// What `format` would make.
#[derive(Debug, Serialize)]
pub struct Plan {
    pool: String,
    slices: Vec<Item>,
    /// Devices of the capacity tier.
    devices: Vec<Item>,
}

/// A slice, or a device of the capacity tier.
#[derive(Debug, Serialize)]
struct Item {
    path: String,
    /// A device knows its size itself.
    bytes: Option<u64>,
    /// What is there: `nothing`, `file` or another word of `stat`.
    now: &'static str,
    /// Bytes of the medium that would be taken for it.
    new_bytes: u64,
}

/// What is wanted of a file system, what is free there, and a path on it; by its number.
type Wanted = BTreeMap<u64, (u64, u64, PathBuf)>;

/// What `format` would make in `pool`; fails where it would fail for what is there, or is not.
pub fn plan(pool: &Path, options: &FormatOptions) -> Result<Plan> {
    refuse_pool(pool)?;
    refuse_copies(pool, options)?;
    Pool::check_places(options).map_err(error::pool(pool))?;
    let (mut slices, mut devices, mut wanted) = (Vec::new(), Vec::new(), Wanted::new());
    for (index, spec) in options.slices.iter().enumerate() {
        let path = spec.path.clone().unwrap_or_else(|| pool.join(format!("slice.{index}")));
        slices.push(item(&path, spec, Some(options.slice_bytes), &mut wanted)?);
    }
    for (index, spec) in options.capacity.iter().enumerate() {
        let path = spec.path.clone().unwrap_or_else(|| pool.join(format!("capacity.{index}")));
        let device = match as_url(&path) {
            Some(url) => object_store(url, spec)?,
            None => item(&path, spec, None, &mut wanted)?,
        };
        refuse_device(&path, spec, &device)?;
        devices.push(device);
    }
    for (wanted, free, path) in wanted.into_values() {
        if wanted > free {
            let reason = format!("{} are wanted here, {} are free", show(wanted), show(free));
            return Err(Error::Path { shown: path, reason });
        }
    }
    Ok(Plan { pool: pool.display().to_string(), slices, devices })
}

/// What would be at `path`; `usual` is the size of what neither says its own nor is there.
fn item(path: &Path, spec: &SliceSpec, usual: Option<u64>, wanted: &mut Wanted) -> Result<Item> {
    let found = std::fs::metadata(path).ok();
    let is_file = found.as_ref().is_none_or(|meta| meta.is_file());
    let len = found.as_ref().map_or(0, |meta| meta.len());
    let asked = spec.bytes.or(if is_keeping(spec, len) { None } else { usual });
    let bytes = if is_file { asked.or(Some(len)) } else { None };
    let new_bytes = bytes.map_or(0, |bytes| bytes.saturating_sub(len));
    if new_bytes > 0 {
        let (device, free) = room(path)?;
        let of = wanted.entry(device).or_insert((0, free, path.to_path_buf()));
        of.0 += new_bytes;
    }
    let now = found.map_or("nothing", |meta| about::kind(crate::side::kind_of(&meta)));
    Ok(Item { path: path.display().to_string(), bytes, now, new_bytes })
}

/// A device in an object store, which nobody asks just now.
fn object_store(url: &str, spec: &SliceSpec) -> Result<Item> {
    let reason = match (spec.bytes, cfg!(feature = "object-store")) {
        (Some(_), true) => {
            let (path, now) = (url.to_owned(), "object store");
            return Ok(Item { path, bytes: spec.bytes, now, new_bytes: 0 });
        }
        (None, _) => "an object store has no size of its own; say how large the device is to be",
        (_, false) => "this build knows no object stores; make one with the feature object-store",
    };
    Err(Error::Path { shown: PathBuf::from(url), reason: reason.to_owned() })
}

/// Whether a file that is there keeps its size.
fn is_keeping(spec: &SliceSpec, len: u64) -> bool {
    spec.path.is_some() && spec.bytes.is_none() && len > 0
}

fn refuse_pool(pool: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(pool) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(error::io(pool))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let what = match name {
            _ if name.starts_with("slice") => "slice",
            _ if name.starts_with("capacity") => "device",
            _ => continue,
        };
        let reason = format!(
            "a pool is there ({what}), and format replaces none; choose another directory, or, if \
             nothing in it is wanted any more, stop what uses it (nearside stop) and remove its \
             directory"
        );
        return Err(Error::Path { shown: entry.path(), reason });
    }
    Ok(())
}

fn refuse_copies(pool: &Path, options: &FormatOptions) -> Result<()> {
    let reason = match options.data_copies {
        0 | 1 => return Ok(()),
        _ if options.slices.len() < 2 => {
            "two copies of the data lie on different slices: give the pool two or more"
        }
        _ if !options.capacity.is_empty() => {
            "data in a capacity tier has one copy: choose either the tier or two copies"
        }
        _ => return Ok(()),
    };
    Err(Error::Path { shown: pool.to_path_buf(), reason: reason.to_owned() })
}

/// A device that is a file is there already, or says how large it is to be.
fn refuse_device(path: &Path, spec: &SliceSpec, device: &Item) -> Result<()> {
    let reason = match device.bytes {
        Some(0) if spec.bytes.is_none() => "is not there yet; say how large to make it".to_owned(),
        Some(bytes) if bytes < DEVICE_BYTES_MIN => format!(
            "a device of the capacity tier has at least {DEVICE_BYTES_MIN} bytes, not {bytes}"
        ),
        _ => return Ok(()),
    };
    Err(Error::Path { shown: path.to_path_buf(), reason })
}

/// The file system that `path` would lie on, and its free bytes.
fn room(path: &Path) -> Result<(u64, u64)> {
    let path = std::path::absolute(path).map_err(error::io(path))?;
    let above = path.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
    let meta = std::fs::metadata(above).map_err(error::io(above))?;
    let space = rustix::fs::statvfs(above).map_err(|it| error::io(above)(it.into()))?;
    Ok((meta.dev(), space.f_bavail.saturating_mul(space.f_frsize)))
}

/// The plan for people.
pub fn text(plan: &Plan) -> String {
    let pool = output::shown(plan.pool.as_bytes());
    let slices = table("SLICE", &plan.slices);
    let devices = match plan.devices.as_slice() {
        [] => String::new(),
        devices => format!("\n{}", table("DEVICE", devices)),
    };
    format!("{pool}: nothing was made; this would be:\n{slices}{devices}")
}

fn table(what: &str, items: &[Item]) -> String {
    let mut rows = vec![[what, "SIZE", "NEW", "NOW", "PATH"].map(str::to_owned).to_vec()];
    for (index, item) in items.iter().enumerate() {
        rows.push(vec![
            index.to_string(),
            item.bytes.map_or_else(|| "its own".to_owned(), show),
            show(item.new_bytes),
            item.now.to_owned(),
            output::shown(item.path.as_bytes()),
        ]);
    }
    output::table(&rows)
}
