//! Faults that the exploration must notice: each leaves out one thing that the rule of kernel
//! pages rests on.

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No base is kept: a notice alone is to keep pages coherent.
    NoBases,
    /// A thread that serves requests sends the notices.
    ServerSendsNotices,
    /// A call holds the range while it waits for notices.
    HoldsRangeWhileWaiting,
    /// A READ waits for notices of its page.
    ReadWaits,
    /// A write-back waits for notices.
    WriteBackWaits,
    /// A buffered write waits for notices although another call waits for one to its kernel.
    LockedWriteWaits,
    /// A truncation waits for notices although another call waits for one to its kernel.
    CutWaits,
    /// A call does not wait for notices.
    ReturnsEarly,
    /// A page is marked as given after it was read.
    MarksLate,
    /// A page is marked as given, and read later, with the range released between.
    MarksEarly,
    /// A call does not wait for a READ that is served beside its change.
    ReadBesideNotWaitedFor,
    /// A buffered write does not wait for a READ of its own kernel that is served beside it.
    OwnReadBesideNotWaitedFor,
    /// A READ that is served beside a change makes the server owe no notice.
    ReadBesideNotNotified,
    /// A READ that is served beside a cut takes no notice of it.
    ReadBesideKeepsCut,
    /// A READ leaves the base as it is.
    ReadKeepsBase,
    /// The answer to a notice ends the base although the page was given or changed since.
    OldNoticeEndsBase,
    /// A second change replaces the base.
    SecondChangeReplacesBase,
    /// A write-back writes the whole page although there is a base.
    WritesWholePage,
    /// A write-back writes behind the end of the file.
    WritesBehindEnd,
    /// A write-back is no change for the pages of others.
    WriteBackNotCounted,
    /// A write-back does not change the base.
    BaseNotUpdated,
    /// A write-back ends that zeros behind a cut count as what the kernel may have.
    WriteBackEndsZeros,
    /// A write-back does not change the base where it is cut off at the end of the file.
    CutOffNotInBase,
    /// A write-back that is cut off at the end of the file makes the server owe no notice.
    CutOffNotNotified,
    /// A direct write is no change for its own kernel's pages.
    DirectNotCounted,
    /// A buffered write of a kernel is not put into its own base.
    WriteNotInBase,
    /// A buffered write is a change for its own kernel's pages as it is for others.
    WriteCountsAsOthers,
    /// A buffered write of a whole page does not mark it as given.
    WholeWriteNotGiven,
    /// A buffered write is taken to be in the page also where a notice may have dropped that.
    NoDoubt,
    /// The same, but where the kernel sent the READ of the page behind the write.
    DoubtByNumbers,
    /// A buffered write to a page in doubt does not wait until its own kernel has dropped that.
    DoubtedWriteReturns,
    /// A buffered write to bytes of which the kernel may make zeros does not.
    ZeroedWriteReturns,
    /// A buffered write is put into its own kernel's base only behind the change.
    WriteInBaseLate,
    /// A truncation keeps no base.
    CutKeepsNoBase,
    /// A truncation does not count zeros behind the end as what kernels may have.
    CutWithoutZeros,
    /// A truncation is no change for its own kernel's pages.
    OwnCutNotCounted,
    /// Bases are lost when the server is killed.
    BasesLost,
    /// The next server takes no page as given.
    MarksLost,
    /// The next server takes no page as in doubt.
    DoubtLost,
    /// The next server sends no notices.
    NoticesLost,
    /// A change is made before the bases are kept.
    ChangesBeforeBase,
    /// A write-back is put into the base before it is stored.
    BaseBeforeStore,
    /// A write-back that is sent again, and was stored, is not put into the base.
    SentAgainNotInBase,
    /// A write-back that is sent again, and was stored, is stored again.
    StoredTwice,
}
