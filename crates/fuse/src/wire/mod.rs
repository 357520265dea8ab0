//! The protocol between the kernel and a FUSE server: the bytes of requests and replies.
//!
//! It is the kernel's own, version 7 (`linux/fuse.h`), from minor 31 on; what later minors brought
//! comes only where it was agreed on. All numbers have the machine's byte order, since both ends
//! are on it.
//!
//! The kernel is trusted to mean what it says, and still no byte of a request makes this code
//! panic or read outside of it: a request that is too short, or names without their end, are
//! errors ([`Malformed`]). What is not known is not one: it answers ENOSYS, and the kernel goes on
//! without.

mod answers;
mod arguments;
mod capabilities;
mod listing;
mod notice;
pub(crate) mod opcode;
mod operation;
mod parse;
mod reader;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use answers::DirentHead;
pub use answers::{
    AttrAnswer, EntryAnswer, InitAnswer, LockAnswer, NodeAttr, OpenAnswer, SpaceAnswer,
    StatxAnswer, StatxTime, Validity,
};
pub use arguments::InitAsk;
pub use capabilities::Capabilities;
pub use listing::Listing;
pub use notice::Notifier;
pub use operation::{Forgets, Lock, Operation, Setattr, SetattrTime};
pub use reader::Malformed;
pub use reply::{Channel, LateReply, Reply, Sink};
pub(crate) use request::is_long;
pub use request::{Request, RequestHead};

/// The major version of the protocol.
pub const MAJOR: u32 = 7;
/// The newest minor version that is known here (Linux 6.18).
pub const MINOR: u32 = 45;
/// The oldest that is spoken (Linux 5.4).
pub const MINOR_MIN: u32 = 31;

/// Bytes of a request before those that it writes: its head and the arguments of a write.
pub const WRITE_HEAD_BYTES: usize =
    size_of::<arguments::InHeader>() + size_of::<arguments::WriteIn>();

/// What an open file allows the kernel ([`OpenAnswer::flags`]).
pub mod open_flags {
    /// Reads and writes come here as they are, past the kernel's pages.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Pages that are cached stay valid at this open.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The listing of this directory may be cached.
    pub const CACHE_DIR: u32 = 1 << 3;
}
