//! Machines as people describe them, in TOML.

use placement::{Class, Curve, Machine, MachineAccess};
use serde::Deserialize;

/// Why a description is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is no TOML, or says other things.
    #[error("not a description of a machine: {0}")]
    Text(#[from] toml::de::Error),
    /// It says what no machine is.
    #[error("not a machine: {0}")]
    Machine(&'static str),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    source: String,
    nodes: u32,
    cpus: u32,
    granule_bytes: u64,
    hand_off_ns: f64,
    move_thread_ns: Option<f64>,
    link_mib_per_s: Option<f64>,
    directory: Option<f64>,
    read: DescribedAccess,
    write: DescribedAccess,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedAccess {
    remote_factor: f64,
    latency_ns: f64,
    remote_latency_ns: f64,
    curve: Vec<DescribedClass>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedClass {
    bytes: u64,
    /// Threads and MiB/s.
    points: Vec<(u32, f64)>,
}

/// CPUs of a machine at most: pools keep a little for each.
const CPUS_MAX: u32 = 4096;
/// Longest time that anything takes, ns.
const LONGEST_NS: f64 = 1e9;
/// Most bytes that memory moves at once.
const GRANULE_MAX: u64 = 4096;
/// Moving a thread takes so long where nobody says, ns: Linux takes 7 to 8 us.
const MOVE_THREAD_NS: f64 = 7500.0;
/// Most bytes that a directory writes for each that others read.
const DIRECTORY_MAX: f64 = 64.0;
/// The slowest link, MiB/s.
const SLOWEST_LINK: f64 = 1.0;

/// Machines that come along: a name, and the description.
pub const KNOWN: [(&str, &str); 5] = [
    ("optane-2-sockets", include_str!("../machines/optane-2-sockets.toml")),
    ("optane-8-sockets", include_str!("../machines/optane-8-sockets.toml")),
    ("opteron-4-sockets", include_str!("../machines/opteron-4-sockets.toml")),
    ("cxl-expander", include_str!("../machines/cxl-expander.toml")),
    ("battery-backed-dram", include_str!("../machines/battery-backed-dram.toml")),
];

/// The machine that a text describes.
///
/// # Errors
/// Why it is none.
pub fn parse(text: &str) -> Result<Machine, Error> {
    let it: Described = toml::from_str(text)?;
    if it.nodes == 0 || it.nodes > topology::NODE_LIMIT || it.cpus == 0 {
        return Err(Error::Machine("it has one node at least, and one CPU on each"));
    }
    if it.nodes.saturating_mul(it.cpus) > CPUS_MAX {
        return Err(Error::Machine("it has 4096 CPUs at most"));
    }
    if !(1..=GRANULE_MAX).contains(&it.granule_bytes) {
        return Err(Error::Machine("its memory moves 1 to 4096 bytes at once"));
    }
    let link = it.link_mib_per_s.unwrap_or(f64::INFINITY);
    if it.link_mib_per_s.is_some() && !(link >= SLOWEST_LINK && link.is_finite()) {
        return Err(Error::Machine("a link moves some MiB a second, 1 at least"));
    }
    let directory = it.directory.unwrap_or(0.0);
    if !(0.0..=DIRECTORY_MAX).contains(&directory) {
        return Err(Error::Machine("a directory writes 0 to 64 bytes for each that is read"));
    }
    Ok(Machine {
        name: it.name,
        source: it.source,
        nodes: it.nodes,
        cpus: it.cpus,
        granule_bytes: it.granule_bytes,
        hand_off_ns: time(it.hand_off_ns)?,
        move_thread_ns: time(it.move_thread_ns.unwrap_or(MOVE_THREAD_NS))?,
        link,
        directory,
        read: access(it.read)?,
        write: access(it.write)?,
    })
}

fn time(nanos: f64) -> Result<f64, Error> {
    match (0.0..=LONGEST_NS).contains(&nanos) {
        true => Ok(nanos),
        false => Err(Error::Machine("a time is a number of ns, from 0 to a second")),
    }
}

fn access(it: DescribedAccess) -> Result<MachineAccess, Error> {
    if !(it.remote_factor > 0.0 && it.remote_factor <= 1.0) {
        return Err(Error::Machine("from another node there is a part of the bandwidth, up to 1"));
    }
    let class = |it: DescribedClass| Class { bytes: it.bytes, points: it.points };
    let local = Curve::new(it.curve.into_iter().map(class).collect());
    let wrong = "sizes and threads of a curve ascend, rates are above 0";
    Ok(MachineAccess {
        local: local.ok_or(Error::Machine(wrong))?,
        remote_factor: it.remote_factor,
        latency_ns: [time(it.latency_ns)?, time(it.remote_latency_ns)?],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_come_along_are_machines() {
        for (name, text) in KNOWN {
            let machine = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!machine.source.is_empty(), "{name}");
            // no number of threads does worse for being fewer than one
            for access in [&machine.read, &machine.write] {
                let alone = access.local.rate(1, 4096);
                for threads in 2..=machine.cpus {
                    let share = access.local.rate(threads, 4096) / f64::from(threads);
                    assert!(share <= alone * 1.001, "{name}: {threads} threads");
                }
            }
        }
    }

    #[test]
    fn what_is_no_machine_is_refused_in_words() {
        let fine = KNOWN[0].1;
        for (from, to, says) in [
            ("nodes = 2", "nodes = 0", "one node at least"),
            ("nodes = 2", "nodes = 1025", "one node at least"),
            ("cpus = 28", "cpus = 0", "one CPU on each"),
            ("cpus = 28", "cpus = 4000", "4096 CPUs at most"),
            ("granule_bytes = 256", "granule_bytes = 0", "1 to 4096 bytes"),
            ("latency_ns = 305", "latency_ns = nan", "a number of ns"),
            ("latency_ns = 305", "latency_ns = -1", "a number of ns"),
            ("remote_factor = 0.925", "remote_factor = 0", "a part of the bandwidth"),
            ("remote_factor = 0.925", "remote_factor = inf", "a part of the bandwidth"),
            ("bytes = 4096", "bytes = 1048577000", "ascend"),
            ("nodes = 2", "nodes = 2\nsockets = 2", "unknown field"),
            ("nodes = 2", "nodes = 2\nlink_mib_per_s = -3.0", "a link moves"),
            ("nodes = 2", "nodes = 2\ndirectory = -1.0", "a directory writes"),
            ("nodes = 2", "nodes = 2\nmove_thread_ns = inf", "a number of ns"),
            ("nodes = 2", "nodes = ", "not a description"),
        ] {
            assert!(fine.contains(from), "{from}");
            let said = parse(&fine.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(said.contains(says), "{to}: {said}");
        }
    }
}
