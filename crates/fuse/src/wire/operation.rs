//! What a request asks for.
#![expect(missing_docs, reason = "fields are named as the arguments of the calls that they serve")]

use super::Capabilities;
use super::arguments::{ForgetOne, InitAsk};
use super::reader::Reader;

/// What a request asks for. `node` in the request's head is the inode, or the directory in which
/// `name` is. `flags` are those of the call that made the kernel ask.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation<'r> {
    Lookup {
        name: &'r [u8],
    },
    /// No answer.
    Forget {
        lookups: u64,
    },
    /// No answer.
    BatchForget(Forgets<'r>),
    Getattr {
        handle: Option<u64>,
    },
    Statx {
        handle: Option<u64>,
        mask: u32,
    },
    Setattr(Setattr),
    Readlink,
    Symlink {
        name: &'r [u8],
        target: &'r [u8],
    },
    Mknod {
        name: &'r [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'r [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'r [u8],
    },
    Rmdir {
        name: &'r [u8],
    },
    Rename {
        name: &'r [u8],
        new_parent: u64,
        new_name: &'r [u8],
        flags: u32,
    },
    /// Another name in the request's node for the inode `of`.
    Link {
        of: u64,
        name: &'r [u8],
    },
    Open {
        flags: i32,
        kill_set_id: bool,
    },
    Create {
        name: &'r [u8],
        mode: u32,
        umask: u32,
        flags: i32,
        kill_set_id: bool,
    },
    /// As `Create`, of a file without a name.
    Tmpfile {
        mode: u32,
        umask: u32,
        flags: i32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        flags: i32,
        /// To fill pages with, not for a caller.
        for_pages: bool,
    },
    Write {
        handle: u64,
        offset: u64,
        data: &'r [u8],
        flags: i32,
        /// From the pages of a mapping; the handle is any that may write.
        from_cache: bool,
        /// Past the kernel's pages.
        past_pages: bool,
        kill_set_id: bool,
    },
    Statfs,
    Release {
        handle: u64,
        flags: i32,
        lock_owner: u64,
        unlock_flock: bool,
    },
    Fsync {
        handle: u64,
        data_only: bool,
    },
    Flush {
        handle: u64,
        lock_owner: u64,
    },
    Setxattr {
        name: &'r [u8],
        value: &'r [u8],
        flags: i32,
        kill_set_gid: bool,
    },
    Getxattr {
        name: &'r [u8],
        room: u32,
    },
    Listxattr {
        room: u32,
    },
    Removexattr {
        name: &'r [u8],
    },
    Init(InitAsk, Capabilities),
    Destroy,
    Opendir {
        flags: i32,
    },
    Readdir {
        handle: u64,
        offset: u64,
        room: u32,
        flags: i32,
    },
    Readdirplus {
        handle: u64,
        offset: u64,
        room: u32,
        flags: i32,
    },
    Releasedir {
        handle: u64,
    },
    Fsyncdir {
        handle: u64,
        data_only: bool,
    },
    Getlk(Lock),
    Setlk {
        lock: Lock,
        wait: bool,
    },
    Access {
        mask: u32,
    },
    /// The caller of request `unique` got a signal. No answer, but EAGAIN has it sent once more.
    Interrupt {
        unique: u64,
    },
    Fallocate {
        handle: u64,
        offset: u64,
        len: u64,
        mode: i32,
    },
    Lseek {
        handle: u64,
        offset: i64,
        whence: i32,
    },
    CopyFileRange {
        handle: u64,
        offset: u64,
        to_node: u64,
        to_handle: u64,
        to_offset: u64,
        len: u64,
        flags: u64,
        /// The answer has 64 bits.
        wide: bool,
    },
    Syncfs,
    /// An answer to a notification; no answer to it.
    NotifyReply,
    /// Anything else, by its number.
    Unknown(u32),
}

impl<'r> Operation<'r> {
    /// The names in directories that are asked for, or are to be made or taken away.
    #[must_use]
    pub fn names(&self) -> [Option<&'r [u8]>; 2] {
        match *self {
            Operation::Rename { name, new_name, .. } => [Some(name), Some(new_name)],
            Operation::Lookup { name }
            | Operation::Symlink { name, .. }
            | Operation::Mknod { name, .. }
            | Operation::Mkdir { name, .. }
            | Operation::Unlink { name }
            | Operation::Rmdir { name }
            | Operation::Link { name, .. }
            | Operation::Create { name, .. } => [Some(name), None],
            _ => [None; 2],
        }
    }
}

/// Inodes and how many look-ups of each the kernel forgets.
#[derive(Clone, Copy, Debug)]
pub struct Forgets<'r>(pub(super) &'r [u8]);

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let mut reader = Reader::new(self.0);
        let one: ForgetOne = reader.take().ok()?;
        self.0 = reader.rest();
        Some((one.node, one.lookups))
    }
}

/// A time that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetattrTime {
    Now,
    /// Whole seconds since 1970, and nanoseconds to be added to them, also before 1970.
    At {
        s: i64,
        ns: u32,
    },
}

/// Which attributes are to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setattr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<SetattrTime>,
    pub modified: Option<SetattrTime>,
    pub handle: Option<u64>,
    /// Set-id bits are to go, since the content changes.
    pub kill_set_id: bool,
}

/// A lock that is asked for, or asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub handle: u64,
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    pub pid: u32,
    /// flock(2), not a record lock.
    pub flock: bool,
}
