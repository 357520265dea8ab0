//! A stream of bytes over libfabric: what RDMA and its like carry in the place of TCP.
//!
//! ```text
//! provider  the kinds of fabric that are known here, and what a side says of itself
//! keys      what messages are sealed with
//! message   one message: what it looks like, and what is refused
//! endpoint  what a stream asks of a fabric
//! libfabric an endpoint of libfabric (feature `libfabric`)
//! neighbours  endpoints of one process
//! stream    the stream: credits, order, and what waits
//! bell      the descriptor that says when to look again
//! ```
//!
//! A fabric carries messages and nothing else: who the other side is, and that it is still there,
//! is known by a connection beside it. It is not believed: a message that was changed, made up,
//! sent twice or left out ends the stream. Nothing counts as durable because a fabric has taken it.
#![cfg_attr(not(feature = "libfabric"), forbid(unsafe_code))]

mod bell;
mod endpoint;
mod keys;
#[cfg(feature = "libfabric")]
mod libfabric;
mod message;
#[cfg(any(feature = "libfabric", test))]
mod neighbours;
mod provider;
mod stream;

pub use endpoint::{Done, Endpoint, Failed, MESSAGE_BYTES, RECEIVES, SENDS};
pub use keys::{Keys, MATERIAL_BYTES, NONCE_BYTES, Side, draw_nonce};
#[cfg(feature = "libfabric")]
pub use libfabric::Libfabric;
pub use message::Refused;
pub use provider::Provider;
pub use stream::{Broken, Stream};
