//! Calls and answers over a stream of bytes: what a network carries where there is no memory to
//! share.
//!
//! ```text
//! 0  CRC-32C of all that follows, u32     4  slot, u16, or WORDS     6  0, u16
//! 8  bytes of the message, u32           12  bytes of the data, u32
//! 16 the message, then the data
//! ```
//!
//! A call and its answer have the slot in common; answers come in any order. The first words, and
//! what a service says by itself, are JSON in a frame of [`WORDS`].
//!
//! Nothing that comes is believed: lengths are held to what a slot has, and room is taken as bytes
//! arrive, not as they are announced.

use crate::{DATA_BYTES_MAX, MESSAGE_BYTES_MAX, SLOTS};

/// The slot of what is no call.
pub const WORDS: u16 = u16::MAX;

const HEAD_BYTES: usize = 16;
/// Room that is asked for at a time, where there is none.
const ROOM_BYTES: usize = 16 << 10;

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
    /// Whose it is; or [`WORDS`].
    pub slot: u16,
    /// The message.
    pub message: &'f [u8],
    /// Data that goes with it.
    pub data: &'f [u8],
}

impl<'f> Frame<'f> {
    /// What is left to send of it, of whose bytes with this head so many were sent.
    pub fn rest(&self, head: &'f [u8], mut sent: usize) -> [&'f [u8]; 3] {
        [head, self.message, self.data].map(|part| {
            let skipped = sent.min(part.len());
            sent -= skipped;
            &part[skipped..]
        })
    }

    /// What is sent before its message and its data.
    ///
    /// # Panics
    /// If they are longer than a slot has room for.
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        let Frame { slot, message, data } = *self;
        assert!(message.len() <= MESSAGE_BYTES_MAX && data.len() <= DATA_BYTES_MAX, "it fits");
        let mut head = [0; HEAD_BYTES];
        head[4..6].copy_from_slice(&slot.to_le_bytes());
        head[8..12].copy_from_slice(&(message.len() as u32).to_le_bytes());
        head[12..].copy_from_slice(&(data.len() as u32).to_le_bytes());
        let sum = [&head[4..], message, data].iter().fold(0, |sum, part| pmem::crc32c(sum, part));
        head[..4].copy_from_slice(&sum.to_le_bytes());
        head
    }
}

/// Finds frames in the bytes of a stream.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Room; of it, `taken..filled` are bytes of frames to come.
    room: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl Decoder {
    /// Where the stream's next bytes go.
    pub fn room(&mut self) -> &mut [u8] {
        if self.filled == self.room.len() {
            self.room.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
            // twice what there is at most: nobody gets room by announcing much
            if self.room.len() < (2 * self.filled).max(ROOM_BYTES) {
                self.room.resize((2 * self.filled).max(ROOM_BYTES), 0);
            }
        }
        &mut self.room[self.filled..]
    }

    /// So many bytes came.
    pub fn fill(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.room.len());
    }

    /// The next frame, if all of it is there.
    ///
    /// # Errors
    /// It is none. The stream is of no use any more.
    pub fn frame(&mut self) -> Result<Option<Frame<'_>>, Broken> {
        let bytes = &self.room[self.taken..self.filled];
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let word = |at: usize| {
            let [one, two, three, four] = [0, 1, 2, 3].map(|byte| head[at + byte]);
            u32::from_le_bytes([one, two, three, four])
        };
        let (slot, message, data) = (half(4), word(8) as usize, word(12) as usize);
        if half(6) != 0 || slot != WORDS && usize::from(slot) >= SLOTS {
            return Err(Broken::Slot);
        }
        if message > MESSAGE_BYTES_MAX || data > DATA_BYTES_MAX {
            return Err(Broken::Length);
        }
        let Some(body) = rest.get(..message + data) else { return Ok(None) };
        if word(0) != pmem::crc32c(pmem::crc32c(0, &head[4..]), body) {
            return Err(Broken::Checksum);
        }
        self.taken += HEAD_BYTES + body.len();
        let (message, data) = body.split_at(message);
        Ok(Some(Frame { slot, message, data }))
    }

    /// Whether bytes of a frame are there that is not whole.
    pub fn is_amid(&self) -> bool {
        self.taken < self.filled
    }

    /// Gives room back where nothing is in it.
    pub fn rest(&mut self) {
        if !self.is_amid() {
            *self = Decoder::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Slot, message and data of a frame.
    type Parts = (u16, Vec<u8>, Vec<u8>);

    fn bytes_of(frames: &[Parts]) -> Vec<u8> {
        let bytes = frames.iter().map(|(slot, message, data)| {
            let frame = Frame { slot: *slot, message, data };
            [&frame.head()[..], message, data].concat()
        });
        bytes.collect::<Vec<_>>().concat()
    }

    /// All frames that come of these bytes, which arrive in pieces of so many.
    fn decoded(bytes: &[u8], piece: usize) -> Result<Vec<Parts>, Broken> {
        let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
        for mut piece in bytes.chunks(piece.max(1)) {
            while !piece.is_empty() {
                let room = decoder.room();
                let len = room.len().min(piece.len());
                room[..len].copy_from_slice(&piece[..len]);
                decoder.fill(len);
                piece = &piece[len..];
                while let Some(Frame { slot, message, data }) = decoder.frame()? {
                    frames.push((slot, message.to_vec(), data.to_vec()));
                }
                decoder.rest();
            }
        }
        Ok(frames)
    }

    fn frame() -> impl Strategy<Value = Parts> {
        let slot = prop_oneof![0..SLOTS as u16, Just(WORDS)];
        let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
        (slot, bytes(200), prop_oneof![bytes(30), bytes(40_000)])
    }

    proptest! {
        #[test]
        fn what_is_sent_arrives_however_it_is_cut(
            frames in proptest::collection::vec(frame(), 0..6), piece in 1..30_000usize,
        ) {
            prop_assert_eq!(decoded(&bytes_of(&frames), piece), Ok(frames));
        }

        #[test]
        fn a_changed_byte_is_noticed(
            frames in proptest::collection::vec(frame(), 1..4), at in any::<u32>(), bit in 0..8u32,
        ) {
            let mut bytes = bytes_of(&frames);
            let at = at as usize % bytes.len();
            bytes[at] ^= 1 << bit;
            // an error, or what was there before it, where it announces more than there is
            let come = decoded(&bytes, 4096).unwrap_or_default();
            prop_assert!(come.len() < frames.len() && come == frames[..come.len()]);
        }

        #[test]
        fn any_bytes_are_frames_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decoded(&bytes, 7);
        }
    }

    #[test]
    fn who_announces_much_gets_no_room_for_it() {
        let mut decoder = Decoder::default();
        let long = vec![0; DATA_BYTES_MAX];
        let head = Frame { slot: 3, message: &[], data: &long }.head();
        decoder.room()[..HEAD_BYTES].copy_from_slice(&head);
        decoder.fill(HEAD_BYTES);
        assert_eq!(decoder.frame(), Ok(None));
        assert!(decoder.is_amid() && decoder.room.capacity() <= 2 * ROOM_BYTES);
    }
}
