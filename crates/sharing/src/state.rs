//! What there is: processes, their lanes, the words that they share with the service, the service,
//! and what is durable.

use crate::fault::Fault;

/// Processes that want the same range.
pub const HOLDERS: usize = 2;
/// A write of a process: its number among all.
pub type Write = u8;

/// How far is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Writes of each process.
    pub writes: u8,
    /// Times that each process may get the lease.
    pub grants: u8,
    /// Processes that may die.
    pub deaths: u8,
    /// Times that the service may die and come again.
    pub crashes: u8,
    /// What is done wrong, if anything.
    pub fault: Option<Fault>,
}

impl Bounds {
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// A record in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// What it holds.
    pub write: Write,
    /// The generation of the lease under which it was stored.
    pub generation: u8,
}

/// What a process is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Doing {
    /// It has no lease, and asked for none.
    Idle,
    /// It asked for the lease.
    Waiting,
    /// It has the lease, as far as it knows.
    Holding,
    /// It has stored a record, which may be in the buffer of its processor still.
    Stored(Write),
    /// Others see its record; it has not looked whether it still has its lease.
    Fenced(Write),
    /// It had lost its lease when it looked: it asks what became of its write.
    Unsure(Write),
    /// It was killed.
    Dead,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Holder {
    /// What it is at.
    pub doing: Doing,
    /// The generation of its lease, when it has or had one.
    pub generation: u8,
    /// A store that is in the buffer of its processor.
    pub buffer: Option<Record>,
    /// Its lane, as others see it.
    pub lane: Vec<Record>,
    /// Writes that it has begun.
    pub begun: u8,
}

/// What the service has in mind, and what it closes just now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// It is dead.
    Down,
    /// Nobody has the lease.
    Free,
    /// The lease of this one is written down, and he does not know.
    Granting(usize),
    /// This one has it.
    Held(usize),
    /// This one is to give it back, or to lose it.
    Recalled(usize),
    /// His generation is closed.
    Closed(usize),
    /// His lane is folded.
    Folded(usize),
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The processes.
    pub holders: [Holder; HOLDERS],
    /// Of each the word that says which generation may write, which only the service stores; 0:
    /// none. It outlives the service.
    pub words: [u8; HOLDERS],
    /// The service.
    pub service: Service,
    /// Durable: who has the lease, and its generation.
    pub granted: Option<(usize, u8)>,
    /// Durable: the last generation of each.
    pub generations: [u8; HOLDERS],
    /// Durable: records of each lane that are folded.
    pub folded: [usize; HOLDERS],
    /// Durable: the writes, in the order in which everybody sees them.
    pub history: Vec<Write>,
    /// Writes that returned, a bit each.
    pub acknowledged: u16,
    /// Writes of which their process was told that they did not happen.
    pub refused: u16,
    /// Of each write, those that had returned before it began.
    pub before: Vec<u16>,
    /// Somebody got the lease and did not see all that had returned.
    pub is_stale: bool,
    /// Processes that died, and times that the service did.
    pub deaths: u8,
    /// See above.
    pub crashes: u8,
}

impl State {
    /// Nobody has done anything.
    pub fn new(bounds: &Bounds) -> State {
        let holder =
            Holder { doing: Doing::Idle, generation: 0, buffer: None, lane: Vec::new(), begun: 0 };
        State {
            holders: [holder.clone(), holder],
            words: [0; HOLDERS],
            service: Service::Free,
            granted: None,
            generations: [0; HOLDERS],
            folded: [0; HOLDERS],
            history: Vec::new(),
            acknowledged: 0,
            refused: 0,
            before: vec![0; HOLDERS * usize::from(bounds.writes)],
            is_stale: false,
            deaths: 0,
            crashes: 0,
        }
    }

    /// Writes that will be in the history whatever happens: they are in the lane of who has the
    /// lease, by what is written down, and under its generation.
    pub fn pending(&self) -> Vec<Write> {
        let Some((holder, generation)) = self.granted else { return Vec::new() };
        let rest = &self.holders[holder].lane[self.folded[holder]..];
        rest.iter().filter(|it| it.generation == generation).map(|it| it.write).collect()
    }
}
