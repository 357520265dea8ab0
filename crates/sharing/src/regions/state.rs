//! What there is: processes and their copies, the service.

use super::fault::Fault;
use crate::few::Few;
use crate::story::{Content, version};

/// Processes.
pub const PROCESSES: usize = 2;
/// Writes, at most: two of each process, and two of the service's door.
pub const WRITES: usize = 2 * PROCESSES + 2;

/// How far is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Commits of each process.
    pub writes: [u8; PROCESSES],
    /// Writes of the service's door.
    pub door_writes: u8,
    /// Loads of each process.
    pub loads: [u8; PROCESSES],
    /// Leases that each process may get.
    pub grants: u8,
    /// Times that the service dies, and another one owns the pool.
    pub crashes: u8,
    /// What is done wrong, if anything.
    pub fault: Option<Fault>,
}

impl Bounds {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// What is wrong with a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flaw {
    /// A load saw what never happened.
    NeverHappened(Content),
    /// A load saw less than what had returned when it began.
    Old(Content),
    /// A load saw less than what the process had seen before.
    Back(Content),
}

/// A record in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// What it holds.
    pub content: Content,
    /// The generation of the lease under which it was stored.
    pub generation: u8,
}

/// What the committing thread is at. But when it is idle, it has the lock of the copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writer {
    /// Nothing.
    Idle,
    /// Its record is in the lane.
    Stored(Content),
    /// Its lease was gone when it looked.
    Unsure(Content),
    /// The commit has happened, and is to go into the copy.
    Happened(Content),
}

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    /// The generation of its lease as far as it knows, or 0.
    pub lease: u8,
    /// The generation that may write, or 0.
    pub word: u8,
    /// Durable: its last generation.
    pub last: u8,
    /// Its lane, from where it is folded.
    pub lane: Few<Record, 2>,
    /// Commits that it has begun.
    pub begun: u8,
    /// Its committing thread.
    pub writer: Writer,
    /// The page of its copy, if it is there.
    pub page: Option<Content>,
    /// Its faulting thread has asked for the page, with the lock of the copy.
    pub asks: bool,
    /// Loads that are over.
    pub loads: u8,
    /// How much of what happened it has seen by loads.
    pub seen: u8,
    /// Its copy is of a service that owns the pool.
    pub is_attached: bool,
}

/// What the service is at with the lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The service is dead.
    Down,
    /// Nobody has the lease.
    Free,
    /// It is this one's, and he does not know.
    Entered(usize),
    /// The same; all pages are gone.
    Cleared(usize),
    /// This one has it.
    Held(usize),
    /// Its word is closed.
    Closed(usize),
    /// Its lane is folded.
    Folded(usize),
}

/// Who has the range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RangeUse {
    /// Nobody.
    Free,
    /// The door, whose write can be seen.
    Door,
    /// The same; it has returned too early.
    DoorReturned,
}

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The processes.
    pub processes: [Process; PROCESSES],
    /// The service.
    pub phase: Phase,
    /// Who has the range.
    pub range: RangeUse,
    /// A process for which the page is brought: nobody else gets a lease. With what it would have
    /// been before.
    pub brings: Option<(usize, Content)>,
    /// Durable: who has the lease.
    pub granted: Option<usize>,
    /// Durable: the writes, in their order.
    pub history: Few<Content, WRITES>,
    /// How much of what happened had returned.
    pub returned: u8,
    /// Writes of the door that have begun.
    pub door_begun: u8,
    /// Times that the service died.
    pub crashes: u8,
    /// What was done wrong in a step.
    pub wrong: Option<Flaw>,
}

impl State {
    /// Nobody has done anything.
    pub fn new() -> State {
        let process = Process {
            lease: 0,
            word: 0,
            last: 0,
            lane: Few::default(),
            begun: 0,
            writer: Writer::Idle,
            page: None,
            asks: false,
            loads: 0,
            seen: 0,
            is_attached: true,
        };
        State {
            processes: [process; PROCESSES],
            phase: Phase::Free,
            range: RangeUse::Free,
            brings: None,
            granted: None,
            history: Few::default(),
            returned: 0,
            door_begun: 0,
            crashes: 0,
            wrong: None,
        }
    }

    /// The writes that have happened, in their order: those in the history, and those in the lane
    /// of who has the lease.
    pub fn happened(&self) -> Few<Content, { 2 * WRITES }> {
        let lease = self.granted.map(|number| &self.processes[number]);
        let pending = lease.into_iter().flat_map(|process| {
            process.lane.iter().filter(|record| record.generation == process.last)
        });
        self.history.iter().copied().chain(pending.map(|record| record.content)).collect()
    }

    /// A write returns.
    pub(super) fn returns(&mut self, content: Content) {
        let version = version(&self.happened(), content);
        self.returned = self.returned.max(version.unwrap_or(0));
    }

    /// Folds the lane of this one.
    pub(super) fn fold(&mut self, number: usize, bounds: &Bounds) {
        let Process { lane, last, .. } = self.processes[number];
        let is_granted = self.granted == Some(number);
        let records = lane.iter().filter(|record| is_granted && record.generation == last);
        let mut first = None;
        for record in records {
            self.history.push(record.content);
            first.get_or_insert(record.content);
        }
        // the others may have come behind the first one was read
        let page = &mut self.processes[number].page;
        if bounds.has(Fault::TellsHolderOfFolds) && page.is_some() && first.is_some() {
            *page = first;
        }
        self.processes[number].lane = Few::default();
    }

    /// The bytes as the service has them.
    pub(super) fn bytes(&self) -> Content {
        self.history.last().copied().unwrap_or(0)
    }
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}
