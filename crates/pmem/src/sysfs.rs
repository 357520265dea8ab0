//! What the kernel says of persistent memory in sysfs: regions, DIMMs, nodes.
//!
//! Linux: Documentation/ABI/testing/sysfs-bus-nvdimm, -bus-nfit, -bus-papr-pmem, -bus-dax.

use crate::domain::Domain;
use std::path::{Path, PathBuf};

/// Where sysfs is looked up: `root`/sys. Tests give a tree of their own.
#[derive(Clone, Debug)]
pub struct Sysfs {
    /// The directory that holds `sys`.
    pub root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Sysfs {
        Sysfs { root: PathBuf::from("/") }
    }
}

/// Block or character device, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    Block(libc::dev_t),
    Character(libc::dev_t),
}

impl Sysfs {
    /// The directory of a device, links resolved.
    pub(crate) fn device(&self, device: Device) -> Option<PathBuf> {
        let (kind, number) = match device {
            Device::Block(number) => ("block", number),
            Device::Character(number) => ("char", number),
        };
        let (major, minor) = (libc::major(number), libc::minor(number));
        self.root.join(format!("sys/dev/{kind}/{major}:{minor}")).canonicalize().ok()
    }

    /// A device-dax device's bytes and alignment; none where it is another kind of device.
    pub(crate) fn devdax(&self, number: libc::dev_t) -> Option<DevDax> {
        let directory = self.device(Device::Character(number))?;
        let subsystem = directory.join("subsystem").canonicalize().ok()?;
        if subsystem.file_name()? != "dax" {
            return None;
        }
        let size_bytes = number_in(&directory.join("size"))?;
        // Kernels before 5.10 do not say; they align to what the size is a multiple of.
        let align_bytes = number_in(&directory.join("align")).unwrap_or(4096);
        Some(DevDax { size_bytes, align_bytes })
    }

    /// Which disk it is, of all that came to this place: `diskseq` of a block device, or of the
    /// disk whose partition it is; 0 where it has none. `None`: block devices are not to be seen.
    pub(crate) fn disk_sequence(&self, number: libc::dev_t) -> Option<u64> {
        let Some(directory) = self.device(Device::Block(number)) else {
            return self.root.join("sys/dev/block").is_dir().then_some(0);
        };
        let disk = directory.parent().map(Path::to_owned);
        let mut places = std::iter::once(directory).chain(disk);
        Some(places.find_map(|place| number_in(&place.join("diskseq"))).unwrap_or(0))
    }

    /// The memory below a device.
    pub(crate) fn backing(&self, device: Device) -> Backing {
        let mut backing = Backing::default();
        // Resolved like the device's directory, of which it is to be a prefix.
        if let (Some(directory), Ok(root)) = (self.device(device), self.root.canonicalize()) {
            Sysfs { root }.gather(&directory, &mut backing, MAPPER_DEPTH_MAX);
        }
        backing
    }

    /// Adds what lies below `directory`; through device-mapper's `slaves` where need be.
    fn gather(&self, directory: &Path, backing: &mut Backing, depth_left: u32) {
        let above = || directory.ancestors().take_while(|parent| parent.starts_with(&self.root));
        if backing.node.is_none() {
            backing.node = topology::node_of_device(&self.root.join("sys"), directory);
        }
        if let Some(region) = above().find(|parent| is_region(parent)) {
            let region = Region { directory: region.to_owned(), bus: self.nd_devices() };
            if !backing.regions.contains(&region) {
                backing.regions.push(region);
            }
            return;
        }
        let Ok(slaves) = directory.join("slaves").read_dir() else { return };
        for slave in slaves.flatten() {
            match (slave.path().canonicalize(), depth_left) {
                (Ok(path), 1..) => self.gather(&path, backing, depth_left - 1),
                // What cannot be followed is taken for volatile.
                _ => backing.lost = true,
            }
        }
    }

    fn nd_devices(&self) -> PathBuf {
        self.root.join("sys/bus/nd/devices")
    }
}

/// Devices mapped onto devices, at most.
const MAPPER_DEPTH_MAX: u32 = 8;

/// A device-dax device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DevDax {
    pub(crate) size_bytes: u64,
    pub(crate) align_bytes: u64,
}

/// The memory below a device.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Backing {
    regions: Vec<Region>,
    node: Option<u32>,
    lost: bool,
}

impl Backing {
    /// The weakest domain of the regions, or why there is none.
    pub(crate) fn domain(&self) -> Result<Domain, String> {
        if self.regions.is_empty() || self.lost {
            return Err("no nvdimm region found below it in sysfs".to_owned());
        }
        let mut weakest = Domain::CpuCache;
        for region in &self.regions {
            weakest = weakest.min(region.domain()?);
        }
        Ok(weakest)
    }

    /// NUMA node of the memory, or the nearest.
    pub(crate) fn node(&self) -> Option<u32> {
        self.node
    }

    /// Bytes that the DIMMs write at once: the most of any of them.
    pub(crate) fn line_bytes(&self) -> usize {
        let optane = self.regions.iter().flat_map(Region::dimms).any(|dimm| is_optane(&dimm));
        if optane { OPTANE_LINE_BYTES } else { crate::LINE_BYTES }
    }

    /// How often the DIMMs lost power with data still on its way; none where none of them counts.
    pub(crate) fn unsafe_shutdown_count(&self) -> Option<u64> {
        let mut dimms: Vec<PathBuf> = self.regions.iter().flat_map(Region::dimms).collect();
        dimms.sort();
        dimms.dedup();
        let counts = dimms.iter().filter_map(|dimm| {
            let count = |vendor: &&str| number_in(&dimm.join(vendor).join("dirty_shutdown"));
            ["nfit", "papr", "cxl"].iter().find_map(count)
        });
        counts.fold(None, |sum: Option<u64>, count| Some(sum.unwrap_or(0).saturating_add(count)))
    }
}

/// An nvdimm region: DIMMs interleaved, with one persistence domain.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Region {
    directory: PathBuf,
    /// Where the DIMMs' directories are.
    bus: PathBuf,
}

impl Region {
    fn domain(&self) -> Result<Domain, String> {
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        // The attribute is absent where the platform promises nothing.
        match text_in(&self.directory.join("persistence_domain")).as_deref() {
            Some("cpu_cache") => Ok(Domain::CpuCache),
            Some("memory_controller") => Ok(Domain::CpuFlush),
            None | Some("") => Err(format!("{name} has no persistence domain")),
            Some(other) => Err(format!("{name}'s persistence domain is {other}")),
        }
    }

    /// Directories of its DIMMs; `mapping0` reads "nmem3,0,34359738368,0".
    fn dimms(&self) -> Vec<PathBuf> {
        let count = number_in(&self.directory.join("mappings")).unwrap_or(0).min(DIMMS_MAX);
        let mapping = |index| text_in(&self.directory.join(format!("mapping{index}")));
        (0..count)
            .filter_map(mapping)
            .filter_map(|text| Some(self.bus.join(text.split(',').next()?)))
            .collect()
    }
}

/// Linux's ND_MAX_MAPPINGS.
const DIMMS_MAX: u64 = 32;

/// What Optane DIMMs write at once ("An Empirical Guide to the Behavior and Use of Scalable
/// Persistent Memory", FAST'20).
const OPTANE_LINE_BYTES: usize = 256;

/// Intel by JEDEC's code, as Linux prints its two bytes since 4.7, and the other way round. Its
/// only DIMMs that keep data are Optane's; a virtual machine's have another vendor (QEMU: 0x8680).
const OPTANE_VENDORS: [u64; 2] = [0x8089, 0x8980];

fn is_optane(dimm: &Path) -> bool {
    number_in(&dimm.join("nfit/vendor")).is_some_and(|vendor| OPTANE_VENDORS.contains(&vendor))
}

/// "region7", of the nvdimm or the CXL bus.
fn is_region(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix("region")).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn text_in(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Decimal, or hexadecimal with 0x.
fn number_in(path: &Path) -> Option<u64> {
    let text = text_in(path)?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
