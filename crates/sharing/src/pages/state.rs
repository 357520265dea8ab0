//! The state: a file, two kernels with cached pages of it, and what the server notes about them.

use super::base::PageBase;
use super::flaw::Flaw;
use crate::few::Few;

/// Kernels, each with a mount of the file.
pub const KERNELS: usize = 2;
/// Pages of the file.
pub const PAGES: usize = 2;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 2;
/// Bytes of the file, at first.
pub const FILE_BYTES: usize = PAGES * PAGE_BYTES;
/// Values that a byte of the file has one after the other, at most.
pub const VALUES: usize = 10;

/// The value of a byte: 0 behind the end and in holes, 1 at first, else the number of a change.
pub type Byte = u8;
/// What a byte is at first.
pub const FIRST: Byte = 1;
/// The bytes of a page.
pub type Image = [Byte; PAGE_BYTES];

/// A door through which the file is changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Door {
    /// A kernel.
    Kernel(usize),
    /// The library.
    Library,
}

/// A READ request of a page. The page is locked until the answer is in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Read {
    /// None.
    None,
    /// Sent. `is_behind_write`: the kernel had sent a WRITE to the page before, unanswered so far.
    Sent {
        /// See above.
        is_behind_write: bool,
    },
    /// A fault: the server has marked the page as given, and has not read it.
    Marked,
    /// A fault: the server has read these bytes, and has not marked the page as given.
    Loaded(Image),
    /// The server could not take the range, and has noted that the READ is under way.
    Beside,
    /// The same, and it has read these bytes, when the file had this size.
    ReadBeside(Image, usize),
    /// Answered with these bytes, when the file had this size.
    Answered(Image, usize),
}

/// The bytes of a page that its write-back carries: as many as lie before the end that the kernel
/// knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Snapshot {
    /// All bytes of the page.
    pub bytes: Image,
    /// How many are sent.
    pub length: u8,
}

/// A write-back of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteBack {
    /// None.
    None,
    /// The kernel sends it when its truncation is over.
    Queued(Snapshot),
    /// Sent. `is_stored`: a server that was killed had stored it in the file.
    Sent {
        /// The bytes.
        snapshot: Snapshot,
        /// See above.
        is_stored: bool,
    },
    /// Half of the server's work is done: it has the range, and may be killed.
    Half(Snapshot),
    /// Answered.
    Answered,
}

/// A page of a kernel's cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Page {
    /// It can be loaded from.
    pub is_cached: bool,
    /// A mapping stored to it since it was last written back.
    pub is_dirty: bool,
    /// Its bytes.
    pub bytes: Image,
    /// The READ under way.
    pub read: Read,
    /// The write-back under way.
    pub write_back: WriteBack,
}

/// A page that is not there.
pub(super) const NO_PAGE: Page = Page {
    is_cached: false,
    is_dirty: false,
    bytes: [0; PAGE_BYTES],
    read: Read::None,
    write_back: WriteBack::None,
};

/// What a call changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// `write(2)` of one byte through the cache.
    Write(usize),
    /// `write(2)` of a whole page through the cache.
    WriteWhole(usize),
    /// A write of one byte past the caches.
    Direct(usize),
    /// A truncation to this size.
    Cut(usize),
}

impl Change {
    /// The page that a buffered write changes.
    pub(super) fn buffered_page(self) -> Option<usize> {
        match self {
            Change::Write(byte) => Some(byte / PAGE_BYTES),
            Change::WriteWhole(page) => Some(page),
            Change::Direct(_) | Change::Cut(_) => None,
        }
    }

    /// The bytes that it writes.
    pub(super) fn bytes(self) -> std::ops::Range<usize> {
        match self {
            Change::Write(byte) | Change::Direct(byte) => byte..byte + 1,
            Change::WriteWhole(page) => page * PAGE_BYTES..(page + 1) * PAGE_BYTES,
            Change::Cut(_) => 0..0,
        }
    }

    /// The bytes of a file of this size that it changes: those it writes, those it cuts off, and
    /// those that come into the file.
    pub(super) fn changed(self, size: usize) -> std::ops::Range<usize> {
        match self {
            Change::Cut(end) => end.min(size)..end.max(size),
            _ => self.bytes().start.min(size)..self.bytes().end,
        }
    }
}

/// Notices that a call waits for: a bit for each page of each kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Waits {
    /// Of these it waits for a READ that was under way beside its change.
    pub fills: u8,
    /// Of these it waits for the next notice to be sent.
    pub next: u8,
    /// Of these it waits for the answer to the notice that was sent last.
    pub sent: u8,
}

impl Waits {
    /// For these and those.
    pub(super) fn and(self, other: Waits) -> Waits {
        Waits {
            fills: self.fills | other.fills,
            next: self.next | other.next,
            sent: self.sent | other.sent,
        }
    }
}

/// How far a call is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The bytes are in the cached page, and the request is not sent.
    Filled,
    /// The request is sent.
    Sent,
    /// The same, and a server that was killed had made the change.
    SentAgain,
    /// The server has kept the bases, has the range, and may be killed. The notices that the call
    /// will wait for.
    Kept(Waits),
    /// The file is changed, and what its own kernel has for sure is not in the base so far.
    Changed(Waits),
    /// The file is changed, and the call waits for notices.
    Waits(Waits),
    /// The call is answered. `is_seen`: all notices that it had to wait for were.
    Answered {
        /// See above.
        is_seen: bool,
    },
    /// A truncation has its answer: the kernel knows the size. `is_cut`: no page has bytes behind
    /// it any more.
    Cutting {
        /// See above.
        is_cut: bool,
    },
}

/// A call that changes the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// What it does.
    pub change: Change,
    /// The value that it writes.
    pub value: Byte,
    /// How far it is.
    pub phase: Phase,
    /// A page is locked until the answer: the kernel had not cached it, and part of it is written.
    pub is_locking: bool,
    /// A READ of the page that the kernel sent later was served before.
    pub is_passed: bool,
    /// The caller's own pages may be behind its change when it returns.
    pub is_in_doubt: bool,
    /// Of each byte that was changed how many values it had when it was.
    pub versions: [u8; FILE_BYTES],
}

/// A notice that a kernel is at: it drops a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Invalidation {
    /// None.
    None,
    /// It waits for the lock of this page and the end of its write-back.
    Waiting(usize),
    /// It has the lock, and waits until the page is written back.
    Laundering(usize),
    /// The page is gone, and the server is told.
    Done(usize),
}

impl Invalidation {
    /// The page.
    pub fn page(self) -> Option<usize> {
        match self {
            Invalidation::None => None,
            Invalidation::Waiting(page)
            | Invalidation::Laundering(page)
            | Invalidation::Done(page) => Some(page),
        }
    }
}

/// What a kernel gave rise to so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counts {
    /// Faults of pages.
    pub reads: u8,
    /// Stores by a mapping.
    pub stores: u8,
    /// Stores of what was there before the kernel's own write.
    pub stores_again: u8,
    /// `write(2)` of a byte.
    pub writes: u8,
    /// `write(2)` of a page.
    pub whole_writes: u8,
    /// Direct writes.
    pub directs: u8,
    /// Truncations.
    pub cuts: u8,
    /// Pages dropped for their memory.
    pub evictions: u8,
    /// GETATTRs.
    pub size_asks: u8,
}

/// A kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    /// The size of the file as it knows it.
    pub size: usize,
    /// Its cached pages.
    pub pages: [Page; PAGES],
    /// The call that has the inode's lock: a buffered write or a truncation.
    pub call: Option<Call>,
    /// An asynchronous direct write.
    pub direct: Option<Call>,
    /// The notice that it is at.
    pub invalidation: Invalidation,
    /// The size in the answer to a GETATTR, which it has not heard so far.
    pub size_told: Option<usize>,
    /// What was done.
    pub counts: Counts,
}

/// What the server notes of a page of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct GivenPage {
    /// The kernel may have it.
    pub is_given: bool,
    /// What it was given, if that was changed since.
    pub base: Option<PageBase>,
    /// Where the file was cut since the page was given.
    pub cut_from: Option<u8>,
    /// The same since a READ that is served beside began.
    pub beside_cut_from: Option<u8>,
    /// The kernel is owed a notice.
    pub is_owed: bool,
    /// Since the last notice was sent the page was given again, or changed.
    pub is_touched: bool,
    /// A notice was sent since the kernel's last buffered write was served, or is under way.
    pub is_noticed: bool,
    /// The page was given again behind a notice: the next buffered write of the kernel to this
    /// file may have filled the page that the notice dropped.
    pub is_in_doubt: bool,
}

impl GivenPage {
    /// The file is cut at this byte of the page, or was when the page was written back.
    pub(super) fn cut(&mut self, at: usize, counts_zeros: bool) {
        if self.is_given {
            self.cut_from = Some(self.cut_from.unwrap_or(u8::MAX).min(at as u8));
        }
        if let Some(base) = self.base.as_mut().filter(|_| counts_zeros) {
            base.cut(at);
        }
    }
}

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The kernels.
    pub kernels: [Kernel; KERNELS],
    /// What the server notes of each page of each kernel.
    pub given: [[GivenPage; PAGES]; KERNELS],
    /// The size of the file.
    pub size: usize,
    /// Of each byte of the file the values that it had, in their order.
    pub history: [Few<Byte, VALUES>; FILE_BYTES],
    /// Of each kernel and byte how many values it had when the last notice that was answered was
    /// sent, or a change that returned was made: a load gives the last of them, or a later one.
    pub floors: [[u8; FILE_BYTES]; KERNELS],
    /// The same of a notice that is under way.
    pub noted: [Image; KERNELS],
    /// The call of the library.
    pub library: Option<Call>,
    /// Writes of the library that have begun.
    pub library_writes: u8,
    /// Its truncations.
    pub library_cuts: u8,
    /// Times that the server was killed.
    pub kills: u8,
    /// What was done wrong in a step.
    pub wrong: Option<Flaw>,
}

impl State {
    /// The file is whole, and nothing is cached.
    pub fn new() -> State {
        let kernel = Kernel {
            size: FILE_BYTES,
            pages: [NO_PAGE; PAGES],
            call: None,
            direct: None,
            invalidation: Invalidation::None,
            size_told: None,
            counts: Counts::default(),
        };
        State {
            kernels: [kernel; KERNELS],
            given: [[GivenPage::default(); PAGES]; KERNELS],
            size: FILE_BYTES,
            history: [[FIRST].into_iter().collect(); FILE_BYTES],
            floors: [[1; FILE_BYTES]; KERNELS],
            noted: [[0; PAGE_BYTES]; KERNELS],
            library: None,
            library_writes: 0,
            library_cuts: 0,
            kills: 0,
            wrong: None,
        }
    }

    /// The bytes of a page of the file.
    pub fn content(&self, page: usize) -> Image {
        let last = |byte: usize| self.history[byte].last().copied().unwrap_or(0);
        std::array::from_fn(|at| last(page * PAGE_BYTES + at))
    }

    /// Of each byte of the file how many values it had.
    pub(super) fn versions(&self) -> [u8; FILE_BYTES] {
        std::array::from_fn(|byte| self.history[byte].len() as u8)
    }
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}
