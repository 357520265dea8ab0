//! Lanes: what attached processes commit by themselves, and how it comes into the pool.
//!
//! A process that is attached to the service of a pool may be given leases: rights to write ranges
//! of files by itself. It stores records into its lane ([`Lane`]), memory in a file that the
//! service made for it, with one fence and no message; the service folds them into its own log
//! ([`Ledger`]), before anybody reads what they are about. `docs/SHARING.md` has the protocol, and
//! why it is right.
//!
//! A connection has three files in the directory `lanes` of the pool's:
//!
//! | file | what | who stores |
//! |---|---|---|
//! | `*.lane` | records, one behind the other, lap after lap | the process |
//! | `*.words` | how far it is folded, and the generation that each slot may write | the service |
//! | `*.leases` | the leases, and how far the lane is folded, durably | the service, for itself |
//!
//! What was committed and cannot be folded, for the medium has failed there, is kept in a file
//! `unfolded.jsonl`, for people.
//!
//! They outlive both. Whoever opens the pool next folds what they have ([`recover`]). A file of the
//! service's own says as long as it owns the pool ([`Reign`]).
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod apart;
mod error;
mod files;
#[doc(hidden)]
pub mod forge;
mod lane;
mod ledger;
mod reader;
mod record;
mod recovery;
mod reign;
mod state;
mod unfolded;

pub use error::{Error, Result};
pub use files::{Files, Given};
pub use lane::{Lane, Stored};
pub use ledger::{Ended, Happened, Ledger, Target};
pub use pool::BLOCK_BYTES;
pub use record::{BYTES_MAX, PIECES_MAX, Piece, blocks_of};
pub use recovery::{Recovered, happened, recover};
pub use reign::{Reign, Subject};

/// Leases that a connection can have at a time.
pub const SLOTS: usize = 32;
/// Bytes of a lane.
pub const LANE_BYTES: u64 = 1 << 20;

/// Blocks that what waits in a lane may need when it is folded, at most: so many are kept for it,
/// so that it finds room in a full pool. A process that stores more waits until it is folded.
pub const BLOCKS_MAX: u64 = 512;
/// Blocks that are kept for a lane: while some are being found anew, as many again may be stored.
const SPARE: usize = 2 * BLOCKS_MAX as usize;

/// Words of a connection: how far its lane is folded, and then one for each slot.
const WORDS: usize = 1 + SLOTS;
const FOLDED: usize = 0;

/// The word of a slot.
const fn word_of(slot: usize) -> usize {
    1 + slot
}

/// Which connection a lane is of: a number drawn at random, which only it and the service know.
pub type Connection = u128;

/// What the checksums of a lane begin with: of this pool, and of this connection.
fn seed(pool: &str, connection: Connection) -> u32 {
    pmem::crc32c(pmem::crc32c(0, pool.as_bytes()), &connection.to_le_bytes())
}
