//! What the kernel says in sysfs, checked but not yet interpreted.
//!
//! Source: Documentation/ABI/stable/sysfs-devices-node and sysfs-devices-system-cpu. A missing
//! file is `None` (kernels without NUMA, containers); one that is there and cannot be understood
//! is an error.

use crate::{Error, NODE_LIMIT, Result, parse_cpulist};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The files read here are a few hundred bytes; a CPU list of the worst case fits as well.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Larger distances than firmware can write (ACPI's SLIT has a byte for each).
const DISTANCE_MAX: u32 = 65_535;

/// One node directory.
#[derive(Debug)]
pub(crate) struct NodeDir {
    /// The kernel's number for it.
    pub id: u32,
    /// CPUs that lie on it.
    pub cpus: Vec<u32>,
    /// To each online node, in order of ids.
    pub distances: Option<Vec<u32>>,
    /// All of its memory, bytes.
    pub memory_bytes: Option<u64>,
}

/// CPUs that are online.
pub(crate) fn online_cpus(root: &Path) -> Result<Option<Vec<u32>>> {
    list(&root.join("devices/system/cpu/online"))
}

/// Nodes that are online, in order of ids; none where the kernel shows no nodes.
pub(crate) fn nodes(root: &Path) -> Result<Vec<NodeDir>> {
    let base = root.join("devices/system/node");
    let Some(ids) = list(&base.join("online"))? else {
        return Ok(Vec::new());
    };
    if ids.iter().any(|&id| id >= NODE_LIMIT) {
        let what = format!("a node number goes beyond {}", NODE_LIMIT - 1);
        return Err(Error::Malformed { path: base.join("online"), what });
    }
    ids.into_iter().map(|id| node(&base.join(format!("node{id}")), id)).collect()
}

fn node(dir: &Path, id: u32) -> Result<NodeDir> {
    Ok(NodeDir {
        id,
        cpus: list(&dir.join("cpulist"))?.unwrap_or_default(),
        distances: distances(&dir.join("distance"))?,
        memory_bytes: memory_bytes(&dir.join("meminfo"))?,
    })
}

fn list(path: &Path) -> Result<Option<Vec<u32>>> {
    let Some(text) = text(path)? else { return Ok(None) };
    match parse_cpulist(&text) {
        Ok(list) => Ok(Some(list)),
        Err(error) => Err(malformed(path, error)),
    }
}

fn distances(path: &Path) -> Result<Option<Vec<u32>>> {
    let Some(text) = text(path)? else { return Ok(None) };
    let one = |word: &str| match word.parse() {
        Ok(distance) if (1..=DISTANCE_MAX).contains(&distance) => Ok(distance),
        _ => Err(malformed(path, format!("{word:.40?} is not a distance"))),
    };
    text.split_ascii_whitespace().map(one).collect::<Result<_>>().map(Some)
}

/// From the line `Node 0 MemTotal:  4548824 kB`; a file without the line says nothing.
fn memory_bytes(path: &Path) -> Result<Option<u64>> {
    let Some(text) = text(path)? else { return Ok(None) };
    let Some((_, after)) = text.split_once("MemTotal:") else { return Ok(None) };
    let line = after.lines().next().unwrap_or_default().trim();
    let kib: Option<u64> = line.strip_suffix("kB").and_then(|n| n.trim().parse().ok());
    match kib.and_then(|n| n.checked_mul(1024)) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(malformed(path, format!("{line:.40?} is not a size in kB"))),
    }
}

pub(crate) fn text(path: &Path) -> Result<Option<String>> {
    let failed = |source| Error::Read { path: PathBuf::from(path), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(malformed(path, format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(malformed(path, "not text")),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

pub(crate) fn malformed(path: &Path, what: impl ToString) -> Error {
    Error::Malformed { path: PathBuf::from(path), what: what.to_string() }
}
