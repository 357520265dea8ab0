//! What a stream asks of a fabric: messages between two sides, of places in one piece of memory.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

/// Bytes of a message, at most, and of a place: what providers send at once, without asking first.
pub const MESSAGE_BYTES: usize = 16 << 10;
/// Places where messages are received: the first ones.
pub const RECEIVES: usize = 32;
/// Places from which messages are sent: those behind.
pub const SENDS: usize = 16;

/// What a fabric says when it does not do what it is asked to, in words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// What a place is free again of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// The place.
    pub place: usize,
    /// Bytes that were received, or why nothing was, or was not sent.
    pub bytes: Result<usize, Failed>,
}

/// One side of a fabric, which knows the other one.
pub trait Endpoint: Debug + Send {
    /// Has the next message received in this place. False: not now.
    ///
    /// # Errors
    /// The fabric is of no use any more.
    fn receive(&mut self, place: usize) -> Result<bool, Failed>;

    /// Sends so many bytes of this place. False: not now.
    ///
    /// # Errors
    /// The fabric is of no use any more.
    fn send(&mut self, place: usize, bytes: usize) -> Result<bool, Failed>;

    /// What is done, one at a time.
    ///
    /// # Errors
    /// The fabric is of no use any more.
    fn poll(&mut self) -> Result<Option<Done>, Failed>;

    /// The bytes of a place that the fabric does not use.
    ///
    /// # Panics
    /// If it does.
    fn place(&mut self, place: usize) -> &mut [u8];

    /// Rings when there may be something to poll for, if it can.
    fn bell(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the bell will ring for what comes from now on. False: it is to be polled first.
    fn may_wait(&mut self) -> bool;
}
