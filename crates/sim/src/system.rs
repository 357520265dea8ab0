//! How a file system places data, and who copies.

use placement::{DataRule, Machine, Policy, Side, ThreadRule, WINDOW_NS, Weigh};

/// Where the data of files is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All on the first node.
    One,
    /// A file's on the node of who made it.
    Near,
    /// In stripes of so many bytes over all nodes, by where in the file it is.
    Stripe(u64),
    /// The first stripe of a file on the node of who made it, the others on one after the other.
    Auto(u64),
}

/// Whether threads move to their data, and data to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moves {
    /// They do not.
    None,
    /// As the engine has it, as far as the machine says what that costs.
    Machine,
    /// By these.
    Fixed(Option<ThreadRule>, Option<DataRule>),
}

/// Who decides who copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Nobody: callers copy.
    Callers,
    /// What suits the machine, as the engine has it.
    Machine,
    /// This.
    Fixed(Policy),
}

/// A file system, as far as it matters here.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// What it is called.
    pub name: &'static str,
    /// Where its numbers are from.
    pub source: &'static str,
    /// Where data is.
    pub layout: Layout,
    /// Who copies.
    pub rule: Rule,
    /// Workers of each node; none: as many as suit the machine.
    pub workers: Option<u32>,
    /// Each worker has a ring of its own, and callers ask one of them.
    pub own_rings: bool,
    /// Longest piece that a worker gets; none: what the policy says.
    pub piece_bytes: Option<u64>,
    /// What a call takes beside moving its bytes, ns: to read, and to write.
    pub call_ns: [f64; 2],
    /// The part of that in which nobody else may be, on the whole machine.
    pub serial_ns: [f64; 2],
    /// Bytes that a write writes besides: what says so in a log.
    pub record_bytes: u64,
    /// What moves.
    pub moves: Moves,
    /// Threads move to write, too.
    pub writers_move: bool,
    /// What is new goes to the node that has most time for it, where its writer's has none.
    pub spills: bool,
    /// Data moves so many bytes at once, where it does not lie in stripes.
    pub extent_bytes: u64,
}

/// Instructions of a call become time at this rate, a ns: some 2.5 GHz, one a cycle.
const INSTRUCTIONS_A_NS: f64 = 2.5;
/// Instructions of moving 4 KiB, which those of a call have in them.
const MOVING: f64 = 500.0;

const fn instructions(read: f64, write: f64) -> [f64; 2] {
    [(read - MOVING) / INSTRUCTIONS_A_NS, (write - MOVING) / INSTRUCTIONS_A_NS]
}

const fn asked_from(read: u64, write: u64) -> Policy {
    const fn side(from: u64) -> Side {
        Side {
            limit: placement::NO_LIMIT,
            large_turns: 1,
            harmless: 12,
            delegate_remote: from,
            delegate_local: from,
        }
    }
    Policy { read: side(read), write: side(write) }
}

/// No file system.
const NONE: System = System {
    name: "none",
    source: "",
    layout: Layout::Near,
    rule: Rule::Callers,
    workers: Some(0),
    own_rings: false,
    piece_bytes: None,
    call_ns: [0.0; 2],
    serial_ns: [0.0; 2],
    record_bytes: 0,
    moves: Moves::None,
    writers_move: false,
    spills: false,
    extent_bytes: 2 << 20,
};

/// On the first node's memory.
const EXT4: System = System {
    name: "ext4-dax",
    source: "a file system on the first node's memory, callers copy; instructions of calls of \
             4 KiB as counted under QEMU -icount (ext4-dax: 6 017 and 3 382)",
    layout: Layout::One,
    call_ns: instructions(6017.0, 3382.0),
    ..NONE
};

/// NOVA.
const NOVA: System = System {
    name: "nova",
    source: "files on their maker's node, callers copy, a log entry of 64 bytes for a write; \
             instructions of calls of 4 KiB as counted under QEMU -icount (NOVA: 5 181, 4 646)",
    call_ns: instructions(5181.0, 4646.0),
    record_bytes: 64,
    ..NONE
};

/// From this part of the time on a memory is overloaded. Assumed: nobody says.
const OVERLOADED: f32 = 0.9;

/// Moves readers where there is room, at once.
const NTHREAD: ThreadRule =
    ThreadRule { after: 1, lost: 0.0, costs_ns: 0.0, busy: OVERLOADED, crowd: 1.0, stays_ns: 0.0 };

/// Those that are known, each with what it was published with.
pub const SYSTEMS: [System; 8] = [
    EXT4,
    System {
        name: "ext4-raid0",
        source: "the same on md RAID0 of all nodes' memory, with its stripes of 512 KiB",
        layout: Layout::Stripe(512 << 10),
        ..EXT4
    },
    NOVA,
    System {
        name: "nthread",
        source: "NThread (MSST'20) on NOVA: a reader moves to its data at once, where CPUs are free \
                 and the memory is not overloaded; from 90 % busy on it is (assumed)",
        moves: Moves::Fixed(Some(NTHREAD), None),
        ..NOVA
    },
    System {
        name: "jericho",
        source: "Jericho (MSST'14): slices for each node, a thread moves to its data at the first \
                 access to another node, whatever is there; what a call takes is NOVA's",
        moves: Moves::Fixed(
            Some(ThreadRule { busy: f32::INFINITY, crowd: f32::INFINITY, ..NTHREAD }),
            None,
        ),
        writers_move: true,
        ..NOVA
    },
    System {
        name: "dragonfly",
        source: "Dragonfly (AMGCC'21) on NOVA with NThread: where a memory is overloaded, a file \
                 that is read from another node moves there if its model of a window of 6 s says \
                 so, the files one after the other; from 90 % busy on it is overloaded (assumed)",
        moves: Moves::Fixed(
            Some(NTHREAD),
            Some(DataRule {
                window_ns: WINDOW_NS,
                weigh: Weigh::Window,
                part: 1.0,
                busy: OVERLOADED,
                stays: 0,
                writes_clear: false,
                stay_counts: false,
                balances: false,
                full: OVERLOADED,
            }),
        ),
        extent_bytes: u64::MAX,
        ..NOVA
    },
    System {
        name: "odinfs",
        source: "OdinFS (OSDI'22) as published: 12 workers a node, stripes of 32 KiB, workers are \
                 asked for reads from 32 KiB and for writes from 256 bytes on, each by a ring of \
                 its own (that chance says which one is assumed); one journal under one lock: \
                 4 438 MiB/s of 4 KiB writes by 32 threads are 0.88 us each; what else a call \
                 takes is NOVA's",
        layout: Layout::Stripe(32 << 10),
        rule: Rule::Fixed(asked_from(32 << 10, 256)),
        workers: Some(12),
        own_rings: true,
        piece_bytes: Some(32 << 10),
        serial_ns: [0.0, 880.0],
        ..NOVA
    },
    System {
        name: "nearside",
        source: "the engine's policy for the machine, the first 256 KiB of a file near its maker, \
                 then stripes of 256 KiB, a record of 64 bytes with a write; a call as \
                 docs/performance.md has it, over the bare copy (read_4k, overwrite_4k); threads \
                 and data move when what they have lost comes up to what that costs",
        layout: Layout::Auto(256 << 10),
        rule: Rule::Machine,
        workers: None,
        call_ns: [283.0, 474.0],
        record_bytes: 64,
        moves: Moves::Machine,
        writers_move: true,
        spills: true,
        ..NONE
    },
];

impl Default for System {
    /// None: threads that copy, each near where it is, and nothing else.
    fn default() -> System {
        NONE
    }
}

impl System {
    /// The one of this name.
    pub fn known(name: &str) -> Option<System> {
        SYSTEMS.iter().find(|system| system.name == name).cloned()
    }

    /// What it decides by on this machine.
    pub fn policy(&self, machine: &Machine) -> Policy {
        match self.rule {
            Rule::Callers => Policy::default(),
            Rule::Machine => machine.policy(),
            Rule::Fixed(policy) => policy,
        }
    }

    /// When its threads move.
    pub fn thread_rule(&self, machine: &Machine) -> Option<ThreadRule> {
        match self.moves {
            Moves::None => None,
            Moves::Machine => Some(ThreadRule::weighs(machine.move_thread_ns as f32)),
            Moves::Fixed(thread, _) => thread,
        }
    }

    /// When its data does.
    pub fn data_rule(&self) -> Option<DataRule> {
        match self.moves {
            Moves::None => None,
            Moves::Machine => Some(DataRule::weighs(WINDOW_NS)),
            Moves::Fixed(_, data) => data,
        }
    }

    /// Workers of each node of this machine.
    pub fn workers_on(&self, machine: &Machine) -> u32 {
        self.workers.unwrap_or_else(|| {
            let policy = machine.policy();
            policy.read.workers(machine.cpus).max(policy.write.workers(machine.cpus))
        })
    }
}
