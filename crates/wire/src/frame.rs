//! Calls and answers over a stream of bytes: what a network carries where there is no memory to
//! share.
//!
//! ```text
//! 0  CRC-32C of the head from here on, and of the message; of the data, too, in a short frame, u32
//! 4  slot, u16; WORDS, NOTICE            6  0, u16
//! 8  bytes of the message, u32           12 bytes of the data, u32
//! 16 the message, then the data
//! ```
//!
//! A frame of more than 32 KiB behind its head is a long one. Its data comes in pieces of 64 KiB,
//! the last one of what is left; behind each piece is the CRC-32C, u32, of the piece, begun with
//! the sum before: the head's, or that of the piece before it. So one side sums and sends a piece
//! while the other one takes what came before, and what is damaged is known where it is.
//!
//! A call and its answer have the slot in common; answers come in any order. The first words, and
//! what a service says by itself, are JSON in a frame of [`WORDS`]; what the two sides of a mount
//! say by themselves, and a service of copies, is in frames of [`NOTICE`].
//!
//! Nothing that comes is believed: lengths are held to what a slot has, and room is taken as bytes
//! arrive, not as they are announced.

use crate::{DATA_BYTES_MAX, MESSAGE_BYTES_MAX};

mod decoder;

pub use decoder::{Begins, Decoder, Pieces};

/// The slot of what is no call.
pub const WORDS: u16 = u16::MAX;
/// The slot of what a mount's two sides say by themselves, and a service of copies.
pub const NOTICE: u16 = u16::MAX - 1;

/// Data of a long frame comes in pieces of so many bytes.
pub const PIECE_BYTES: usize = 64 << 10;
const HEAD_BYTES: usize = 16;
const SUM_BYTES: usize = 4;
/// Most bytes behind the head of a frame that comes as a whole.
const SHORT_BYTES_MAX: usize = 32 << 10;

/// What came is no frame; what follows cannot be told apart any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Broken {
    /// Bytes have changed on the way.
    #[error("a frame's checksum is wrong")]
    Checksum,
    /// There is no such slot.
    #[error("a frame is of no slot")]
    Slot,
    /// More than a slot has room for.
    #[error("a frame is too long")]
    Length,
}

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'f> {
    /// Whose it is; or [`WORDS`], or [`NOTICE`].
    pub slot: u16,
    /// The message.
    pub message: &'f [u8],
    /// Data that goes with it.
    pub data: &'f [u8],
}

/// What is sent of a frame at a time.
#[derive(Clone, Copy, Debug)]
pub enum Part<'f> {
    /// The head, the message, and the data of a short frame.
    First([u8; HEAD_BYTES], &'f [u8], &'f [u8]),
    /// A piece of a long one's data, and its sum.
    Piece(&'f [u8], [u8; SUM_BYTES]),
}

impl Part<'_> {
    /// Its bytes, one behind the other, but for so many that were sent.
    pub fn rest(&self, sent: usize) -> [&[u8]; 3] {
        let all = match self {
            Part::First(head, message, data) => [&head[..], message, data],
            Part::Piece(data, sum) => [data, &sum[..], &[]],
        };
        crate::link::rest(all, sent)
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.rest(0).iter().map(|part| part.len()).sum()
    }
}

impl<'f> Frame<'f> {
    /// What is sent of it, in order; each part is summed when it is asked for.
    ///
    /// # Panics
    /// If message or data are longer than a slot has room for.
    pub fn parts(self) -> impl Iterator<Item = Part<'f>> {
        let Frame { slot, message, data } = self;
        assert!(message.len() <= MESSAGE_BYTES_MAX && data.len() <= DATA_BYTES_MAX, "it fits");
        let mut head = [0; HEAD_BYTES];
        head[4..6].copy_from_slice(&slot.to_le_bytes());
        head[8..12].copy_from_slice(&(message.len() as u32).to_le_bytes());
        head[12..].copy_from_slice(&(data.len() as u32).to_le_bytes());
        let (whole, pieces) = match is_long(message.len(), data.len()) {
            true => (&[][..], data),
            false => (data, &[][..]),
        };
        let mut sum =
            [&head[4..], message, whole].iter().fold(0, |sum, part| pmem::crc32c(sum, part));
        head[..4].copy_from_slice(&sum.to_le_bytes());
        let pieces = pieces.chunks(PIECE_BYTES).map(move |piece| {
            sum = pmem::crc32c(sum, piece);
            Part::Piece(piece, sum.to_le_bytes())
        });
        std::iter::once(Part::First(head, message, whole)).chain(pieces)
    }

    /// Whether its data comes in pieces.
    pub fn is_long(&self) -> bool {
        is_long(self.message.len(), self.data.len())
    }

    /// All bytes that are sent of it.
    pub fn bytes(self) -> Vec<u8> {
        self.parts().flat_map(|part| part.rest(0).concat()).collect()
    }
}

fn is_long(message: usize, data: usize) -> bool {
    message.saturating_add(data) > SHORT_BYTES_MAX
}
