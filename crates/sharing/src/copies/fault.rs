//! Faults that the exploration must notice: each leaves out one thing that the protocol rests on.

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A lease is given while others have copies of its range.
    GrantsOverCopies,
    /// A new service does not know of the copies that there are.
    ForgetsCopies,
    /// A process gets a copy of a range that another one may write.
    FillsLeased,
    /// A copy is filled from what is folded.
    FillsUnfolded,
    /// A copy is filled while a thread of its process is at a write to it.
    FillsLocked,
    /// The bytes of a copy are taken away before it is said to be invalid.
    TakesBytesFirst,
    /// A copy is said to be valid before its bytes are there.
    ValidBeforeBytes,
    /// The word of a copy says whether it is valid, and does not count.
    NoCount,
    /// A reader does not look again after he has copied the bytes.
    NoSecondLook,
    /// A reader does not look whether a thread of his process is at a write.
    NoLock,
    /// A write is put into the copies of its process before its lease was seen open.
    PutsBeforeLook,
    /// A write returns before it is in the copies of its process.
    ReturnsBeforePutting,
    /// A write of which the service says that it happened is not put into the copies.
    NoPutWhenTold,
}
