//! What there is: processes, their lanes and slots, the service, and what is durable.

use super::bounds::{Bounds, HOLDERS, PLACES, Range, SLOTS, WRITES, Wish};
use super::properties::Flaw;
use crate::few::Few;

/// A write: the number of its request and of its process in one.
pub type Write = u8;

/// The write of a process that is its request of this number.
pub fn write_of(holder: usize, request: u8) -> Write {
    request * HOLDERS as u8 + holder as u8
}

/// Whose write this is, and which of his requests.
pub fn of_write(write: Write) -> (usize, u8) {
    (usize::from(write) % HOLDERS, write / HOLDERS as u8)
}

/// The right to write a range, under a generation of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lease {
    /// 0: there is none.
    pub generation: u8,
    /// The range.
    pub range: Range,
}

/// A record in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// The connection that its checksum is seeded with.
    pub seed: u8,
    /// The place that its checksum is seeded with, counted on from lap to lap.
    pub place: u8,
    /// The number of its request.
    pub request: u8,
    /// What it writes.
    pub range: Range,
    /// Of each slot the generation that it relies on, or 0.
    pub named: [u8; SLOTS],
    /// All of it is there.
    pub is_whole: bool,
}

/// What a process is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Doing {
    /// Nothing, with leases or without.
    Idle,
    /// It has stored the record of this request, which may be in its processor's buffer still.
    Stored(u8),
    /// A word was another one when it looked: it asks what became of this request.
    Unsure(u8),
    /// It was killed.
    Dead,
}

/// A process, by the one connection that it has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Holder {
    /// What it is at.
    pub doing: Doing,
    /// The service has a connection to it. A process that lost it may go on nevertheless.
    pub is_connected: bool,
    /// Its leases, as far as it knows.
    pub leases: [Lease; SLOTS],
    /// What the record that it is at names, but the slots whose words it has looked at.
    pub named: [u8; SLOTS],
    /// A store that is in the buffer of its processor.
    pub buffer: Option<Record>,
    /// Its lane, as others see it.
    pub lane: [Option<Record>; PLACES],
    /// The number of its connection.
    pub seed: u8,
    /// Records that it has stored.
    pub stored: u8,
    /// Requests that it has begun, those of earlier connections too.
    pub begun: u8,
}

/// A process that the service has done with, and which does not know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Old {
    /// The request that it is at.
    pub request: u8,
    /// What its record names.
    pub named: [u8; SLOTS],
    /// A store that is in the buffer of its processor.
    pub buffer: Option<Record>,
}

/// How far the service is with a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// There is no lease.
    Free,
    /// It is written down, and its holder does not know.
    Granting,
    /// Its holder has it.
    Held,
    /// He is to give it back, or to lose it.
    Recalled,
    /// Its word is closed.
    Closed,
    /// Its lane was read after that, and what was read is not folded yet.
    Read,
    /// Its lane is folded.
    Folded,
}

/// A slot of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot {
    /// The generation that may write, or 0. Only the service stores it; it outlives the service.
    pub word: u8,
    /// Durable: the last generation.
    pub last: u8,
    /// Durable: the lease.
    pub granted: Lease,
    /// It is written down: always so, without faults.
    pub is_written: bool,
    /// In the service's memory: how far it is.
    pub phase: Phase,
}

/// Somebody waits for leases, for all of them at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ask {
    /// Who.
    pub holder: u8,
    /// Of each slot the range, or 0.
    pub wish: Wish,
}

impl Ask {
    /// All that it wants.
    pub fn range(&self) -> Range {
        self.wish.iter().fold(0, |all, range| all | range)
    }
}

/// Records that the service has copied from a lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Copied {
    /// Whose lane.
    pub holder: u8,
    /// What was there.
    pub records: Few<Record, PLACES>,
    /// What was thought of them, a bit each, where that is done too early.
    pub verdicts: u8,
}

/// A read that the service was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reading {
    /// Of what.
    pub range: Range,
    /// Writes to it that had returned when it began.
    pub before: u16,
}

/// What of the bounds is used up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Spent {
    /// Reads.
    pub reads: u8,
    /// Processes killed.
    pub kills: u8,
    /// Connections lost.
    pub losses: u8,
    /// Deaths of the service.
    pub crashes: u8,
    /// Power cuts.
    pub cuts: u8,
    /// Stores of who is hostile.
    pub forgeries: u8,
}

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The processes.
    pub holders: [Holder; HOLDERS],
    /// Those in whose place they are, if there are any still.
    pub old: [Option<Old>; HOLDERS],
    /// Their slots.
    pub slots: [[Slot; SLOTS]; HOLDERS],
    /// Durable: records of each lane that are folded or skipped.
    pub folded: [u8; HOLDERS],
    /// Durable: the writes, in the order in which everybody sees them.
    pub history: Few<Write, WRITES>,
    /// The service lives.
    pub is_up: bool,
    /// In its memory: who waits, in order of asking.
    pub queue: Few<Ask, { HOLDERS * SLOTS }>,
    /// In its memory: what it has copied and not folded.
    pub copied: Option<Copied>,
    /// A read that it has not answered.
    pub reading: Option<Reading>,
    /// Writes that returned and have not come to the history, a bit each. What is there stays
    /// there, and is before all that comes there later.
    pub acknowledged: u16,
    /// Writes of which their process was told that they did not happen.
    pub refused: u16,
    /// Of each write those to the same bytes that had returned before it began, and have not come
    /// to the history: before it does they must.
    pub before: [u16; WRITES],
    /// What was done wrong in a step.
    pub wrong: Option<Flaw>,
    /// What of the bounds is used up.
    pub spent: Spent,
}

impl Holder {
    pub(super) const NEW: Holder = Holder {
        doing: Doing::Idle,
        is_connected: true,
        leases: [Lease { generation: 0, range: 0 }; SLOTS],
        named: [0; SLOTS],
        buffer: None,
        lane: [None; PLACES],
        seed: 0,
        stored: 0,
        begun: 0,
    };
}

impl State {
    /// Nobody has done anything.
    pub fn new() -> State {
        let slot = Slot {
            word: 0,
            last: 0,
            granted: Lease::default(),
            is_written: false,
            phase: Phase::Free,
        };
        State {
            holders: [Holder::NEW; HOLDERS],
            old: [None; HOLDERS],
            slots: [[slot; SLOTS]; HOLDERS],
            folded: [0; HOLDERS],
            history: Few::default(),
            is_up: true,
            queue: Few::default(),
            copied: None,
            reading: None,
            acknowledged: 0,
            refused: 0,
            before: [0; WRITES],
            wrong: None,
            spent: Spent::default(),
        }
    }

    /// All leases that there are: whose, and which slot.
    pub(super) fn leases(&self) -> impl Iterator<Item = (usize, usize, &Slot)> {
        let slots = self.slots.iter().enumerate().flat_map(|(holder, slots)| {
            slots.iter().enumerate().map(move |(slot, it)| (holder, slot, it))
        });
        slots.filter(|(_, _, slot)| slot.granted.generation != 0)
    }

    /// Whether each of these words is what it is to be.
    pub(super) fn is_open(&self, holder: usize, named: [u8; SLOTS]) -> bool {
        let mut pairs = named.iter().zip(&self.slots[holder]);
        pairs.all(|(named, slot)| *named == 0 || *named == slot.word)
    }

    /// Those of the writes in a set that touch a range.
    pub(super) fn touching(set: u16, range: Range, bounds: &Bounds) -> u16 {
        (0..WRITES as Write)
            .filter(|write| set >> write & 1 == 1 && bounds.range_of(*write) & range != 0)
            .fold(0, |all, write| all | 1 << write)
    }
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}
