//! Where the memory lies that this process has mapped, as the kernel says.

use crate::PAGE;
use std::fs::{File, read_dir, read_to_string};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a file says, without its line's end.
fn said(path: &Path) -> String {
    read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().into()
}

/// What the kernel says of this process's memory.
pub struct Memory {
    /// A line for each mapping.
    maps: String,
    bytes: File,
    pages: File,
    /// Regions of NVDIMMs: where each begins and ends, and its node.
    regions: Vec<(u64, u64, u32)>,
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

impl Memory {
    /// Asks the kernel.
    pub fn look() -> Memory {
        let mut regions = Vec::new();
        for region in read_dir("/sys/bus/nd/devices").unwrap() {
            let region = region.unwrap().path();
            if region.file_name().unwrap().to_str().unwrap().starts_with("region") {
                let number = |name: &str| said(&region.join(name)).parse::<u64>().unwrap();
                let begin = hex(&said(&region.join("resource")));
                regions.push((begin, begin + number("size"), number("numa_node") as u32));
            }
        }
        Memory {
            maps: said(Path::new("/proc/self/maps")),
            bytes: File::open("/proc/self/mem").unwrap(),
            pages: File::open("/proc/self/pagemap").unwrap(),
            regions,
        }
    }

    /// Where this process has a place of a slice's file.
    pub fn mapped_at(&self, path: &Path, at: u64) -> u64 {
        let mut its = self.maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
        let found = its.find_map(|line| {
            let mut words = line.split_whitespace();
            let (begin, end) = words.next()?.split_once('-')?;
            let (begin, end) = (hex(begin), hex(end));
            let offset = hex(words.nth(1)?);
            (at >= offset && at - offset < end - begin).then(|| begin + at - offset)
        });
        found.unwrap_or_else(|| panic!("{} is not mapped at {at:#x}", path.display()))
    }

    /// The node of the memory that the kernel shows at an address, which holds these bytes.
    pub fn node_of(&self, address: u64, bytes: &[u8]) -> u32 {
        let mut held = vec![0; bytes.len()];
        self.bytes.read_exact_at(&mut held, address).unwrap();
        assert!(held == bytes, "another page is at {address:#x}");
        // bit 63: it is there; bits 0 to 54: its frame
        let mut entry = [0; 8];
        self.pages.read_exact_at(&mut entry, address / PAGE * 8).unwrap();
        let entry = u64::from_le_bytes(entry);
        assert!(entry >> 63 == 1, "no page is at {address:#x}");
        let physical = (entry & ((1 << 55) - 1)) * PAGE;
        let mut its = self.regions.iter().filter(|it| (it.0..it.1).contains(&physical));
        its.next().unwrap_or_else(|| panic!("{physical:#x} is of no region")).2
    }
}
