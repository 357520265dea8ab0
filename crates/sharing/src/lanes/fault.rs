//! Faults that the exploration must notice: each leaves out one thing that the protocol rests on.

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A holder looks at its words before its record is where others see it.
    NoFence,
    /// What others see of a record when it returns is not durable.
    NoFlush,
    /// A holder looks only at the first of the words that its record relies on.
    LooksAtOneWord,
    /// A holder stores a record where one is that may not be folded yet.
    Overwrites,
    /// The service reads a lane, and closes the word after that.
    ReadsBeforeClosing,
    /// The service reads a record again after it has judged it.
    ReadsTwice,
    /// The service judges a record when it reads it, not when it folds it.
    JudgesEarly,
    /// Records are folded whatever generation they were stored under.
    AnyGeneration,
    /// Records are folded if one of the leases is there that they name.
    OneLeaseIsEnough,
    /// Records are folded whatever range they write.
    AnyRange,
    /// Records are folded whether or not their request has happened already.
    AnyRequest,
    /// Records are folded whether or not all of them is there.
    NoChecksum,
    /// The checksum of a record does not tell the lap of its lane.
    NoLap,
    /// The checksum of a record does not tell the connection.
    NoSeed,
    /// When a lease is recalled only records that name it are folded; others are skipped.
    FoldsOneLease,
    /// How far a lane is folded is forgotten with the service.
    ForgetsFolded,
    /// What is leased is forgotten with the service.
    ForgetsLeases,
    /// A holder learns of its lease before the service has written it down.
    TellsBeforeWriting,
    /// A lease is given away before the lane of the last holder is folded.
    FreesBeforeFolding,
    /// Who asks what became of his write is answered before his lane is folded.
    AnswersEarly,
    /// A read is answered from what is folded.
    ReadsUnfolded,
    /// Leases are given to several if their ranges are not the same, even where they overlap.
    GivesOverlapping,
    /// Who asked first may get his lease later.
    OutOfTurn,
    /// The service waits until a lease is given back.
    WaitsForGivingBack,
    /// A recall closes all words of its holder.
    ClosesAll,
    /// Generations begin anew with a new connection.
    GenerationsAnew,
    /// A new connection gets the lane of the one before, which may have stores under way.
    LaneGivenOn,
}
