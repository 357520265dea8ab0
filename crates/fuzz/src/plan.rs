//! Which pools cases start from: what each has, and what happens to it. `corpus` makes them.

/// What kind of pool, and what happens to it.
#[derive(Debug)]
pub struct Plan {
    /// What it is called.
    pub name: &'static str,
    /// Slices.
    pub slices: usize,
    /// Bytes of each, for each copy of the data.
    pub slice_bytes: u64,
    /// In the domain `process`, or in `sync`.
    pub process: bool,
    /// How many changes are made.
    pub changes: usize,
    /// A checkpoint is made after so many of them.
    pub checkpoint_every: usize,
    /// Bytes of a line of the log.
    pub log_line_bytes: u32,
    /// Copies of the data.
    pub copies: u32,
    /// Further values, for a tree with many pages.
    pub values: usize,
    /// Files are open when it ends, without a name.
    pub orphans: bool,
    /// Its changes are requests, most of which are not answered when it ends.
    pub requests: bool,
    /// Files share blocks.
    pub shares: bool,
    /// Devices of the capacity tier.
    pub devices: usize,
    /// All blocks move to them after so many changes.
    pub moves_every: usize,
    /// The same at the end.
    pub moves_last: bool,
    /// Blocks are reserved in slices while devices have no room, and on devices after that.
    pub reserves: bool,
    /// It is closed at the end, or killed.
    pub close: bool,
}

/// A pool that nothing special happens to.
const PLAN: Plan = Plan {
    name: "",
    slices: 1,
    slice_bytes: 1 << 20,
    process: true,
    changes: 60,
    checkpoint_every: usize::MAX,
    log_line_bytes: 64,
    copies: 1,
    values: 0,
    orphans: false,
    requests: false,
    shares: false,
    devices: 0,
    moves_every: usize::MAX,
    moves_last: false,
    reserves: false,
    close: false,
};

/// A pool with a capacity tier.
const BELOW: Plan = Plan { devices: 1, ..PLAN };
/// The same with two slices and two devices.
const TWO_BELOW: Plan = Plan { slices: 2, devices: 2, ..PLAN };

/// The pools that cases start from.
pub const PLANS: [Plan; 27] = [
    Plan { name: "empty", changes: 0, close: true, ..PLAN },
    Plan { name: "closed", close: true, ..PLAN },
    Plan { name: "killed", changes: 40, ..PLAN },
    Plan { name: "killed after checkpoints", checkpoint_every: 23, changes: 90, ..PLAN },
    Plan { name: "killed at a checkpoint", checkpoint_every: 60, ..PLAN },
    Plan { name: "two slices", slices: 2, checkpoint_every: 35, ..PLAN },
    Plan { name: "orphans", orphans: true, changes: 20, checkpoint_every: 15, ..PLAN },
    Plan { name: "large tree", slice_bytes: 4 << 20, values: 420, changes: 10, ..PLAN },
    Plan { name: "sync", process: false, checkpoint_every: 35, ..PLAN },
    Plan { name: "old", checkpoint_every: 19, changes: 300, close: true, ..PLAN },
    Plan { name: "long lines", log_line_bytes: 256, checkpoint_every: 41, ..PLAN },
    Plan { name: "requests", requests: true, orphans: true, checkpoint_every: 17, ..PLAN },
    Plan { name: "shared", shares: true, checkpoint_every: 29, ..PLAN },
    Plan { name: "shared on two slices", shares: true, slices: 2, close: true, ..PLAN },
    Plan { name: "mirrored", copies: 2, slices: 2, checkpoint_every: 35, ..PLAN },
    Plan { name: "three mirrored slices", copies: 2, slices: 3, close: true, ..PLAN },
    Plan { name: "below, empty", changes: 0, close: true, ..BELOW },
    Plan { name: "below, all of it, closed", moves_last: true, close: true, ..BELOW },
    Plan { name: "below, all of it, killed", moves_last: true, changes: 40, ..BELOW },
    Plan { name: "below, some of it", moves_every: 14, checkpoint_every: 23, ..BELOW },
    Plan { name: "below, shared", shares: true, moves_every: 11, checkpoint_every: 25, ..BELOW },
    Plan { name: "below, reserved", reserves: true, moves_every: 16, changes: 55, ..BELOW },
    Plan { name: "below, in sync", process: false, moves_every: 13, ..BELOW },
    Plan { name: "below, old", moves_every: 9, changes: 200, close: true, ..BELOW },
    Plan { name: "two below two", moves_every: 12, checkpoint_every: 35, ..TWO_BELOW },
    Plan {
        name: "two below two, all of it",
        shares: true,
        reserves: true,
        moves_every: 15,
        moves_last: true,
        close: true,
        ..TWO_BELOW
    },
    Plan {
        name: "three below one, requests",
        devices: 3,
        requests: true,
        orphans: true,
        moves_every: 8,
        checkpoint_every: 17,
        ..BELOW
    },
];
