//! A process that is attached to the service of a pool.
//!
//! A [`Session`] is one attachment: it ends when it is dropped, when the process ends, however that
//! comes about, and when the service does. What its calls may do is what the process's user and
//! groups may, as the kernel told the service when the socket was connected.
#![forbid(unsafe_code)]

mod error;
mod session;

pub use error::{Error, Result};
pub use session::Session;
