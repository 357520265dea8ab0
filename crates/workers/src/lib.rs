//! Threads on each slice's node that copy data there for others.
//!
//! A call that moves much data divides it by slices, puts a request for each piece into the ring of
//! its slice, copies itself what is near, and waits until all is done. Workers take requests from
//! the rings, copy with stores past the caches, checksum in the same pass, fence, and count down.
//!
//! - Rings for reads and for writes in each slice, and a limit for each on how many threads work
//!   there at one time, those who copy for themselves included ([`Gauge`]). Short ones have a ring
//!   and turns of their own, so that up to twice as many are at work where both are.
//! - Nothing is allocated and no lock is taken on the way of a request.
//! - Workers spin for as long as sleeping and waking takes, which is measured, and then sleep; they
//!   are woken once for a burst.
//! - No worker is needed: what none takes in time the caller copies, and what a worker could not
//!   copy, too. Workers are started by the first request.
//!
//! What it is not: it decides nothing. Who delegates what is `placement`'s to say.
#![deny(missing_docs)]

mod bell;
mod gauge;
mod queue;
mod request;
mod ring;
mod rings;
mod slots;
mod sync;
mod waiting;
mod worker;
mod workers;

pub use gauge::{AtWork, Gauge};
pub use request::{BLOCK_BYTES, Piece, Task};
pub use slots::PIECES_MAX;
pub use workers::{PATIENCE, Played, Seat, Settings, SliceSettings, SliceStats, Trouble, Workers};
