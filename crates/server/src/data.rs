//! The data that comes with a call.

use fs::Arrival;

/// The data of a call.
#[derive(Debug)]
pub enum Data<'d> {
    /// It is here.
    Here(&'d [u8]),
    /// It came by and by, and is where it is to be written.
    Arrived(Arrival),
}

impl Data<'_> {
    /// Its bytes; none of what is not here.
    pub fn here(&self) -> &[u8] {
        match self {
            Data::Here(bytes) => bytes,
            Data::Arrived(_) => &[],
        }
    }

    /// How many bytes came.
    pub fn bytes(&self) -> usize {
        match self {
            Data::Here(bytes) => bytes.len(),
            Data::Arrived(arrival) => arrival.bytes(),
        }
    }
}
