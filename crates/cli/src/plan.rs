//! `nearside format --dry-run`: what would be made, and whether there is room for it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nearside::FormatOptions;
use serde::Serialize;

use crate::error::{self, Error, Result};
use crate::size::show;
use crate::{about, output};

/// What `format` would make.
#[derive(Debug, Serialize)]
pub struct Plan {
    pool: String,
    slices: Vec<Slice>,
}

#[derive(Debug, Serialize)]
struct Slice {
    path: String,
    /// A device knows its size itself.
    bytes: Option<u64>,
    /// What is there: `nothing`, `file` or another word of `stat`.
    now: &'static str,
    /// Bytes of the medium that would be taken for it.
    new_bytes: u64,
}

/// What `format` would make in `pool`; fails where it would fail for what is there, or is not.
pub fn plan(pool: &Path, options: &FormatOptions) -> Result<Plan> {
    refuse_pool(pool)?;
    if options.data_copies > 1 && options.slices.len() < 2 {
        let reason = "two copies of the data lie on different slices: give the pool two or more";
        return Err(Error::Path { shown: pool.to_path_buf(), reason: reason.to_owned() });
    }
    let mut slices = Vec::new();
    // By device: what is wanted of it, what is free there, and a path on it.
    let mut wanted: BTreeMap<u64, (u64, u64, PathBuf)> = BTreeMap::new();
    for (index, spec) in options.slices.iter().enumerate() {
        let path = spec.path.clone().unwrap_or_else(|| pool.join(format!("slice.{index}")));
        let found = std::fs::metadata(&path).ok();
        let is_file = found.as_ref().is_none_or(|meta| meta.is_file());
        let len = found.as_ref().map_or(0, |meta| meta.len());
        let asked = spec.bytes.or((!is_keeping(spec, len)).then_some(options.slice_bytes));
        let bytes = if is_file { asked.or(Some(len)) } else { None };
        let new_bytes = bytes.map_or(0, |bytes| bytes.saturating_sub(len));
        if new_bytes > 0 {
            let (device, free) = room(&path)?;
            let of = wanted.entry(device).or_insert((0, free, path.clone()));
            of.0 += new_bytes;
        }
        let now = found.map_or("nothing", |meta| about::kind(crate::side::kind_of(&meta)));
        slices.push(Slice { path: path.display().to_string(), bytes, now, new_bytes });
    }
    for (wanted, free, path) in wanted.into_values() {
        if wanted > free {
            let reason = format!("{} are wanted here, {} are free", show(wanted), show(free));
            return Err(Error::Path { shown: path, reason });
        }
    }
    Ok(Plan { pool: pool.display().to_string(), slices })
}

/// Whether a file that is there keeps its size.
fn is_keeping(spec: &nearside::SliceSpec, len: u64) -> bool {
    spec.path.is_some() && spec.bytes.is_none() && len > 0
}

fn refuse_pool(pool: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(pool) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(error::io(pool))?;
        if entry.file_name().to_string_lossy().starts_with("slice.") {
            let reason = "a pool has this slice already; choose another directory".to_owned();
            return Err(Error::Path { shown: entry.path(), reason });
        }
    }
    Ok(())
}

/// The device that `path` would lie on, and its free bytes.
fn room(path: &Path) -> Result<(u64, u64)> {
    let path = std::path::absolute(path).map_err(error::io(path))?;
    let above = path.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
    let meta = std::fs::metadata(above).map_err(error::io(above))?;
    let space = rustix::fs::statvfs(above).map_err(|it| error::io(above)(it.into()))?;
    Ok((meta.dev(), space.f_bavail.saturating_mul(space.f_frsize)))
}

/// The plan for people.
pub fn text(plan: &Plan) -> String {
    let mut rows = vec![["SLICE", "SIZE", "NEW", "NOW", "PATH"].map(str::to_owned).to_vec()];
    for (index, slice) in plan.slices.iter().enumerate() {
        rows.push(vec![
            index.to_string(),
            slice.bytes.map_or_else(|| "its own".to_owned(), show),
            show(slice.new_bytes),
            slice.now.to_owned(),
            output::shown(slice.path.as_bytes()),
        ]);
    }
    let pool = output::shown(plan.pool.as_bytes());
    format!("{pool}: nothing was made; this would be:\n{}", output::table(&rows))
}
