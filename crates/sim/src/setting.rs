//! What is run.

use placement::{BLOCK_BYTES, Machine};

use crate::system::{Layout, System};
use crate::workload::Workload;

/// Who does what, on which machine, and for how long.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The machine.
    pub machine: Machine,
    /// The file system.
    pub system: System,
    /// The threads that count,
    pub workload: Workload,
    /// and others, that do not.
    pub others: Vec<Workload>,
    /// What chance follows from.
    pub seed: u64,
    /// Time that does not count, and that which does, ns.
    pub time: [f64; 2],
}

/// A setting that is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused(pub &'static str);

impl std::fmt::Display for Refused {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.0)
    }
}

impl std::error::Error for Refused {}

/// Most threads, bytes of a call, nodes, and pieces of a call,
const MOST: (u32, u64, u32, u64) = (16384, 1 << 30, 1024, 1 << 18);
/// files, bytes of one, and units of data that move.
const MOST_DATA: (u32, u64, u64) = (1 << 22, 1 << 50, 1 << 26);

impl Setting {
    /// An error where it is none.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        let Setting { machine, system, time, .. } = self;
        let faults = [
            (!(1..=MOST.2).contains(&machine.nodes), "a machine has 1 to 1024 nodes"),
            (machine.cpus == 0, "a node has one CPU at least"),
            (self.unit_bytes() == 0, "a stripe has one byte at least"),
            (!time.iter().all(|it| it.is_finite() && *it >= 0.0), "a time is some nanoseconds"),
            (time[1] <= 0.0, "some of the time counts"),
        ];
        let said = faults.into_iter().find(|fault| fault.0);
        said.map_or(Ok(()), |(_, why)| Err(Refused(why)))?;
        let all = || std::iter::once(&self.workload).chain(&self.others);
        all().try_for_each(|workload| self.check_workload(workload))?;
        let threads: u64 = all().map(|workload| u64::from(workload.threads)).sum();
        let units = |bytes: u64| bytes.div_ceil(self.unit_bytes());
        let of = |it: &Workload| match &it.trace {
            None => units(it.file_bytes).saturating_mul(u64::from(it.all_files())),
            Some(trace) => trace.files.iter().map(|it| units(it.bytes)).sum(),
        };
        let data: u64 = all().map(of).fold(0, u64::saturating_add);
        match () {
            () if threads > u64::from(MOST.0) => Err(Refused("there are 1 to 16384 threads")),
            () if system.data_rule().is_some() && data > MOST_DATA.2 => {
                Err(Refused("there are 67108864 extents that could move at most"))
            }
            () => Ok(()),
        }
    }

    /// Bytes of what lies on one node.
    fn unit_bytes(&self) -> u64 {
        match self.system.layout {
            Layout::Stripe(bytes) | Layout::Auto(bytes) => bytes,
            Layout::One | Layout::Near => self.system.extent_bytes,
        }
    }

    fn check_workload(&self, it: &Workload) -> Result<(), Refused> {
        let (threads, bytes, _, pieces) = MOST;
        let (files, file_bytes, _) = MOST_DATA;
        let piece = self.system.piece_bytes.unwrap_or(BLOCK_BYTES).min(self.unit_bytes()).max(1);
        let faults = [
            (it.steps.is_empty() && it.trace.is_none(), "a thread does something"),
            (!(1..=threads).contains(&it.threads), "there are 1 to 16384 threads"),
            (
                !it.steps.iter().all(|step| (1..=bytes).contains(&step.bytes())),
                "a call has 1 byte to 1 GiB",
            ),
            (it.file_bytes < it.longest_in_file(), "a file is no shorter than a call"),
            (it.file_bytes > file_bytes, "a file has 1 PiB at most"),
            (it.files > files, "there are 4194304 files at most"),
            (it.on_nodes == 0, "threads run on one node at least"),
            (
                ![it.file_ns, it.thinks_ns, it.from_ns]
                    .iter()
                    .all(|it| it.is_finite() && *it >= 0.0),
                "a time is some nanoseconds",
            ),
            (it.longest().div_ceil(piece) > pieces, "a call has 262144 pieces at most"),
        ];
        faults.into_iter().find(|fault| fault.0).map_or(Ok(()), |(_, why)| Err(Refused(why)))
    }
}
