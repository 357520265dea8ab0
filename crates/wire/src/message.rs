//! What is asked and answered.

use fs::{Attr, FileKind, LockKind, RenameMode, StatFs, XattrMode};
use serde::{Deserialize, Serialize};

use crate::Failure;

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// For reading.
    pub read: bool,
    /// For writing at any offset.
    pub write: bool,
    /// For writing at the end.
    pub append: bool,
    /// Emptied.
    pub truncate: bool,
    /// Made if it is not there.
    pub create: bool,
    /// Made; an error if it is there.
    pub create_new: bool,
    /// Permission bits of one that is made.
    pub mode: u16,
}

/// A new inode without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Node<'a> {
    /// A directory.
    Directory,
    /// A directory, and those above it that are missing.
    Directories,
    /// A symbolic link that says this.
    Symlink(#[serde(borrow)] &'a [u8]),
    /// One more name of what this path names.
    Link(#[serde(borrow)] &'a [u8]),
    /// A directory with these permission bits.
    DirectoryWithMode(u16),
}

/// A run of bytes of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The file's number.
    pub file: u64,
    /// Where in it.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// A call: its number among those of its slot, from 1 on, and what it asks. The number stays when
/// it is sent again; 0 has one that asks for nothing twice.
pub type Call<'a> = (u64, Request<'a>);

/// Shows that the service opened this for the process: for the next service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof(pub [u8; 16]);

/// A lock that a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Of which kind.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
}

/// What a process asks. Paths are bytes; files and directories that are open have numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Opens a file: [`Reply::Opened`].
    Open(#[serde(borrow)] &'a [u8], Flags),
    /// Opens what a service before this one had open for this process, under the same number.
    Restore {
        /// Its number.
        number: u64,
        /// Its inode.
        ino: u64,
        /// How it was opened; a directory is only read.
        flags: Option<Flags>,
        /// What came when it was opened.
        proof: Proof,
        /// The locks that it has.
        locks: Vec<Held>,
    },
    /// All that a service before this one had open for this process has been opened again: on its
    /// account others may get locks.
    Restored,
    /// Closes a file or a directory.
    Close(u64),
    /// Reads: the bytes are the answer's data.
    Read {
        /// The file.
        file: u64,
        /// Where.
        offset: u64,
        /// Bytes, at most.
        len: u32,
    },
    /// A read cache for this process: [`Reply::Done`], and what it is made of comes through the
    /// socket ([`Said`](crate::Said)); [`Reply::Nothing`]: there is none here.
    Cache,
    /// Reads as [`Read`](Request::Read) does, and puts the pages that were read into the read
    /// cache: [`Reply::Cached`], or [`Reply::Done`] where none of them can be there.
    ReadCached {
        /// The file.
        file: u64,
        /// Where.
        offset: u64,
        /// Bytes, at most.
        len: u32,
    },
    /// Writes the call's data: [`Reply::Number`] of bytes.
    Write {
        /// The file.
        file: u64,
        /// Where.
        offset: u64,
    },
    /// Writes the call's data at the end: [`Reply::Number`], the offset.
    Append(u64),
    /// Copies between two open files: [`Reply::Number`] of bytes, of a part where it is much.
    Copy {
        /// From.
        from: (u64, u64),
        /// To.
        to: (u64, u64),
        /// Bytes, at most.
        len: u64,
    },
    /// Attributes of what is open: [`Reply::Attributes`].
    FileAttributes(u64),
    /// Sets a file's length.
    SetLength(u64, u64),
    /// Makes what was written durable: of the whole pool.
    Sync,
    /// Frees a range.
    PunchHole(u64, u64, u64),
    /// Reserves a range.
    Allocate(u64, u64, u64),
    /// The next data (true) or hole: [`Reply::Number`].
    Seek(u64, u64, bool),
    /// Changes locks.
    Lock {
        /// The file.
        file: u64,
        /// To what.
        kind: LockKind,
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
        /// Whether to wait for others.
        wait: bool,
    },
    /// Attributes of what a path leads to (true), or of itself where it is a link:
    /// [`Reply::Attributes`].
    Attributes(#[serde(borrow)] &'a [u8], bool),
    /// Sets permission bits.
    SetMode(#[serde(borrow)] &'a [u8], u16),
    /// Sets owner and group, of what a path leads to (true), or of itself where it is a link.
    SetOwner(#[serde(borrow)] &'a [u8], bool, Option<u32>, Option<u32>),
    /// Sets times of the last read and change, nanoseconds since 1970; of which, as above.
    SetTimes(#[serde(borrow)] &'a [u8], bool, Option<i64>, Option<i64>),
    /// An extended attribute's value: the answer's data, or [`Reply::Nothing`].
    Xattr(#[serde(borrow)] &'a [u8], #[serde(borrow)] &'a [u8]),
    /// Sets one to the call's data.
    SetXattr(#[serde(borrow)] &'a [u8], #[serde(borrow)] &'a [u8], XattrMode),
    /// Removes one.
    RemoveXattr(#[serde(borrow)] &'a [u8], #[serde(borrow)] &'a [u8]),
    /// Names of all: the answer's data, each with a zero behind it.
    ListXattrs(#[serde(borrow)] &'a [u8]),
    /// Makes something at a path.
    Make(#[serde(borrow)] &'a [u8], #[serde(borrow)] Node<'a>),
    /// What a symbolic link says: the answer's data.
    ReadLink(#[serde(borrow)] &'a [u8]),
    /// Removes a directory (true), or anything else.
    Remove(#[serde(borrow)] &'a [u8], bool),
    /// Renames.
    Rename(#[serde(borrow)] &'a [u8], #[serde(borrow)] &'a [u8], RenameMode),
    /// Opens a directory: [`Reply::Opened`].
    OpenDirectory(#[serde(borrow)] &'a [u8]),
    /// The entries of an open directory behind this cookie, 0 for the first: the answer's data, a
    /// list of [`Entry`], and [`Reply::Number`], the cookie for the next.
    ReadDirectory(u64, u64),
    /// Space: [`Reply::Space`].
    StatFs,
    /// What the pool says about itself: the answer's data, as JSON.
    Info,
    /// Folds the log.
    Checkpoint,
    /// Commits a transaction: the call's data are the bytes of all pieces, those that are written
    /// and those that are to be there still. [`Reply::Nothing`]: what was staged is not here, and
    /// nothing happened.
    Commit {
        /// What was staged before under this number is a part of it; 0: nothing was.
        staged: u64,
        /// Pieces that were staged.
        pieces: u32,
        /// Written.
        writes: Vec<Piece>,
        /// Expected.
        expected: Vec<Piece>,
    },
    /// Keeps a part of a transaction that is longer than a call, as [`Commit`](Request::Commit) has
    /// it, for a later commit.
    Stage {
        /// The transaction's number, which the process has drawn; not 0.
        staged: u64,
        /// Written.
        writes: Vec<Piece>,
        /// Expected.
        expected: Vec<Piece>,
    },
    /// Forgets what was staged.
    Unstage(u64),
    /// Makes a copy of a file's bytes in memory that the process can only load from: it comes
    /// through the socket ([`Said`](crate::Said)), without a page that is there. From then on it
    /// lacks a page, or has what the file has.
    Map {
        /// The copy's number, which the process has drawn.
        copy: u64,
        /// The file.
        file: u64,
        /// Where in it the copy begins: at a multiple of a page.
        offset: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// Brings pages of a copy.
    Fill {
        /// The copy.
        copy: u64,
        /// The first page.
        page: u64,
        /// How many, at most.
        pages: u32,
    },
    /// Ends a copy.
    Unmap(u64),
    /// A lane: [`Reply::Done`], and what it is made of comes through the socket
    /// ([`Said`](crate::Said)); [`Reply::Nothing`]: there are none here.
    Lane {
        /// The connection that the process chose for it, a number drawn at random.
        connection: u128,
    },
    /// A lease, for the slot: [`Reply::Leased`], or [`Reply::Nothing`], not now.
    Lease {
        /// The slot.
        slot: u8,
        /// The file.
        file: u64,
        /// First block that is wanted.
        first: u64,
        /// Last.
        last: u64,
    },
    /// Gives the slot's lease back.
    GiveBack(u8),
    /// Folds the process's lane.
    Fold,
    /// Whether a request of a lane happened: [`Reply::Number`] 1 or 0, or [`Reply::Nothing`] where
    /// that is forgotten.
    Happened {
        /// The lane's connection, which may have ended.
        connection: u128,
        /// The slot of a lease that it relied on.
        slot: u8,
        /// The lease's generation.
        generation: u64,
        /// The request's number.
        number: u64,
    },
    /// Reads pieces at one moment: [`Reply::Number`] of the service, and as data a number of eight
    /// bytes for each file of `watched`, as it was before they were read, and again as behind; then
    /// their bytes, zeros behind a file's end. With one service a file's number grows before a
    /// change of what was read of it can be seen.
    ReadTogether {
        /// What is read.
        pieces: Vec<Piece>,
        /// Files.
        watched: Vec<u64>,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done, and what there is to say is in the data.
    Done,
    /// There is none.
    Nothing,
    /// A number.
    Number(u64),
    /// What was read is in the read cache, page by page from the one on in which the first byte
    /// lies: the place of each, and its count there. Where the count is another one, other bytes
    /// are.
    Cached {
        /// Place and count.
        pages: Vec<(u32, u64)>,
        /// Bytes of the last page; fewer than a page: the file ends there.
        last_bytes: u32,
    },
    /// What is open now: its number, its attributes, and what shows that to the next service.
    Opened(u64, Attr, Proof),
    /// A lease: its generation, its first and its last block.
    Leased(u64, u64, u64),
    /// Attributes.
    Attributes(Attr),
    /// Space.
    Space(StatFs),
    /// It failed.
    Failed(Failure),
}

impl Request<'_> {
    /// Whether it may change what is stored: then it is made once, however often it is sent.
    pub fn changes(&self) -> bool {
        match self {
            Request::Open(_, flags) => flags.create || flags.create_new || flags.truncate,
            Request::Write { .. }
            | Request::Append(_)
            | Request::Copy { .. }
            | Request::SetLength(..)
            | Request::PunchHole(..)
            | Request::Allocate(..)
            | Request::SetMode(..)
            | Request::SetOwner(..)
            | Request::SetTimes(..)
            | Request::SetXattr(..)
            | Request::RemoveXattr(..)
            | Request::Make(..)
            | Request::Remove(..)
            | Request::Rename(..)
            | Request::Commit { .. } => true,
            _ => false,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// The number of its inode.
    pub ino: u64,
    /// What that is.
    pub kind: FileKind,
}

/// The bytes of a message, behind what is in `bytes`.
///
/// # Errors
/// Never, but where there is no memory.
pub fn encode(message: &impl Serialize, bytes: Vec<u8>) -> postcard::Result<Vec<u8>> {
    postcard::to_extend(message, bytes)
}

/// The message that these bytes are, all of them.
///
/// # Errors
/// They are none.
pub fn decode<'a, M: Deserialize<'a>>(bytes: &'a [u8]) -> postcard::Result<M> {
    match postcard::take_from_bytes(bytes)? {
        (message, []) => Ok(message),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}
