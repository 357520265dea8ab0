//! Memory devices that the kernel shows: `/dev/pmem0` and the like, and `/dev/dax0.0`; and on which
//! nodes disks and network interfaces are.
//!
//! Source: Documentation/ABI/testing/sysfs-bus-nvdimm, sysfs-bus-dax, sysfs-bus-pci (`numa_node`)
//! and sysfs-class-net, Documentation/ABI/stable/sysfs-block. What is not there, or cannot be
//! understood, is not known.

use crate::sysfs::{Reader, names};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Bytes of the unit in which the kernel gives sizes of block devices.
const SECTOR_BYTES: u64 = 512;

/// How the kernel gives a memory device out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceMode {
    /// A block device, whose files can be mapped.
    FsDax,
    /// A character device that is mapped itself.
    DevDax,
    /// Memory of a node, as any other.
    SystemRam,
}

/// A memory device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmDevice {
    /// Its file.
    pub path: PathBuf,
    /// Bytes, if the kernel says.
    pub bytes: Option<u64>,
    /// The kernel's number of the node that it lies on, or of the nearest that is online, if it
    /// says.
    pub node: Option<u32>,
    /// None: no driver has it.
    pub mode: Option<DeviceMode>,
    /// Whether it is of an NVDIMM bus: other memory (HBM, CXL without a battery) loses what is in
    /// it.
    pub is_persistent: bool,
}

/// The devices that the sysfs at `root` shows, in the order of their names; and what makes no sense
/// there, a line each.
pub fn pm_devices(root: &Path) -> (Vec<PmDevice>, Vec<String>) {
    let mut reader = Reader::new(root);
    let mut devices = Vec::new();
    for name in names(&root.join("block"), "pmem") {
        let dir = root.join("block").join(&name);
        devices.push(PmDevice {
            path: Path::new("/dev").join(&name),
            bytes: reader.number(&dir.join("size")).map(|it| it.saturating_mul(SECTOR_BYTES)),
            node: reader.node_of_device(&dir.join("device")),
            mode: Some(DeviceMode::FsDax),
            is_persistent: true,
        });
    }
    for name in names(&root.join("bus/dax/devices"), "dax") {
        let dir = root.join("bus/dax/devices").join(&name);
        devices.push(PmDevice {
            path: Path::new("/dev").join(&name),
            bytes: reader.number(&dir.join("size")),
            node: reader.node_of_device(&dir),
            mode: mode(&dir),
            is_persistent: is_of_nvdimm_bus(&dir),
        });
    }
    (devices, reader.remarks)
}

/// As the driver that has a DAX device gives it out.
fn mode(dir: &Path) -> Option<DeviceMode> {
    let driver = dir.join("driver").canonicalize().ok()?;
    match driver.file_name()?.to_str()? {
        "device_dax" => Some(DeviceMode::DevDax),
        "kmem" => Some(DeviceMode::SystemRam),
        _ => None,
    }
}

fn is_of_nvdimm_bus(dir: &Path) -> bool {
    let Ok(dir) = dir.canonicalize() else { return false };
    dir.components().any(|part| part.as_os_str().to_string_lossy().starts_with("ndbus"))
}

/// The NUMA node of the disk with these numbers (`st_rdev`, or `st_dev` of a file on it), if the
/// kernel knows one. `root` is where sysfs is mounted. A partition's is that of its disk; that of a
/// disk that is made of others (dm, md) is theirs, if it is one.
pub fn block_node(root: &Path, major: u32, minor: u32) -> Option<u32> {
    // none for a file system without a disk
    let disk = root.join(format!("dev/block/{major}:{minor}")).canonicalize().ok()?;
    device_node(&mut Reader::new(root), (root, &disk), LAYERS_MAX, below_disk)
}

/// The NUMA node of the network interface of this name, if the kernel knows one: that of its card.
/// `root` is where sysfs is mounted. That of an interface that is made of others (bonds, bridges,
/// VLANs) is theirs, if it is one.
pub fn interface_node(root: &Path, name: &str) -> Option<u32> {
    let interface = root.join("class/net").join(name).canonicalize().ok()?;
    device_node(&mut Reader::new(root), (root, &interface), LAYERS_MAX, below_interface)
}

/// The NUMA node of the device with this directory, or of what it hangs on, if the kernel knows
/// one. `root` is where sysfs is mounted; links in both are followed already.
pub fn node_of_device(root: &Path, device: &Path) -> Option<u32> {
    device_node(&mut Reader::new(root), (root, device), 0, |_| Vec::new())
}

/// Disks made of disks made of disks: more layers than anybody has.
const LAYERS_MAX: u32 = 8;

/// What a disk is made of, its directory in sysfs; of a partition nothing.
fn below_disk(disk: &Path) -> Vec<PathBuf> {
    let slaves = disk.join("slaves");
    names(&slaves, "").iter().map(|name| slaves.join(name)).collect()
}

/// What an interface is made of.
fn below_interface(interface: &Path) -> Vec<PathBuf> {
    names(interface, "lower_").iter().map(|name| interface.join(name)).collect()
}

fn device_node(
    reader: &mut Reader,
    (root, device): (&Path, &Path),
    layers: u32,
    made_of: fn(&Path) -> Vec<PathBuf>,
) -> Option<u32> {
    let mut below = Vec::new();
    // a device lies below what it hangs on: whichever is the first to know
    for dir in device.ancestors().take_while(|dir| dir.starts_with(root) && *dir != root) {
        if let Some(node) = reader.node_of_device(dir) {
            return Some(node);
        }
        if layers > 0 && below.is_empty() {
            below = made_of(dir);
        }
    }
    let mut nodes = BTreeSet::new();
    for device in below.iter().filter_map(|device| device.canonicalize().ok()) {
        nodes.insert(device_node(reader, (root, &device), layers - 1, made_of));
    }
    if nodes.len() == 1 { nodes.pop_first().flatten() } else { None }
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
        assert_eq!(block_node(&root, 259, 2), Some(1));
        assert_eq!(block_node(&root, 7, 0), None);
        assert_eq!(block_node(&root, 0, 44), None, "no disk at all");
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
            assert_eq!(block_node(&root, major, minor), node, "{to}");
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
        let node = |name| interface_node(&root, name);
        let seen = ["eth0", "eth1", "lo", "bond0", "br0", "br1", "eth7"].map(node);
        assert_eq!(seen, [Some(1), None, None, Some(1), Some(1), None, None]);
        put(&root, "devices/pci0000:00/0000:00:03.0/numa_node", "near\n");
        assert_eq!(node("eth1"), None, "what makes no sense is not known");
    }

    #[test]
    fn devices_are_found_with_size_node_and_mode() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        assert_eq!(pm_devices(&root), (Vec::new(), Vec::new()));
        put(&root, "block/sda/size", "99\n");
        put(&root, "block/pmem1/size", "2048\n");
        put(&root, "block/pmem1/device/numa_node", "1\n");
        put(&root, "block/pmem0/size", "8\n");
        put(&root, "block/pmem0/device/numa_node", "-1\n");
        put(&root, "devices/system/node/node2/cpulist", "\n");
        std::fs::create_dir_all(root.join("bus/dax/devices")).unwrap();
        let dax = |name: &str, on: &str, driver: &str, nodes: [&str; 2]| {
            let dir = format!("devices/{on}/{name}");
            put(&root, &format!("{dir}/size"), "4096\n");
            put(&root, &format!("{dir}/target_node"), nodes[0]);
            put(&root, &format!("{dir}/numa_node"), nodes[1]);
            let link = |to: String, at: String| {
                std::os::unix::fs::symlink(root.join(to), root.join(at)).unwrap();
            };
            if !driver.is_empty() {
                let driver = format!("bus/dax/drivers/{driver}");
                std::fs::create_dir_all(root.join(&driver)).unwrap();
                link(driver, format!("{dir}/driver"));
            }
            link(dir, format!("bus/dax/devices/{name}"));
        };
        dax("dax0.0", "LNXSYSTM:00/ACPI0012:00/ndbus0/region0", "device_dax", ["2\n", "0\n"]);
        // its memory is of a node that is not online
        dax("dax1.0", "LNXSYSTM:00/ACPI0012:00/ndbus0/region1", "kmem", ["3\n", "1\n"]);
        dax("dax2.0", "platform/hmem.0/dax_region2", "", ["-1\n", "0\n"]);
        let device = |path: &str, bytes, node, mode, is_persistent| {
            let path = path.into();
            PmDevice { path, bytes, node, mode, is_persistent }
        };
        let (block, char) = (Some(DeviceMode::FsDax), Some(DeviceMode::DevDax));
        let expected = [
            device("/dev/pmem0", Some(4096), None, block, true),
            device("/dev/pmem1", Some(1 << 20), Some(1), block, true),
            device("/dev/dax0.0", Some(4096), Some(2), char, true),
            device("/dev/dax1.0", Some(4096), Some(1), Some(DeviceMode::SystemRam), true),
            device("/dev/dax2.0", Some(4096), Some(0), None, false),
        ];
        assert_eq!(pm_devices(&root), (expected.to_vec(), Vec::new()));
        // the same memory as a block device lies where it does as a character device
        put(&root, "block/pmem1/device/target_node", "2\n");
        assert_eq!(pm_devices(&root).0[1].node, Some(2));
        for (path, word) in [("block/pmem0/size", "much"), ("block/pmem0/device/numa_node", "-2")] {
            put(&root, path, word);
            let (devices, remarks) = pm_devices(&root);
            assert_eq!(devices.len(), 5);
            let [remark] = &remarks[..] else { panic!("{remarks:?}") };
            assert!(remark.contains(word) && remark.contains("pmem0"), "{remark}");
            put(&root, path, "1");
        }
    }
}
