//! Faults that the exploration must notice: each leaves out one thing that the protocol rests on.

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A holder looks at its generation before its record is where others see it.
    NoFence,
    /// The service reads a lane, and closes its generation after that.
    ReadsBeforeClosing,
    /// Records are folded whatever generation they were stored under.
    AnyGeneration,
    /// A holder learns of its lease before the service has written it down.
    TellsBeforeWriting,
    /// A lease is given away before the lane of the last holder is folded.
    FreesBeforeFolding,
    /// How far a lane is folded is forgotten with the service.
    ForgetsFolded,
    /// Who was fenced is told that his write did not happen, before his lane is read.
    AnswersEarly,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 7] = [
        Fault::NoFence,
        Fault::ReadsBeforeClosing,
        Fault::AnyGeneration,
        Fault::TellsBeforeWriting,
        Fault::FreesBeforeFolding,
        Fault::ForgetsFolded,
        Fault::AnswersEarly,
    ];
}
