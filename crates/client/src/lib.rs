//! A process that is attached to the service of a pool.
//!
//! A [`Session`] is one attachment: it ends when it is dropped, when the process ends, however that
//! comes about, and when the service ends in order. When that dies, or another program takes its
//! place, the session goes on with the next one. What its calls may do is what the process's user
//! and groups may, as the kernel told the service when the socket was connected.
#![forbid(unsafe_code)]

mod address;
mod bell;
mod connection;
mod copies;
mod error;
mod folder;
mod forwards;
mod given;
mod kept;
mod lane;
mod leases;
mod line;
mod opened;
mod pipeline;
mod read_cache;
mod returns;
mod secured;
mod session;
mod stream;

pub use address::is_address;
pub use connection::End;
pub use copies::{Mapping, Refused, Shows};
pub use error::{Error, Result};
pub use forwards::{Forwards, Origin};
pub use lanes::{BYTES_MAX, PIECES_MAX as WRITES_MAX};
pub use leases::{FileLeases, LeasedWrites};
pub use pipeline::{Answered, Pipeline};
pub use read_cache::READ_MAX;
pub use session::{Options, Session};
