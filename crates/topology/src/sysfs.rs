//! What the kernel says in sysfs, checked but not yet interpreted.
//!
//! Source: Documentation/ABI/stable/sysfs-devices-node and sysfs-devices-system-cpu, and
//! Documentation/admin-guide/mm/numaperf.rst. A missing file is `None` (kernels without NUMA,
//! containers). One that is there and cannot be read or understood is `None`, too, and a remark
//! names it: nothing that a machine says of itself keeps anybody from using a pool.

use crate::{CPU_LIMIT, NODE_LIMIT, parse_cpulist};
use std::fmt::Display;
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
    /// The nodes that reach its memory fastest, by firmware (HMAT); none where it does not say.
    pub initiators: Vec<u32>,
}

/// Reads a sysfs, and notes what makes no sense in it.
#[derive(Debug)]
pub(crate) struct Reader {
    root: PathBuf,
    pub remarks: Vec<String>,
}

impl Reader {
    /// Of the sysfs at `root`.
    pub fn new(root: &Path) -> Reader {
        Reader { root: root.to_owned(), remarks: Vec::new() }
    }

    /// CPUs that are online.
    pub fn online_cpus(&mut self) -> Option<Vec<u32>> {
        self.list(&self.root.join("devices/system/cpu/online"))
    }

    /// Nodes that are online, in order of ids; none where the kernel shows no nodes.
    pub fn nodes(&mut self) -> Vec<NodeDir> {
        let base = self.root.join("devices/system/node");
        let path = base.join("online");
        let mut ids = self.list(&path).unwrap_or_default();
        let known = ids.partition_point(|&id| id < NODE_LIMIT);
        if known < ids.len() {
            self.remark(&path, format!("node {} is beyond {}", ids[known], NODE_LIMIT - 1));
            ids.truncate(known);
        }
        let dirs = ids.into_iter().map(|id| (id, base.join(format!("node{id}"))));
        dirs.filter(|(_, dir)| dir.is_dir()).map(|(id, dir)| self.node(&dir, id)).collect()
    }

    fn node(&mut self, dir: &Path, id: u32) -> NodeDir {
        // without its list a node has a link to each of its CPUs
        let cpus = self.list(&dir.join("cpulist")).unwrap_or_else(|| numbered(dir, "cpu"));
        NodeDir {
            id,
            cpus,
            distances: self.distances(&dir.join("distance")),
            memory_bytes: self.memory_bytes(&dir.join("meminfo")),
            initiators: initiators(dir),
        }
    }

    fn list(&mut self, path: &Path) -> Option<Vec<u32>> {
        let text = self.text(path)?;
        parse_cpulist(&text).map_err(|error| self.remark(path, error)).ok()
    }

    fn distances(&mut self, path: &Path) -> Option<Vec<u32>> {
        let text = self.text(path)?;
        let one = |word: &str| match word.parse() {
            Ok(distance) if (1..=DISTANCE_MAX).contains(&distance) => Ok(distance),
            _ => Err(format!("{word:.40?} is not a distance")),
        };
        let row: Result<_, _> = text.split_ascii_whitespace().map(one).collect();
        row.map_err(|what| self.remark(path, what)).ok()
    }

    /// From the line `Node 0 MemTotal:  4548824 kB`; a file without the line says nothing.
    fn memory_bytes(&mut self, path: &Path) -> Option<u64> {
        let text = self.text(path)?;
        let (_, after) = text.split_once("MemTotal:")?;
        let line = after.lines().next().unwrap_or_default().trim();
        let kib: Option<u64> = line.strip_suffix("kB").and_then(|n| n.trim().parse().ok());
        let bytes = kib.and_then(|n| n.checked_mul(1024));
        if bytes.is_none() {
            self.remark(path, format!("{line:.40?} is not a size in kB"));
        }
        bytes
    }

    /// A number; none where there is no such file.
    pub fn number(&mut self, path: &Path) -> Option<u64> {
        let text = self.text(path)?;
        let number = text.parse().ok();
        if number.is_none() {
            self.remark(path, format!("{text:.40?} is not a number"));
        }
        number
    }

    /// The node that a device lies on, by its directory: that of its memory, where it is memory of
    /// a node of its own that is online, else the nearest.
    pub fn node_of_device(&mut self, dir: &Path) -> Option<u32> {
        let target = self.node_number(&dir.join("target_node"));
        let is_online = |id: &u32| self.root.join(format!("devices/system/node/node{id}")).exists();
        target.filter(is_online).or_else(|| self.node_number(&dir.join("numa_node")))
    }

    /// A node; -1 says that there is none.
    fn node_number(&mut self, path: &Path) -> Option<u32> {
        let text = self.text(path)?;
        let node = text.parse().ok();
        if node.is_none() && text != "-1" {
            self.remark(path, format!("{text:.40?} is not a node"));
        }
        node
    }

    /// What a file says, without blanks and zero bytes around it.
    pub fn text(&mut self, path: &Path) -> Option<String> {
        // Linux 5.15-rc ends lists of CPUs with a zero byte
        let is_around = |c: char| c.is_whitespace() || c == '\0';
        match text(path) {
            Ok(text) => text.map(|text| text.trim_matches(is_around).to_owned()),
            Err(what) => {
                self.remark(path, what);
                None
            }
        }
    }

    /// Notes what is wrong with a file.
    pub fn remark(&mut self, path: &Path, what: impl Display) {
        self.remarks.push(format!("{}: {what}", path.display()));
    }
}

fn text(path: &Path) -> Result<Option<String>, String> {
    let file = match File::open(path) {
        Err(error) if is_absent(&error) => return Ok(None),
        file => file.map_err(|error| error.to_string())?,
    };
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("longer than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| "not text".to_owned())
}

/// Where the kernel says who reaches a node's memory fastest: of CPUs, and of all that may. Linux
/// since 5.10, and since 5.2.
const ACCESS: [&str; 2] = ["access1/initiators", "access0/initiators"];

fn initiators(dir: &Path) -> Vec<u32> {
    let found = ACCESS.iter().map(|access| numbered(&dir.join(access), "node"));
    found.into_iter().find(|ids| !ids.is_empty()).unwrap_or_default()
}

/// Names in a directory that begin so, sorted; none where there is no such directory.
pub(crate) fn names(dir: &Path, prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let entries = entries.flatten().map(|entry| entry.file_name());
    let begins = |name: std::ffi::OsString| {
        name.to_str().filter(|name| name.starts_with(prefix)).map(str::to_owned)
    };
    let mut names: Vec<String> = entries.filter_map(begins).collect();
    names.sort();
    names
}

/// Numbers of the entries of a directory that are called `prefix` and a number, sorted.
fn numbered(dir: &Path, prefix: &str) -> Vec<u32> {
    let names = names(dir, prefix);
    let numbers = names.iter().filter_map(|name| name[prefix.len()..].parse().ok());
    let mut numbers: Vec<u32> = numbers.filter(|it| *it < CPU_LIMIT).collect();
    numbers.sort_unstable();
    numbers
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
