//! How far is explored.

use super::fault::Fault;
use super::state::{Write, of_write};

/// Processes, at most.
pub const HOLDERS: usize = 3;
/// Slots of each.
pub const SLOTS: usize = 2;
/// Records that a lane has room for, at most.
pub const PLACES: usize = 2;
/// Writes, at most: three of each process.
pub const WRITES: usize = 3 * HOLDERS;

/// A range of the only file: a bit for each piece of it.
pub type Range = u8;
/// What is asked for at once: of each slot the range, or 0.
pub type Wish = [Range; SLOTS];

/// How far is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// What each process may ask for.
    pub wishes: [&'static [Wish]; HOLDERS],
    /// What each process writes, one after the other.
    pub writes: [&'static [Range]; HOLDERS],
    /// Leases that each slot may get.
    pub grants: u8,
    /// Records that a lane has room for.
    pub places: u8,
    /// Reads by somebody else.
    pub reads: u8,
    /// Processes that are killed.
    pub kills: u8,
    /// Processes that lose their connection and go on.
    pub losses: u8,
    /// Times that the service dies and comes again.
    pub crashes: u8,
    /// Power cuts.
    pub cuts: u8,
    /// Stores of the first process, which is hostile if there are any.
    pub forgeries: u8,
    /// To read a lane and to fold what was read are two steps, with others in between.
    pub is_slow: bool,
    /// What is done wrong, if anything.
    pub fault: Option<Fault>,
}

impl Bounds {
    /// Nobody, who does nothing.
    pub const NONE: Bounds = Bounds {
        wishes: [&[]; HOLDERS],
        writes: [&[]; HOLDERS],
        grants: 0,
        places: 2,
        reads: 0,
        kills: 0,
        losses: 0,
        crashes: 0,
        cuts: 0,
        forgeries: 0,
        is_slow: false,
        fault: None,
    };

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Whether this process is the hostile one.
    pub fn is_hostile(&self, holder: usize) -> bool {
        self.forgeries > 0 && holder == 0
    }

    /// What this write is to write, 0 if there is no such write.
    pub fn range_of(&self, write: Write) -> Range {
        let (holder, request) = of_write(write);
        self.writes[holder].get(usize::from(request)).copied().unwrap_or(0)
    }
}
