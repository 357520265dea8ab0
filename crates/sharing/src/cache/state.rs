//! What there is: processes with three threads each, their memory, the service.

use super::fault::Fault;
use crate::few::Few;
use crate::story::{Content, Story};

/// Processes.
pub const PROCESSES: usize = 2;
/// Pages of the range.
pub const PAGES: usize = 2;
/// Writes, at most: two of each process, and two of the service's door.
pub const WRITES: usize = 2 * PROCESSES + 2;
/// What a place holds in which nothing was put so far.
pub const NOTHING: Content = Content::MAX;

/// How far is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Writes of each process.
    pub writes: [u8; PROCESSES],
    /// Writes of the service's door.
    pub door_writes: u8,
    /// Reads of the service's door.
    pub door_reads: u8,
    /// Reads of each process from its cache.
    pub reads: [u8; PROCESSES],
    /// Reads of each process by asking.
    pub asks: [u8; PROCESSES],
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

/// A record in a lane, which others see and which is durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// What it holds.
    pub content: Content,
    /// The generation of the lease under which it was stored.
    pub generation: u8,
}

/// What the writing thread of a process is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writer {
    /// Nothing.
    Idle,
    /// It has changed the numbers of so many pages.
    Marking(Content, usize),
    /// Its record is in the lane.
    Stored(Content),
    /// Its lease was gone when it looked: it asks what became of its write.
    Unsure(Content),
}

/// What is known of a page in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Told {
    /// The count of its place.
    pub count: u8,
    /// The page's number, before it was asked for.
    pub number: u8,
}

/// What the thread that reads the cache is at. `floor`: how far the history had been seen by
/// anybody when the read began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reader {
    /// Nothing.
    Idle,
    /// It looks at one page after the other, and loads it where it is as told.
    Loading {
        /// See above.
        floor: u8,
        /// What it goes by: of each page what was kept when it looked at it first.
        told: Few<Told, PAGES>,
        /// What it has loaded.
        loaded: Few<Content, PAGES>,
    },
    /// It has all bytes, and looks again.
    LookingAgain {
        /// See above.
        floor: u8,
        /// What it goes by.
        told: Few<Told, PAGES>,
        /// What it has loaded.
        loaded: [Content; PAGES],
        /// Pages that it has looked at again.
        looked: usize,
    },
}

/// What the thread that asks is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Asker {
    /// Nothing.
    Idle,
    /// It has asked.
    Asked {
        /// See [`Reader`].
        floor: u8,
        /// The numbers of the pages, but where a write was under way.
        numbers: Option<[u8; PAGES]>,
    },
    /// The service serves it.
    Served {
        /// See [`Reader`].
        floor: u8,
        /// As asked.
        numbers: Option<[u8; PAGES]>,
        /// The bytes before the range was held.
        before: Content,
    },
    /// The answer is there: the bytes, and the counts of where they are.
    Answered {
        /// See [`Reader`].
        floor: u8,
        /// As asked.
        numbers: Option<[u8; PAGES]>,
        /// The bytes.
        content: Content,
        /// The counts; none, where they were not put there.
        counts: Option<[u8; PAGES]>,
    },
}

/// A process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    /// The generation of its lease as far as it knows, or 0.
    pub lease: u8,
    /// The generation that may write, or 0. Only the service stores it; it outlives the service.
    pub word: u8,
    /// Durable: its last generation.
    pub last: u8,
    /// Its lane, from where it is folded.
    pub lane: Few<Record, 2>,
    /// Writes that it has begun.
    pub begun: u8,
    /// Its writing thread.
    pub writer: Writer,
    /// Of each page, writes that have begun; and whether one is under way.
    pub numbers: [u8; PAGES],
    /// Whether one is under way.
    pub under_way: [bool; PAGES],
    /// Reads from the cache that are over, or were given up.
    pub reads: u8,
    /// The thread that reads it.
    pub reader: Reader,
    /// Reads by asking.
    pub asks: u8,
    /// The thread that asks.
    pub asker: Asker,
    /// What it was told of each page.
    pub told: [Option<Told>; PAGES],
    /// The memory: of each page a count, odd where it is there.
    pub counts: [u8; PAGES],
    /// And its bytes.
    pub bytes: [Content; PAGES],
    /// The service that stores them owns the pool, as far as its word says.
    pub is_ruled: bool,
    /// Its service is this one, or the last one before it.
    pub is_attached: bool,
}

/// What the service is at with the lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The service is dead.
    Down,
    /// Nobody has the lease.
    Free,
    /// It is this one's, and he does not know. So many pages were taken away, of all processes.
    Clearing(usize, usize),
    /// This one has it.
    Held(usize),
    /// Its word is closed.
    Closed(usize),
    /// Its lane is folded. So many pages were taken away.
    Ending(usize, usize),
}

/// Who has the range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RangeUse {
    /// Nobody.
    Free,
    /// The door, which has told so many pages of its change.
    Door(usize),
    /// The same; the change can be seen.
    DoorPublished(usize),
    /// Who puts pages there for this process: so many are there.
    Putting {
        /// Which.
        number: usize,
        /// The bytes.
        content: Content,
        /// Steps that were taken: three for each page.
        done: usize,
    },
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
    /// A process whose lane was folded for its read: nobody else gets the lease meanwhile.
    pub serving: Option<usize>,
    /// Durable: who has the lease.
    pub granted: Option<usize>,
    /// What has happened, and what was seen of it.
    pub story: Story<WRITES>,
    /// Writes of the door that have begun.
    pub door_begun: u8,
    /// Reads of the door that are over.
    pub door_reads: u8,
    /// Times that the service died.
    pub crashes: u8,
    /// The owner has not said so far that it is another one.
    pub is_unsaid: bool,
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
            numbers: [0; PAGES],
            under_way: [false; PAGES],
            reads: 0,
            reader: Reader::Idle,
            asks: 0,
            asker: Asker::Idle,
            told: [None; PAGES],
            counts: [0; PAGES],
            bytes: [NOTHING; PAGES],
            is_ruled: true,
            is_attached: true,
        };
        State {
            processes: [process; PROCESSES],
            phase: Phase::Free,
            range: RangeUse::Free,
            serving: None,
            granted: None,
            story: Story::default(),
            door_begun: 0,
            door_reads: 0,
            crashes: 0,
            is_unsaid: false,
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
