//! Persistent memory devices that the kernel shows: `/dev/pmem0` and the like, and `/dev/dax0.0`;
//! and on which nodes disks and network interfaces are.
//!
//! Source: Documentation/ABI/testing/sysfs-bus-nvdimm, sysfs-bus-dax, sysfs-bus-pci (`numa_node`)
//! and sysfs-class-net, Documentation/ABI/stable/sysfs-block. What is not there is left out; what
//! cannot be understood is an error.

use crate::sysfs::{malformed, text};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of the unit in which the kernel gives sizes of block devices.
const SECTOR_BYTES: u64 = 512;

/// A device of persistent memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmDevice {
    /// Its file.
    pub path: PathBuf,
    /// Bytes, if the kernel says.
    pub bytes: Option<u64>,
    /// The kernel's number of the node that it lies on, or of the nearest that is online, if it
    /// says.
    pub node: Option<u32>,
}

/// The devices that the sysfs at `root` shows, in the order of their names.
pub fn pm_devices(root: &Path) -> Result<Vec<PmDevice>> {
    let mut devices = Vec::new();
    for name in names(&root.join("block"), "pmem")? {
        let dir = root.join("block").join(&name);
        let bytes = number(&dir.join("size"))?.map(|sectors| sectors.saturating_mul(SECTOR_BYTES));
        devices.push(PmDevice {
            path: Path::new("/dev").join(&name),
            bytes,
            node: node(&dir.join("device/numa_node"))?,
        });
    }
    for name in names(&root.join("bus/dax/devices"), "dax")? {
        let dir = root.join("bus/dax/devices").join(&name);
        // memory of its own node, as behind CXL, may be all there is of that node: it is not online
        let is_online = |id: &u32| root.join(format!("devices/system/node/node{id}")).exists();
        let target = node(&dir.join("target_node"))?.filter(is_online);
        devices.push(PmDevice {
            path: Path::new("/dev").join(&name),
            bytes: number(&dir.join("size"))?,
            node: target.or(node(&dir.join("numa_node"))?),
        });
    }
    Ok(devices)
}

/// The NUMA node of the disk with these numbers (`st_rdev`, or `st_dev` of a file on it), if the
/// kernel knows one. `root` is where sysfs is mounted. A partition's is that of its disk; that of a
/// disk that is made of others (dm, md) is theirs, if it is one.
pub fn block_node(root: &Path, major: u32, minor: u32) -> Result<Option<u32>> {
    match root.join(format!("dev/block/{major}:{minor}")).canonicalize() {
        Ok(disk) => device_node(root, &disk, LAYERS_MAX, below_disk),
        // a file system without a disk
        Err(_) => Ok(None),
    }
}

/// The NUMA node of the network interface of this name, if the kernel knows one: that of its card.
/// `root` is where sysfs is mounted. That of an interface that is made of others (bonds, bridges,
/// VLANs) is theirs, if it is one.
pub fn interface_node(root: &Path, name: &str) -> Result<Option<u32>> {
    match root.join("class/net").join(name).canonicalize() {
        Ok(interface) => device_node(root, &interface, LAYERS_MAX, below_interface),
        // it has gone
        Err(_) => Ok(None),
    }
}

/// Disks made of disks made of disks: more layers than anybody has.
const LAYERS_MAX: u32 = 8;

/// What a disk is made of, its directory in sysfs; of a partition nothing.
fn below_disk(disk: &Path) -> Result<Vec<PathBuf>> {
    let slaves = disk.join("slaves");
    Ok(names(&slaves, "")?.iter().map(|name| slaves.join(name)).collect())
}

/// What an interface is made of.
fn below_interface(interface: &Path) -> Result<Vec<PathBuf>> {
    Ok(names(interface, "lower_")?.iter().map(|name| interface.join(name)).collect())
}

fn device_node(
    root: &Path,
    device: &Path,
    layers: u32,
    made_of: fn(&Path) -> Result<Vec<PathBuf>>,
) -> Result<Option<u32>> {
    let mut below = Vec::new();
    // a device lies below what it hangs on: whichever is the first to know
    for dir in device.ancestors().take_while(|dir| dir.starts_with(root) && *dir != root) {
        if let Some(node) = node(&dir.join("numa_node"))? {
            return Ok(Some(node));
        }
        if layers > 0 && below.is_empty() {
            below = made_of(dir)?;
        }
    }
    let mut nodes = BTreeSet::new();
    for device in below.iter().filter_map(|device| device.canonicalize().ok()) {
        nodes.insert(device_node(root, &device, layers - 1, made_of)?);
    }
    Ok(if nodes.len() == 1 { nodes.pop_first().flatten() } else { None })
}

/// Names in a directory that begin so; none where there is no such directory.
fn names(dir: &Path, prefix: &str) -> Result<Vec<String>> {
    let failed = |source| Error::Read { path: dir.to_path_buf(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        names.extend(name.to_str().filter(|name| name.starts_with(prefix)).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn number(path: &Path) -> Result<Option<u64>> {
    let Some(text) = text(path)? else { return Ok(None) };
    let word = text.trim();
    match word.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(malformed(path, format!("{word:.40?} is not a number"))),
    }
}

/// A node; -1 says that there is none.
fn node(path: &Path) -> Result<Option<u32>> {
    let Some(text) = text(path)? else { return Ok(None) };
    match text.trim() {
        "-1" => Ok(None),
        word => match word.parse() {
            Ok(node) => Ok(Some(node)),
            Err(_) => Err(malformed(path, format!("{word:.40?} is not a node"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_partition_has_the_node_of_its_disk() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        put(&root, "devices/pci0000/nvme/nvme0/numa_node", "1\n");
        put(&root, "devices/pci0000/nvme/nvme0/nvme0n1/nvme0n1p2/size", "8\n");
        put(&root, "devices/virtual/block/loop0/size", "8\n");
        std::fs::create_dir_all(root.join("dev/block")).unwrap();
        let link = |numbers: &str, to: &str| {
            let to = root.join("devices").join(to);
            std::os::unix::fs::symlink(to, root.join("dev/block").join(numbers)).unwrap();
        };
        link("259:2", "pci0000/nvme/nvme0/nvme0n1/nvme0n1p2");
        link("7:0", "virtual/block/loop0");
        assert_eq!(block_node(&root, 259, 2).unwrap(), Some(1));
        assert_eq!(block_node(&root, 7, 0).unwrap(), None);
        assert_eq!(block_node(&root, 0, 44).unwrap(), None, "no disk at all");
        put(&root, "devices/pci0001/nvme/nvme1/numa_node", "0\n");
        put(&root, "devices/pci0001/nvme/nvme1/nvme1n1/size", "8\n");
        let made_of = |disk: &str, below: &[&str]| {
            let slaves = root.join("devices/virtual/block").join(disk).join("slaves");
            std::fs::create_dir_all(&slaves).unwrap();
            for (number, below) in below.iter().enumerate() {
                let below = root.join("devices").join(below);
                std::os::unix::fs::symlink(below, slaves.join(number.to_string())).unwrap();
            }
        };
        let first = "pci0000/nvme/nvme0/nvme0n1/nvme0n1p2";
        made_of("dm-0", &[first]);
        made_of("md0", &["virtual/block/dm-0", first]);
        made_of("md1", &[first, "pci0001/nvme/nvme1/nvme1n1"]);
        made_of("dm-1", &["virtual/block/dm-1"]);
        put(&root, "devices/virtual/block/md0/md0p1/size", "8\n");
        for (numbers, to, node) in [
            ("253:0", "dm-0", Some(1)),
            ("9:0", "md0", Some(1)),
            ("259:9", "md0/md0p1", Some(1)),
            ("9:1", "md1", None),
            ("253:1", "dm-1", None),
        ] {
            link(numbers, &format!("virtual/block/{to}"));
            let (major, minor) = numbers.split_once(':').unwrap();
            let (major, minor) = (major.parse().unwrap(), minor.parse().unwrap());
            assert_eq!(block_node(&root, major, minor).unwrap(), node, "{to}");
        }
    }

    #[test]
    fn an_interface_has_the_node_of_its_card() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        put(&root, "devices/pci0000:80/0000:80:01.0/numa_node", "1\n");
        put(&root, "devices/pci0000:80/0000:80:01.0/virtio3/net/eth0/mtu", "1500\n");
        put(&root, "devices/pci0000:00/0000:00:03.0/numa_node", "-1\n");
        put(&root, "devices/pci0000:00/0000:00:03.0/net/eth1/mtu", "1500\n");
        let names = ["lo", "bond0", "br0", "br1"];
        for name in names {
            put(&root, &format!("devices/virtual/net/{name}/mtu"), "1500\n");
        }
        let lower = |of: &str, name: &str, to: &str| {
            let link = root.join(format!("devices/virtual/net/{of}/lower_{name}"));
            std::os::unix::fs::symlink(root.join("devices").join(to), link).unwrap();
        };
        let eth0 = "pci0000:80/0000:80:01.0/virtio3/net/eth0";
        let eth1 = "pci0000:00/0000:00:03.0/net/eth1";
        lower("bond0", "eth0", eth0);
        lower("br0", "bond0", "virtual/net/bond0");
        lower("br1", "eth0", eth0);
        lower("br1", "eth1", eth1);
        std::fs::create_dir_all(root.join("class/net")).unwrap();
        let own = names.map(|name| (name, format!("virtual/net/{name}")));
        let cards = [("eth0", eth0.to_owned()), ("eth1", eth1.to_owned())];
        for (name, to) in own.into_iter().chain(cards) {
            let link = root.join("class/net").join(name);
            std::os::unix::fs::symlink(root.join("devices").join(to), link).unwrap();
        }
        let node = |name| interface_node(&root, name).unwrap();
        let seen = ["eth0", "eth1", "lo", "bond0", "br0", "br1", "eth7"].map(node);
        assert_eq!(seen, [Some(1), None, None, Some(1), Some(1), None, None]);
        put(&root, "devices/pci0000:00/0000:00:03.0/numa_node", "near\n");
        assert!(interface_node(&root, "eth1").unwrap_err().to_string().contains("near"));
    }

    #[test]
    fn devices_are_found_with_size_and_node() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(pm_devices(root.path()).unwrap(), []);
        put(root.path(), "block/sda/size", "99\n");
        put(root.path(), "block/pmem1/size", "2048\n");
        put(root.path(), "block/pmem1/device/numa_node", "1\n");
        put(root.path(), "block/pmem0/size", "8\n");
        put(root.path(), "block/pmem0/device/numa_node", "-1\n");
        put(root.path(), "bus/dax/devices/dax0.0/size", "4096\n");
        put(root.path(), "bus/dax/devices/dax0.0/target_node", "2\n");
        put(root.path(), "bus/dax/devices/dax0.0/numa_node", "0\n");
        put(root.path(), "devices/system/node/node2/cpulist", "\n");
        put(root.path(), "bus/dax/devices/dax1.0/size", "4096\n");
        put(root.path(), "bus/dax/devices/dax1.0/target_node", "3\n");
        put(root.path(), "bus/dax/devices/dax1.0/numa_node", "1\n");
        let device = |path: &str, bytes, node| PmDevice { path: path.into(), bytes, node };
        let expected = [
            device("/dev/pmem0", Some(4096), None),
            device("/dev/pmem1", Some(1 << 20), Some(1)),
            device("/dev/dax0.0", Some(4096), Some(2)),
            device("/dev/dax1.0", Some(4096), Some(1)),
        ];
        assert_eq!(pm_devices(root.path()).unwrap(), expected);
        for (path, word) in [("block/pmem0/size", "much"), ("block/pmem0/device/numa_node", "-2")] {
            put(root.path(), path, word);
            let error = pm_devices(root.path()).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("pmem0"), "{error}");
            put(root.path(), path, "1");
        }
    }
}
