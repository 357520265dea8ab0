//! One message: a piece of the stream, sealed.
//!
//! ```text
//! 0  which message it is, from 0 on, u64   8  messages that the other side may have sent, u64
//! 16 bytes of the stream in it, u32        20 1 in the last message, 0 before, u32
//! 24 those bytes, encrypted; then the tag, 16 bytes
//! ```
//!
//! Sealed with AES-256-GCM, which costs no more than a tag alone and shows the fabric nothing; what
//! comes first is under the tag, too. A key is of one direction of one connection, and a number is
//! used once, so it is the nonce.

use std::ops::Range;

use ring::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce, Tag};

use crate::endpoint::MESSAGE_BYTES;

/// Bytes before those of the stream.
pub const HEAD_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// Bytes of the stream in a message, at most.
pub const PIECE_BYTES_MAX: usize = MESSAGE_BYTES - HEAD_BYTES - TAG_BYTES;

/// Why a message is not taken. Nothing that follows it is, either.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// It is not as long as it says.
    #[error("a message of a fabric is cut short, or too long")]
    Length,
    /// It was here before.
    #[error("message {0} of a fabric came again, where {1} is next")]
    Again(u64, u64),
    /// Some before it have not come.
    #[error("message {0} of a fabric came, where {1} is next")]
    Early(u64, u64),
    /// It was changed on the way, or somebody else made it.
    #[error("a message of a fabric was changed on the way, or made by somebody else")]
    Changed,
    /// It allows more than there is room for.
    #[error("a message of a fabric makes no sense")]
    Nonsense,
}

/// What a message says beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Says {
    /// Messages that the other side may have sent.
    pub granted: u64,
    /// No other one follows.
    pub is_last: bool,
}

/// Seals the messages of one direction.
#[derive(Debug)]
pub struct Sealer {
    key: LessSafeKey,
    /// Number of the next one.
    pub next: u64,
}

/// Opens the messages of one direction, in their order.
#[derive(Debug)]
pub struct Opener {
    key: LessSafeKey,
    /// Number of the next one.
    pub next: u64,
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

impl Sealer {
    /// Begins with the first message.
    pub fn new(key: LessSafeKey) -> Sealer {
        Sealer { key, next: 0 }
    }

    /// Makes a message of the first `bytes` behind the head; gives its length.
    ///
    /// # Panics
    /// If they and the tag do not fit.
    pub fn seal(&mut self, place: &mut [u8], bytes: usize, says: Says) -> usize {
        let (head, rest) = place.split_at_mut(HEAD_BYTES);
        head[..8].copy_from_slice(&self.next.to_le_bytes());
        head[8..16].copy_from_slice(&says.granted.to_le_bytes());
        head[16..].copy_from_slice(&(u64::from(says.is_last) << 32 | bytes as u64).to_le_bytes());
        let (piece, tag) = rest[..bytes + TAG_BYTES].split_at_mut(bytes);
        let (nonce, head) = (nonce(self.next), Aad::from(&*head));
        let sealed = self.key.seal_in_place_separate_tag(nonce, head, piece);
        #[expect(clippy::expect_used, reason = "a piece is shorter than any that cannot be")]
        tag.copy_from_slice(sealed.expect("a short piece is sealed").as_ref());
        self.next += 1;
        HEAD_BYTES + bytes + TAG_BYTES
    }
}

impl Opener {
    /// Begins with the first message.
    pub fn new(key: LessSafeKey) -> Opener {
        Opener { key, next: 0 }
    }

    /// Opens the next message: where its bytes of the stream are, and what else it says.
    ///
    /// # Errors
    /// It is not taken.
    pub fn open(&mut self, message: &mut [u8]) -> Result<(Range<usize>, Says), Refused> {
        let (head, rest) = message.split_at_mut_checked(HEAD_BYTES).ok_or(Refused::Length)?;
        let (number, granted, rests) = (word(head, 0), word(head, 8), word(head, 16));
        let (bytes, last) = (rests & u64::from(u32::MAX), rests >> 32);
        let piece_bytes = rest.len().checked_sub(TAG_BYTES).ok_or(Refused::Length)?;
        if bytes != piece_bytes as u64 || piece_bytes > PIECE_BYTES_MAX {
            return Err(Refused::Length);
        }
        if number != self.next {
            let why = if number < self.next { Refused::Again } else { Refused::Early };
            return Err(why(number, self.next));
        }
        let (piece, tag) = rest.split_at_mut(piece_bytes);
        let tag = Tag::try_from(&*tag).map_err(|_| Refused::Length)?;
        let (nonce, head) = (nonce(number), Aad::from(&*head));
        let opened = self.key.open_in_place_separate_tag(nonce, head, tag, piece, 0..);
        opened.map_err(|_| Refused::Changed)?;
        self.next += 1;
        if last > 1 {
            return Err(Refused::Nonsense);
        }
        Ok((HEAD_BYTES..HEAD_BYTES + piece_bytes, Says { granted, is_last: last == 1 }))
    }
}
