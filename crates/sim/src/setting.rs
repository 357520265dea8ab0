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

/// Most nodes, also of what people describe or record,
pub const NODES_MAX: u32 = topology::NODE_LIMIT;
/// threads,
pub const THREADS_MAX: u32 = 16384;
/// files,
pub const FILES_MAX: u32 = 1 << 22;
/// bytes of a file,
pub const FILE_BYTES_MAX: u64 = 1 << 50;
/// and of a call.
pub const CALL_BYTES_MAX: u64 = 1 << 30;
/// Most pieces of a call, and units of data that move.
const PIECES_MAX: u64 = 1 << 18;
const UNITS_MAX: u64 = 1 << 26;

impl Setting {
    /// An error where it is none.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        let Setting { machine, system, time, .. } = self;
        let faults = [
            (!(1..=NODES_MAX).contains(&machine.nodes), "a machine has 1 to 1024 nodes"),
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
            () if threads > u64::from(THREADS_MAX) => Err(Refused("there are 1 to 16384 threads")),
            () if system.data_rule().is_some() && data > UNITS_MAX => {
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
        let piece = self.system.piece_bytes.unwrap_or(BLOCK_BYTES).min(self.unit_bytes()).max(1);
        let faults = [
            (it.steps.is_empty() && it.trace.is_none(), "a thread does something"),
            (!(1..=THREADS_MAX).contains(&it.threads), "there are 1 to 16384 threads"),
            (
                !it.steps.iter().all(|step| (1..=CALL_BYTES_MAX).contains(&step.bytes())),
                "a call has 1 byte to 1 GiB",
            ),
            (it.file_bytes < it.longest_in_file(), "a file is no shorter than a call"),
            (it.file_bytes > FILE_BYTES_MAX, "a file has 1 PiB at most"),
            (it.files > FILES_MAX, "there are 4194304 files at most"),
            (it.on_nodes == 0, "threads run on one node at least"),
            (
                ![it.file_ns, it.thinks_ns, it.from_ns]
                    .iter()
                    .all(|it| it.is_finite() && *it >= 0.0),
                "a time is some nanoseconds",
            ),
            (it.longest().div_ceil(piece) > PIECES_MAX, "a call has 262144 pieces at most"),
        ];
        faults.into_iter().find(|fault| fault.0).map_or(Ok(()), |(_, why)| Err(Refused(why)))
    }
}
