//! What there is: processes with three threads each, their copies of the only range, the service.

use super::fault::Fault;
use crate::few::Few;
use crate::story::{self, Content, Story};

/// Processes.
pub const PROCESSES: usize = 2;
/// Writes, at most: two of each process.
pub const WRITES: usize = 2 * PROCESSES;

/// What memory holds from which the bytes were taken away.
pub const HOLE: Content = Content::MAX;

/// How far is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Writes of each process.
    pub writes: [u8; PROCESSES],
    /// Reads of each process.
    pub reads: [u8; PROCESSES],
    /// Times that the copy of each process may be filled.
    pub fills: [u8; PROCESSES],
    /// Leases that each process may get.
    pub grants: u8,
    /// Processes that are killed.
    pub kills: u8,
    /// Times that the service dies and comes again.
    pub crashes: u8,
    /// What is done wrong, if anything.
    pub fault: Option<Fault>,
}

impl Bounds {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// A record in a lane, which others see and which is durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// What it holds.
    pub content: Content,
    /// The generation of the lease under which it was stored.
    pub generation: u8,
}

/// What the writing thread of a process is at. It has the lock of the copy but when it is idle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writer {
    /// Nothing.
    Idle,
    /// Its record is in the lane.
    Stored(Content),
    /// Its lease was gone when it looked: it asks what became of its write.
    Unsure(Content),
    /// The write has happened.
    Happened(Content),
    /// Half of the write is in the copy of its process.
    Half(Content),
}

/// What the reading thread of a process is at. `floor`: how far the history had been seen by
/// anybody when the read began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reader {
    /// Nothing.
    Idle,
    /// It has asked the service for the bytes.
    Asking {
        /// See above.
        floor: u8,
    },
    /// It found the copy valid, with this count, and no write under way behind this many.
    Copying {
        /// See above.
        floor: u8,
        /// What it found.
        validity: u8,
        /// Writes of its process that had begun.
        begun: u8,
        /// The halves that it has copied.
        halves: Few<Content, 2>,
    },
}

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    /// It was not killed.
    pub is_alive: bool,
    /// The generation of its lease as far as it knows, or 0.
    pub lease: u8,
    /// Its writing thread.
    pub writer: Writer,
    /// Its reading thread.
    pub reader: Reader,
    /// A third thread has the lock of the copy, and waits until the service fills it.
    pub is_filling: bool,
    /// Its lane, from where it is folded.
    pub lane: Few<Record, 2>,
    /// Its copy of the range, in two halves.
    pub copy: [Content; 2],
    /// Counts how often the copy became valid or invalid: it is valid when this is odd. Only the
    /// service stores it; it outlives the service.
    pub validity: u8,
    /// Writes that it has begun.
    pub begun: u8,
    /// Reads that are over.
    pub reads: u8,
    /// Times that its copy was filled.
    pub fills: u8,
    /// The generation that may write, or 0. Only the service stores it; it outlives the service.
    pub word: u8,
    /// Durable: its last generation.
    pub last: u8,
}

/// What the service is at with the lease. What else is between one lease and the next one is in the
/// model of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The service is dead.
    Down,
    /// Nobody has the lease.
    Free,
    /// This one is to get it: nobody else gets a copy any more, and those that there are go.
    Clearing(usize),
    /// This one has it.
    Held(usize),
    /// Its word is closed.
    Closed(usize),
}

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The processes.
    pub processes: [Process; PROCESSES],
    /// The service.
    pub phase: Phase,
    /// In its memory: who waits for the lease.
    pub queue: Few<u8, PROCESSES>,
    /// Durable: who has the lease.
    pub granted: Option<usize>,
    /// What has happened, and what was seen of it.
    pub story: Story<WRITES>,
    /// Copies that the service does not know of, a bit each: none, without faults.
    pub unknown: u8,
    /// Processes that were killed.
    pub kills: u8,
    /// Times that the service died.
    pub crashes: u8,
}

impl State {
    /// Nobody has done anything.
    pub fn new() -> State {
        let process = Process {
            is_alive: true,
            lease: 0,
            writer: Writer::Idle,
            reader: Reader::Idle,
            is_filling: false,
            lane: Few::default(),
            copy: [HOLE; 2],
            validity: 0,
            begun: 0,
            reads: 0,
            fills: 0,
            word: 0,
            last: 0,
        };
        State {
            processes: [process; PROCESSES],
            phase: Phase::Free,
            queue: Few::default(),
            granted: None,
            story: Story::default(),
            unknown: 0,
            kills: 0,
            crashes: 0,
        }
    }

    /// The writes that have happened, in their order: those in the history, and those in the lane
    /// of who has the lease, which are sure to come there.
    pub fn happened(&self) -> Few<Content, { 2 * WRITES }> {
        let lease = self.granted.map(|number| &self.processes[number]);
        let pending = lease.into_iter().flat_map(|process| {
            process.lane.iter().filter(|record| record.generation == process.last)
        });
        self.story.history.iter().copied().chain(pending.map(|record| record.content)).collect()
    }

    /// How much of the history one has seen who saw this.
    pub fn version(&self, content: Content) -> Option<u8> {
        story::version(&self.happened(), content)
    }

    /// Folds the lane of this one.
    pub(super) fn fold(&mut self, number: usize) {
        let Process { lane, last, .. } = self.processes[number];
        let is_granted = self.granted == Some(number);
        for record in lane.iter().filter(|record| is_granted && record.generation == last) {
            self.story.push(record.content);
        }
        self.processes[number].lane = Few::default();
    }
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}

impl Process {
    /// A thread is at a write: nobody is to look at the copy, or to fill it.
    pub(super) fn is_locked(&self, bounds: &Bounds) -> bool {
        match self.writer {
            Writer::Idle => false,
            Writer::Happened(_) | Writer::Half(_) => !bounds.has(Fault::ReturnsBeforePutting),
            Writer::Stored(_) | Writer::Unsure(_) => true,
        }
    }

    /// The copy may be used.
    pub fn is_valid(&self) -> bool {
        self.validity % 2 == 1
    }
}
