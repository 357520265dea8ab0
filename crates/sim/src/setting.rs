//! What is run.

use placement::Machine;

use crate::system::{Layout, System};
use crate::workload::Workload;

/// Who does what, on which machine, and for how long.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The machine.
    pub machine: Machine,
    /// The file system.
    pub system: System,
    /// The threads.
    pub workload: Workload,
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

/// Most threads, bytes of a call, nodes, and pieces of a call.
const MOST: (u32, u64, u32, u64) = (16384, 1 << 30, 1024, 1 << 16);

impl Setting {
    /// An error where it is none.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        let Setting { machine, system, workload, time, .. } = self;
        let (threads, bytes, nodes, pieces) = MOST;
        let stripe = if let Layout::Stripe(bytes) = system.layout { bytes } else { bytes };
        let piece = if system.piece_bytes == 0 { bytes } else { system.piece_bytes };
        let faults = [
            (!(1..=threads).contains(&workload.threads), "there are 1 to 16384 threads"),
            (!(1..=bytes).contains(&workload.bytes), "a call has 1 byte to 1 GiB"),
            (workload.file_bytes < workload.bytes, "a file is no shorter than a call"),
            (workload.on_nodes == 0, "threads run on one node at least"),
            (!(1..=nodes).contains(&machine.nodes), "a machine has 1 to 1024 nodes"),
            (machine.cpus == 0, "a node has one CPU at least"),
            (stripe == 0, "a stripe has one byte at least"),
            (
                workload.bytes.div_ceil(stripe.min(piece).max(1)) > pieces,
                "a call has 65536 pieces at most",
            ),
            (!time.iter().all(|it| it.is_finite() && *it >= 0.0), "a time is some nanoseconds"),
            (time[1] <= 0.0, "some of the time counts"),
        ];
        faults.into_iter().find(|fault| fault.0).map_or(Ok(()), |(_, why)| Err(Refused(why)))
    }
}
