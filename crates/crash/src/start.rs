//! Where workloads begin.

use crate::arena::Files;
use crate::images::Shape;

/// In which state the tree is when the workload begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Changed since the last checkpoint: much of it is in the log.
    Logged,
    /// All in the trees, and in DRAM.
    Folded,
    /// Opened again after a crash that lost nothing.
    Recovered,
    /// The same, in a pool whose log has long lines.
    LongLines,
    /// The same, in a pool with two copies of everything.
    Mirrored,
    /// The same, in a pool with a capacity tier, on which all blocks are that can be.
    Tiered,
    /// The same, in a pool whose tier has two devices, with blocks on both.
    TwoDevices,
    /// The same as with two copies, and every crash takes the first file with it.
    LosesFirst,
    /// The same, and every crash takes the second file with it.
    LosesSecond,
    /// Changed since the last checkpoint, in a pool to which a process is attached.
    Attached,
}

impl Start {
    /// All of them.
    pub const ALL: [Start; 10] = [
        Start::Logged,
        Start::Folded,
        Start::Recovered,
        Start::LongLines,
        Start::Mirrored,
        Start::Tiered,
        Start::TwoDevices,
        Start::LosesFirst,
        Start::LosesSecond,
        Start::Attached,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Start::Logged => "logged",
            Start::Folded => "folded",
            Start::Recovered => "recovered",
            Start::LongLines => "long-lines",
            Start::Mirrored => "mirrored",
            Start::Tiered => "tiered",
            Start::TwoDevices => "two-devices",
            Start::LosesFirst => "loses-first",
            Start::LosesSecond => "loses-second",
            Start::Attached => "attached",
        }
    }

    /// Of what shape its pool is.
    pub fn shape(self) -> Shape {
        match self {
            Start::Logged | Start::Folded | Start::Recovered => Shape::SMALL,
            Start::LongLines => Shape::LONG_LINES,
            Start::Mirrored | Start::LosesFirst | Start::LosesSecond => Shape::MIRRORED,
            Start::Tiered => Shape::TIERED,
            Start::TwoDevices => Shape::TWO_DEVICES,
            Start::Attached => Shape::ATTACHED,
        }
    }

    /// The files that a crash leaves.
    pub fn files(self) -> Files {
        match self {
            Start::LosesFirst => Files::Without(0),
            Start::LosesSecond => Files::Without(1),
            _ => Files::All,
        }
    }

    /// The start of this name.
    pub fn find(name: &str) -> Option<Start> {
        Start::ALL.into_iter().find(|start| start.name() == name)
    }
}
