//! Faults that the exploration must notice: each leaves out one thing that regions rest on.

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A lease is given while others have the page.
    GrantsOverPages,
    /// A lease ends, and its holder keeps the page.
    KeepsPageAtTheEnd,
    /// The page is brought for a process while another one has the lease.
    BringsLeased,
    /// It is brought from what is folded.
    BringsUnfolded,
    /// It is brought as it was before the range was held.
    BringsOld,
    /// It is brought while a thread of the process is at a commit.
    BringsLocked,
    /// What is folded is stored into the copy of who committed it.
    TellsHolderOfFolds,
    /// A commit is stored into the copy before its lease was seen open.
    StoresBeforeLook,
    /// A commit returns before it is in the copy.
    ReturnsBeforeStoring,
    /// A commit of which the service says that it happened leaves the copy as it is, and the lease
    /// that ended leaves the page.
    NoStoreWhenTold,
    /// The door's write returns before it is in the copies.
    DoorReturnsEarly,
    /// A process that hears that its service died goes on to load from the last one's copy.
    ShowsOn,
}
