//! What a mount of another machine and the service say to each other.
//!
//! The machine that has the mount forwards what its kernel asks, and the service answers as it
//! would answer a kernel of its own. A request is a call in a slot: its message is the count of the
//! call, 8 bytes, and up to [`HEAD_BYTES`] of the request; its data are the others. The answer's
//! message is 0 or an errno, 4 bytes; its data are what the kernel is told behind the head of a
//! reply. Numbers are in the byte order of the machines, as a kernel's are: both have the same.
//!
//! What is no call goes in frames of [`NOTICE`](crate::NOTICE): locks, which may wait for longer
//! than a slot can be missed, and what a kernel is to forget.

use std::io;

use serde::{Deserialize, Serialize};

/// Bytes of a request that its message has, at most: those of a write before what it writes.
pub const HEAD_BYTES: usize = 80;

/// What a mount is to be of.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MountAsk {
    /// The directory that is its root.
    pub path: Vec<u8>,
    /// What the kernel and the forwarder agreed on.
    pub capabilities: u64,
    /// Counts what served the mount, for numbers of open files that nobody gave before.
    pub turn: u32,
}

/// What the service says to that.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MountAnswer {
    /// Nothing of it is there: what is open and locked is to be told.
    pub is_new: bool,
}

/// What a forwarder says by itself.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Told {
    /// The frame's data names what is open, where the service has none of it: of each its number
    /// and its inode, 8 bytes each. It may come several times before [`Begin`](Told::Begin).
    Opened,
    /// The frame's data are the numbers, 8 bytes each, of the lock requests whose answers have not
    /// come. It comes once, before [`Begin`](Told::Begin).
    Asked,
    /// Requests follow. The frame's data is the journal of locks, where the service has none.
    Begin,
    /// The frame's data is a lock request.
    Lock,
    /// Who asked for this lock got a signal.
    Interrupt(u64),
    /// The answer to this lock request has come.
    Heard(u64),
    /// The kernel has dropped what this notice said ([`Notice::Pages`]).
    Forgot(u64),
    /// The kernel did not take the answer that opened this: its number, and its inode.
    Close(u64, u64),
    /// The mount has ended.
    Ends,
}

/// What a service says by itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Notice {
    /// A lock request has ended: its number, and 0 or an errno.
    Locked(u64, i32),
    /// The frame's data goes to the end of the journal of locks.
    Journal,
    /// The frame's data is the journal of locks from now on.
    Journals,
    /// The frame's data is a notification for the kernel, with this code.
    Kernel(i32),
    /// The kernel is to drop pages of a file, and when it has, [`Told::Forgot`] says so with this
    /// number. The frame's data: the inode, and of each range of bytes its offset and its length
    /// (0: all that follows), 8 bytes each.
    Pages(u64),
}

/// Serves one mount, on the service's side. Nothing that comes is believed.
pub trait MountServer: Send + Sync + std::fmt::Debug {
    /// Serves a request, which is known by the number `unique`; `again`: it may have been served.
    fn serve(&self, unique: u64, again: bool, request: &mut [u8]);

    /// The forwarder says something by itself. False: that makes no sense.
    fn told(&self, told: &Told, data: &[u8]) -> bool;

    /// Whether what was told is a lock request that takes something.
    fn takes_lock(&self, told: &Told, data: &[u8]) -> bool;

    /// Whether others should not wait for a request that begins so.
    fn may_take_long(&self, request: &[u8]) -> bool;
}

/// Where the answers of one mount go.
pub trait Outlet: Send + Sync + std::fmt::Debug {
    /// The answer to request `unique`: 0, or an errno, and its parts.
    ///
    /// # Errors
    /// Nobody takes it.
    fn answer(&self, unique: u64, errno: i32, parts: &[&[u8]]) -> io::Result<()>;

    /// Says something by itself.
    fn say(&self, notice: Notice, data: &[u8]);
}
