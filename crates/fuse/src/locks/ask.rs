//! A lock request, as it lies in memory that outlives a server, and as it goes over a network.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A request, as it was asked.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Ask {
    pub(crate) unique: u64,
    /// Counts those that were asked.
    pub(crate) order: u64,
    pub(crate) node: u64,
    pub(crate) handle: u64,
    pub(crate) owner: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: i32,
    pub(crate) pid: u32,
    pub(crate) flock: u32,
    /// 0, or [`WAITS`], or [`KEPT`].
    pub(crate) waits: u32,
}

/// It waits for what is in the way.
pub(crate) const WAITS: u32 = 1;
/// It does not wait, and is kept until it is answered all the same: the way to the engine is long.
const KEPT: u32 = 2;

impl Ask {
    /// To be kept until it is answered.
    pub(crate) fn kept(self) -> Ask {
        Ask { waits: if self.waits == 0 { KEPT } else { self.waits }, ..self }
    }
}
