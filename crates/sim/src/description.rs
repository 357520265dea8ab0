//! Machines as people describe them, in TOML.

use placement::{Class, Curve, Machine, MachineAccess};
use serde::Deserialize;
use toml::Spanned;

/// Why a description is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is no TOML, or says other things.
    #[error("not a description: {0}")]
    Text(#[from] toml::de::Error),
    /// It says what no machine is, or no workload.
    #[error("line {line}, {field}: {why}")]
    Wrong {
        /// The line, from 1.
        line: usize,
        /// What of it.
        field: &'static str,
        /// What is wrong.
        why: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    source: String,
    nodes: Spanned<u32>,
    cpus: Spanned<u32>,
    granule_bytes: Spanned<u64>,
    hand_off_ns: Spanned<f64>,
    move_thread_ns: Option<Spanned<f64>>,
    link_mib_per_s: Option<Spanned<f64>>,
    directory: Option<Spanned<f64>>,
    read: DescribedAccess,
    write: DescribedAccess,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedAccess {
    remote_factor: Spanned<f64>,
    latency_ns: Spanned<f64>,
    remote_latency_ns: Spanned<f64>,
    curve: Spanned<Vec<DescribedClass>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedClass {
    bytes: Spanned<u64>,
    /// Threads and MiB/s.
    points: Spanned<Vec<(u32, f64)>>,
}

/// A text, for the line that a place in it is on.
pub(crate) struct Text<'t>(pub(crate) &'t str);

impl Text<'_> {
    /// What was said for this field, if `is_fine`.
    pub(crate) fn checked<T: Copy>(
        &self,
        said: &Spanned<T>,
        field: &'static str,
        why: &'static str,
        is_fine: impl FnOnce(T) -> bool,
    ) -> Result<T, Error> {
        match is_fine(*said.as_ref()) {
            true => Ok(*said.as_ref()),
            false => Err(self.wrong(said, field, why)),
        }
    }

    /// What is wrong with what was said for this field.
    pub(crate) fn wrong<T>(
        &self,
        said: &Spanned<T>,
        field: &'static str,
        why: &'static str,
    ) -> Error {
        let before = self.0.as_bytes().get(..said.span().start).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Error::Wrong { line, field, why }
    }

    /// A time, ns.
    pub(crate) fn time(&self, said: &Spanned<f64>, field: &'static str) -> Result<f64, Error> {
        let why = "a time is a number of ns, from 0 to a second";
        self.checked(said, field, why, |nanos| (0.0..=LONGEST_NS).contains(&nanos))
    }

    fn access(&self, it: DescribedAccess) -> Result<MachineAccess, Error> {
        let part = "from another node there is a part of the bandwidth, up to 1";
        let is_part = |factor: f64| factor > 0.0 && factor <= 1.0;
        let remote_factor = self.checked(&it.remote_factor, "remote_factor", part, is_part)?;
        let latency_ns = [
            self.time(&it.latency_ns, "latency_ns")?,
            self.time(&it.remote_latency_ns, "remote_latency_ns")?,
        ];
        let none = self.wrong(&it.curve, "curve", "a curve has one size at least");
        let local = self.curve(it.curve.into_inner())?.ok_or(none)?;
        Ok(MachineAccess { local, remote_factor, latency_ns })
    }

    /// None of none.
    fn curve(&self, described: Vec<DescribedClass>) -> Result<Option<Curve>, Error> {
        let mut classes = Vec::new();
        for it in described {
            let points = it.points.as_ref().clone();
            if Curve::new(vec![Class { bytes: 1, points: points.clone() }]).is_none() {
                let why = "numbers of threads ascend from 1 on, and rates are above 0";
                return Err(self.wrong(&it.points, "points", why));
            }
            classes.push(Class { bytes: *it.bytes.as_ref(), points });
            if Curve::new(classes.clone()).is_none() {
                let why = "sizes of a curve ascend, from 1 byte to 1 TiB";
                return Err(self.wrong(&it.bytes, "bytes", why));
            }
        }
        Ok(Curve::new(classes))
    }
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
    let (it, text): (Described, _) = (toml::from_str(text)?, Text(text));
    let why = "a machine has 1 to 1024 nodes";
    let nodes =
        text.checked(&it.nodes, "nodes", why, |it| (1..=topology::NODE_LIMIT).contains(&it))?;
    let why = "a node has one CPU at least, and a machine 4096 at most";
    let fits = |cpus: u32| cpus > 0 && nodes.saturating_mul(cpus) <= CPUS_MAX;
    let cpus = text.checked(&it.cpus, "cpus", why, fits)?;
    let why = "memory moves 1 to 4096 bytes at once";
    let is_granule = |bytes: u64| (1..=GRANULE_MAX).contains(&bytes);
    let granule_bytes = text.checked(&it.granule_bytes, "granule_bytes", why, is_granule)?;
    let why = "a link moves some MiB a second, 1 at least";
    let is_link = |rate: f64| rate >= SLOWEST_LINK && rate.is_finite();
    let link = (it.link_mib_per_s.as_ref())
        .map_or(Ok(f64::INFINITY), |it| text.checked(it, "link_mib_per_s", why, is_link))?;
    let why = "a directory writes 0 to 64 bytes for each that is read";
    let is_directory = |bytes: f64| (0.0..=DIRECTORY_MAX).contains(&bytes);
    let directory = (it.directory.as_ref())
        .map_or(Ok(0.0), |it| text.checked(it, "directory", why, is_directory))?;
    Ok(Machine {
        name: it.name,
        source: it.source,
        nodes,
        cpus,
        granule_bytes,
        hand_off_ns: text.time(&it.hand_off_ns, "hand_off_ns")?,
        move_thread_ns: (it.move_thread_ns.as_ref())
            .map_or(Ok(MOVE_THREAD_NS), |it| text.time(it, "move_thread_ns"))?,
        link,
        directory,
        read: text.access(it.read)?,
        write: text.access(it.write)?,
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
        // the first line of what is put there is what is wrong
        for (from, to, says) in [
            ("nodes = 2", "nodes = 0", "nodes: a machine has 1 to 1024"),
            ("nodes = 2", "nodes = 1025", "nodes: a machine has 1 to 1024"),
            ("nodes = 2", "nodes = -2", "invalid value: integer `-2`"),
            ("cpus = 28", "cpus = 0", "cpus: a node has one CPU"),
            ("cpus = 28", "cpus = 4000", "cpus: a node has one CPU at least, and a machine 4096"),
            ("granule_bytes = 256", "granule_bytes = 0", "granule_bytes: memory moves 1 to 4096"),
            ("latency_ns = 305", "latency_ns = nan", "latency_ns: a time is a number of ns"),
            ("latency_ns = 305", "latency_ns = -1", "latency_ns: a time is a number of ns"),
            ("remote_factor = 0.925", "remote_factor = 0", "remote_factor: from another node"),
            ("remote_factor = 0.925", "remote_factor = inf", "remote_factor: from another node"),
            ("nodes = 2", "sockets = 2\nnodes = 2", "unknown field `sockets`"),
            ("nodes = 2", "link_mib_per_s = -3.0\nnodes = 2", "link_mib_per_s: a link moves"),
            ("nodes = 2", "directory = -1.0\nnodes = 2", "directory: a directory writes"),
            ("nodes = 2", "move_thread_ns = inf\nnodes = 2", "move_thread_ns: a time is"),
            ("nodes = 2", "nodes = ", "not a description"),
            ("bytes = 4096", "bytes = 1099511627777", "bytes: sizes of a curve ascend"),
            ("bytes = 262144", "bytes = 32768", "bytes: sizes of a curve ascend"),
            ("points = [[1, 1900]", "points = [[1, -1900]", "points: numbers of threads"),
            ("points = [[1, 1900]", "points = [[4, 1900]", "points: numbers of threads"),
            ("points = [[1, 1900]", "points = [[1]", "expected a tuple of size 2"),
        ] {
            let at = 1 + fine.lines().position(|line| line.starts_with(from)).unwrap();
            let said = parse(&fine.replacen(from, to, 1)).unwrap_err().to_string();
            let is_told = said.contains(says) && said.contains(&format!("line {at},"));
            assert!(is_told, "{to}: line {at}: {said}");
        }
        assert!(parse(&fine[..fine.len() / 2]).is_err(), "what is cut off");
    }
}
