use super::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A sysfs of files in a temporary directory.
struct Fake {
    directory: tempfile::TempDir,
}

const DEVICE: &str = "sys/devices/platform/e820_pmem/ndbus0";

impl Fake {
    fn new() -> Fake {
        Fake { directory: tempfile::tempdir().unwrap() }
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs { root: self.directory.path().canonicalize().unwrap() }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, from: &str, to: &str) {
        let (from, to) = (self.directory.path().join(from), self.directory.path().join(to));
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        fs::create_dir_all(&to).unwrap();
        symlink(to, from).unwrap();
    }

    /// Region `n` with a block device 259:`n`.
    fn region(&self, n: u32, domain: Option<&str>) {
        let region = format!("{DEVICE}/region{n}");
        self.link(
            &format!("sys/dev/block/259:{n}"),
            &format!("{region}/namespace{n}.0/block/pmem{n}"),
        );
        if let Some(domain) = domain {
            self.write(&format!("{region}/persistence_domain"), domain);
        }
    }
}

fn block(minor: u32) -> Device {
    Device::Block(libc::makedev(259, minor))
}

#[test]
fn the_region_says_the_domain() {
    let fake = Fake::new();
    fake.region(0, Some("memory_controller"));
    fake.region(1, Some("cpu_cache"));
    fake.region(2, Some("somewhere"));
    fake.region(3, None);
    let domain = |minor| fake.sysfs().backing(block(minor)).domain();
    assert_eq!(domain(0), Ok(Domain::CpuFlush));
    assert_eq!(domain(1), Ok(Domain::CpuCache));
    assert!(domain(2).unwrap_err().contains("somewhere"));
    assert!(domain(3).unwrap_err().contains("region3"));
    assert!(domain(4).unwrap_err().contains("no nvdimm region"));
}

#[test]
fn devices_mapped_onto_several_regions_take_the_weakest_domain() {
    let fake = Fake::new();
    fake.region(0, Some("memory_controller"));
    fake.region(1, Some("cpu_cache"));
    let mapper = "sys/devices/virtual/block/dm-0";
    fake.link("sys/dev/block/253:0", mapper);
    for n in 0..2 {
        fake.link(
            &format!("{mapper}/slaves/pmem{n}"),
            &format!("{DEVICE}/region{n}/namespace{n}.0/block/pmem{n}"),
        );
    }
    let backing = fake.sysfs().backing(Device::Block(libc::makedev(253, 0)));
    assert_eq!(backing.domain(), Ok(Domain::CpuFlush));
    // A third leg that is no memory at all.
    symlink("nowhere", fake.directory.path().join(mapper).join("slaves/sda")).unwrap();
    let backing = fake.sysfs().backing(Device::Block(libc::makedev(253, 0)));
    assert!(backing.domain().is_err());
}

#[test]
fn the_node_is_the_nearest_that_is_one() {
    let fake = Fake::new();
    fake.region(0, Some("cpu_cache"));
    assert_eq!(fake.sysfs().backing(block(0)).node(), None);
    fake.write(&format!("{DEVICE}/region0/namespace0.0/numa_node"), "-1");
    assert_eq!(fake.sysfs().backing(block(0)).node(), None);
    fake.write(&format!("{DEVICE}/region0/numa_node"), "1");
    assert_eq!(fake.sysfs().backing(block(0)).node(), Some(1));
    // memory of a node of its own, once that is online: as `nearside topology` says
    fake.write(&format!("{DEVICE}/region0/target_node"), "4");
    assert_eq!(fake.sysfs().backing(block(0)).node(), Some(1));
    fake.write("sys/devices/system/node/node4/cpulist", "");
    assert_eq!(fake.sysfs().backing(block(0)).node(), Some(4));
}

#[test]
fn unsafe_shutdowns_of_all_dimms_add_up() {
    let fake = Fake::new();
    fake.region(0, Some("cpu_cache"));
    let count = || fake.sysfs().backing(block(0)).unsafe_shutdown_count();
    assert_eq!(count(), None);
    fake.write(&format!("{DEVICE}/region0/mappings"), "3");
    for dimm in 0..3 {
        fake.write(&format!("{DEVICE}/region0/mapping{dimm}"), &format!("nmem{dimm},0,4096,0"));
    }
    assert_eq!(count(), None);
    fake.write("sys/bus/nd/devices/nmem0/nfit/dirty_shutdown", "2");
    fake.write("sys/bus/nd/devices/nmem2/papr/dirty_shutdown", "5");
    assert_eq!(count(), Some(7));
}

/// 256 bytes for Optane, however many DIMMs and whichever of them; 64 for all else, and where
/// nothing is said.
#[test]
fn optane_dimms_write_longer_lines_than_others() {
    let fake = Fake::new();
    fake.region(0, Some("cpu_cache"));
    let line = || fake.sysfs().backing(block(0)).line_bytes();
    assert_eq!(line(), 64);
    fake.write(&format!("{DEVICE}/region0/mappings"), "2");
    for dimm in 0..2 {
        fake.write(&format!("{DEVICE}/region0/mapping{dimm}"), &format!("nmem{dimm},0,4096,0"));
    }
    assert_eq!(line(), 64, "no vendor");
    fake.write("sys/bus/nd/devices/nmem0/nfit/vendor", "0x8680");
    fake.write("sys/bus/nd/devices/nmem2/nfit/vendor", "0x8089");
    assert_eq!(line(), 64, "another vendor here, Optane in another region");
    for vendor in ["0x8089", "0x8980"] {
        fake.write("sys/bus/nd/devices/nmem1/nfit/vendor", vendor);
        assert_eq!(line(), 256, "{vendor}");
    }
    assert_eq!(fake.sysfs().backing(block(1)).line_bytes(), 64, "no such device");
}

#[test]
fn devdax_is_told_from_other_character_devices() {
    let fake = Fake::new();
    let dax = format!("{DEVICE}/region0/dax0.0/dax0.0");
    fake.link("sys/dev/char/252:0", &dax);
    fake.write(&format!("{dax}/size"), "1073741824");
    fake.write(&format!("{dax}/align"), "2097152");
    fake.write(&format!("{DEVICE}/region0/persistence_domain"), "cpu_cache");
    fake.link(&format!("{dax}/subsystem"), "sys/bus/dax");
    fake.link("sys/dev/char/1:3", "sys/devices/virtual/mem/null");
    fake.link("sys/devices/virtual/mem/null/subsystem", "sys/class/mem");

    let number = libc::makedev(252, 0);
    let found = fake.sysfs().devdax(number).unwrap();
    assert_eq!(found, DevDax { size_bytes: 1 << 30, align_bytes: 2 << 20 });
    assert_eq!(fake.sysfs().backing(Device::Character(number)).domain(), Ok(Domain::CpuCache));
    assert_eq!(fake.sysfs().devdax(libc::makedev(1, 3)), None);
}
