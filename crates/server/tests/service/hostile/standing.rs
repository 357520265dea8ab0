//! How a service stands: what it has of memory, descriptors and threads.

use std::fmt;
use std::path::Path;

use crate::child::Running;

/// What of a process is left when those have gone whom it served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    pub sessions: usize,
    /// Bytes of pages that processes have mapped.
    pub copied: u64,
    /// Free blocks of the pool.
    pub free: u64,
    descriptors: usize,
    threads: usize,
    /// Files of lanes, three of each.
    pub lane_files: usize,
    /// Memory of its own, and shared memory, KiB.
    own_kib: u64,
    shared_kib: u64,
}

/// What may be more of memory than before: what allocators keep, and honest work.
const OWN_KIB_MORE: u64 = 48 << 10;
const SHARED_KIB_MORE: u64 = 4 << 10;
/// Blocks that honest work may take more: fewer than a lane does.
const BLOCKS_MORE: u64 = 1000;

impl Standing {
    pub fn of(service: &mut Running, dir: &Path) -> Standing {
        let line = service.ask("stand");
        let words = line.strip_prefix("stands ").unwrap_or_else(|| panic!("the service: {line}"));
        let numbers: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
        let process = format!("/proc/{}", service.id());
        let count = |what: &str| std::fs::read_dir(format!("{process}/{what}")).unwrap().count();
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let kib = |what: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(what));
            line.and_then(|line| line.trim_end_matches("kB").trim().parse().ok()).unwrap()
        };
        Standing {
            sessions: numbers[0] as usize,
            copied: numbers[1],
            free: numbers[2],
            descriptors: count("fd"),
            threads: count("task"),
            lane_files: lane_files(dir),
            own_kib: kib("RssAnon:"),
            shared_kib: kib("RssShmem:"),
        }
    }

    /// Whether it stands as it stood.
    pub fn is_as(&self, before: &Standing) -> bool {
        self.sessions == before.sessions
            && self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.lane_files <= before.lane_files
            && self.free + BLOCKS_MORE >= before.free
            && self.own_kib <= before.own_kib + OWN_KIB_MORE
            && self.shared_kib <= before.shared_kib + SHARED_KIB_MORE
    }
}

/// Files of lanes in the pool's directory; another one there is the service's own.
fn lane_files(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir.join("lanes")) else { return 0 };
    entries.filter(|entry| entry.as_ref().is_ok_and(|it| it.file_name() != "reign")).count()
}

impl fmt::Display for Standing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self:?}")
    }
}
