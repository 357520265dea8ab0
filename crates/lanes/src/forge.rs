//! Records as a process may make them that keeps no rule, for tests and for the fuzzer. Whoever has
//! a lane can store these: nothing of what they are made of is the service's secret.

use crate::record::{seal, whole};
use crate::{Connection, Piece, seed};

/// Of which lane a record is to be: the pool's identity, and the connection.
pub type Of<'p> = (&'p str, Connection);

/// The bytes of a record of these pieces for `position`, whatever they say; `None`: they are too
/// many.
pub fn record(of: Of<'_>, position: u64, number: u64, pieces: &[Piece<'_>]) -> Option<Vec<u8>> {
    whole((seed(of.0, of.1), position), number, pieces)
}

/// Makes the checksums of a record fit that was changed.
pub fn fit(of: Of<'_>, position: u64, record: &mut [u8]) {
    // what says no length is none, with any checksum
    let _ = seal((seed(of.0, of.1), position), record);
}
