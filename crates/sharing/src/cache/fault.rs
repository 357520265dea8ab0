//! Faults that the exploration must notice: each leaves out one thing that the cache rests on.

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Who changes bytes says so when others can see the change.
    TellsLate,
    /// A lease is given while others have pages of its range.
    GrantsOverPages,
    /// Pages are put there for a process while another one has the lease.
    PutsLeased,
    /// Pages are put there from what is folded.
    PutsUnfolded,
    /// What is put there was read before the range was held.
    ReadsBeforeRange,
    /// The count says whether a page is there, and does not count.
    NoCount,
    /// A write under a lease does not change the numbers of its pages.
    NoNumbers,
    /// It changes them when it is in the lane.
    NumbersLate,
    /// What is told is kept although a write was under way when it was asked for.
    KeepsUnderWay,
    /// The numbers are noted when the answer is there.
    NotesLate,
    /// A reader does not look again when it has the bytes.
    NoSecondLook,
    /// A reader looks again at each page for itself.
    LooksPageByPage,
    /// A reader does not look whether its service owns the pool still.
    NoReign,
    /// The next owner changes something before it says that it is another one.
    ReignsLate,
}
