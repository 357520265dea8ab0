//! Frames in the bytes of a stream.

use super::{Broken, Frame, HEAD_BYTES, NOTICE, PIECE_BYTES, SHORT_BYTES_MAX, SUM_BYTES, is_long};
use crate::{DATA_BYTES_MAX, MESSAGE_BYTES_MAX, SLOTS};

/// Room that is asked for first.
const ROOM_BYTES: usize = 16 << 10;
/// Room that each stream has, for short frames and the beginnings of long ones.
const USUAL_BYTES: usize = HEAD_BYTES + SHORT_BYTES_MAX;

/// Is told of long frames, whose bytes come by and by.
pub trait Pieces {
    /// One has begun: its slot, its message, and how much data comes with it.
    fn begins(&mut self, slot: u16, message: &[u8], data: usize) -> Begins;

    /// These bytes of its data have come, the next ones, if they are wanted so: whether they are
    /// right is known behind them. Gives their CRC-32C, where that is known to who took them.
    fn piece(&mut self, data: &[u8]) -> Option<u32>;
}

/// What becomes of the data of a long frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begins {
    /// It is collected, and the frame has it.
    Whole,
    /// Each [piece](Pieces::piece) goes where it belongs, and the frame has none.
    InPieces,
    /// It may not come yet: that is asked again.
    NotYet,
}

/// All frames are wanted whole.
struct Whole;

impl Pieces for Whole {
    fn begins(&mut self, _slot: u16, _message: &[u8], _data: usize) -> Begins {
        Begins::Whole
    }

    fn piece(&mut self, _data: &[u8]) -> Option<u32> {
        None
    }
}

/// Finds frames in the bytes of a stream.
///
/// It has room for a frame of some 32 KiB. For the data of a long one it gets more as bytes of
/// that come, or room for a piece of it; it takes nothing that follows, so that its room can be
/// given back when the frame is done.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Room. Of it, `taken..filled` are bytes of frames to come; of a long one `..filled` is data.
    room: Vec<u8>,
    taken: usize,
    filled: usize,
    long: Option<Long>,
}

/// A long frame whose data comes.
#[derive(Debug)]
struct Long {
    slot: u16,
    message: Vec<u8>,
    data: usize,
    /// Of the data, what has come in whole pieces.
    done: usize,
    /// The sum so far.
    sum: u32,
    /// The pieces go elsewhere.
    is_in_pieces: bool,
    /// A piece was not what was sent.
    is_broken: bool,
}

impl Long {
    /// Where in the room the piece that comes begins, and how many bytes it has.
    fn piece(&self) -> (usize, usize) {
        let at = if self.is_in_pieces { 0 } else { self.done };
        (at, PIECE_BYTES.min(self.data - self.done))
    }

    fn is_over(&self) -> bool {
        self.done == self.data
    }
}

impl Decoder {
    /// Where the stream's next bytes go.
    pub fn room(&mut self) -> &mut [u8] {
        self.end_long();
        if let Some(long) = &self.long {
            let (at, len) = long.piece();
            return self.room_to(at + len + SUM_BYTES);
        }
        if self.taken == self.filled || self.taken + USUAL_BYTES > self.room.len() {
            self.room.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        self.room_to(self.taken + USUAL_BYTES)
    }

    fn room_to(&mut self, end: usize) -> &mut [u8] {
        if self.filled == self.room.len() {
            // twice what there is at most: nobody gets room by announcing much
            self.room.resize((2 * self.filled).max(ROOM_BYTES).min(end), 0);
        }
        let end = self.room.len().min(end);
        &mut self.room[self.filled..end]
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
        self.frame_or_pieces(&mut Whole)
    }

    /// The same; `pieces` is told of long ones before. `None`: it may also say that one is not to
    /// come yet.
    ///
    /// # Errors
    /// What came is no frame, as with [`frame`](Decoder::frame).
    pub fn frame_or_pieces(
        &mut self,
        pieces: &mut dyn Pieces,
    ) -> Result<Option<Frame<'_>>, Broken> {
        self.end_long();
        if self.long.is_none() {
            let Some((head, bytes)) = self.head() else { return Ok(None) };
            check(&head)?;
            if !head.is_long() {
                return self.short_frame(head);
            }
            if bytes < HEAD_BYTES + head.message || !self.begin_long(head, pieces)? {
                return Ok(None);
            }
        }
        self.long_frame(pieces)
    }

    /// The head of the frame that comes, and how many bytes are there from it on.
    fn head(&self) -> Option<(Head, usize)> {
        let bytes = &self.room[self.taken..self.filled];
        Some((Head::of(bytes.first_chunk()?), bytes.len()))
    }

    fn short_frame(&mut self, head: Head) -> Result<Option<Frame<'_>>, Broken> {
        let all = head.bytes();
        if self.filled - self.taken < all {
            return Ok(None);
        }
        let bytes = &self.room[self.taken..self.taken + all];
        if head.sum != pmem::crc32c(0, &bytes[4..]) {
            return Err(Broken::Checksum);
        }
        self.taken += all;
        let (message, data) = bytes[HEAD_BYTES..].split_at(head.message);
        Ok(Some(Frame { slot: head.slot, message, data }))
    }

    /// A long frame is there up to its data. False: its data may not come yet.
    fn begin_long(&mut self, head: Head, pieces: &mut dyn Pieces) -> Result<bool, Broken> {
        let end = self.taken + HEAD_BYTES + head.message;
        let bytes = &self.room[self.taken..end];
        if head.sum != pmem::crc32c(0, &bytes[4..]) {
            return Err(Broken::Checksum);
        }
        let message = &bytes[HEAD_BYTES..];
        let begins = pieces.begins(head.slot, message, head.data);
        if begins == Begins::NotYet {
            return Ok(false);
        }
        self.long = Some(Long {
            slot: head.slot,
            message: message.to_vec(),
            data: head.data,
            done: 0,
            sum: head.sum,
            is_in_pieces: begins == Begins::InPieces,
            is_broken: false,
        });
        // a part of its first piece: there was no room for more
        self.room.copy_within(end..self.filled, 0);
        (self.taken, self.filled) = (0, self.filled - end);
        Ok(true)
    }

    /// The long frame whose data comes, if all of it is there.
    fn long_frame(&mut self, pieces: &mut dyn Pieces) -> Result<Option<Frame<'_>>, Broken> {
        let Some(long) = &mut self.long else { return Ok(None) };
        if long.is_broken {
            return Err(Broken::Checksum);
        }
        let (at, len) = long.piece();
        let Some(bytes) = self.room[..self.filled].get(at..at + len + SUM_BYTES) else {
            return Ok(None);
        };
        let (piece, sum) = bytes.split_at(len);
        let known = if long.is_in_pieces { pieces.piece(piece) } else { None };
        long.sum = match known {
            Some(of_piece) => pmem::crc32c_combine(long.sum, of_piece, len as u64),
            None => pmem::crc32c(long.sum, piece),
        };
        if *sum != long.sum.to_le_bytes() {
            long.is_broken = true;
            return Err(Broken::Checksum);
        }
        long.done += len;
        self.filled = if long.is_in_pieces { 0 } else { long.done };
        let data = &self.room[..self.filled];
        Ok(long.is_over().then_some(Frame { slot: long.slot, message: &long.message, data }))
    }

    /// A long frame that was given is over.
    fn end_long(&mut self) {
        if self.long.as_ref().is_some_and(Long::is_over) {
            self.long = None;
            self.filled = 0;
        }
    }

    /// The data of the long frame that was given just now, with the room that it is in; `None`: it
    /// was a short one.
    pub fn take_data(&mut self) -> Option<Vec<u8>> {
        self.long.as_ref().filter(|long| long.is_over())?;
        let mut data = std::mem::take(&mut self.room);
        data.truncate(self.filled);
        self.end_long();
        Some(data)
    }

    /// Has this room, if it has none.
    pub fn reuse(&mut self, room: impl FnOnce() -> Vec<u8>) {
        if self.room.is_empty() {
            self.room = room();
            self.room.resize(self.room.capacity(), 0);
        }
    }

    /// Whether another whole frame is there behind the next one.
    pub fn has_two(&self) -> bool {
        if self.long.is_some() {
            return false;
        }
        let mut rest = &self.room[self.taken..self.filled];
        (0..2).all(|_| {
            let Some(head) = rest.first_chunk().map(Head::of) else { return false };
            let behind = rest.split_at_checked(head.bytes()).filter(|_| !head.is_long());
            behind.inspect(|(_, behind)| rest = behind).is_some()
        })
    }

    /// Whether the frame that has begun is a long one.
    pub fn is_at_long(&self) -> bool {
        match &self.long {
            Some(long) => !long.is_over(),
            None => self.head().is_some_and(|(head, _)| head.is_long()),
        }
    }

    /// Gives room back but for what is in it, and for a short frame.
    pub fn shrink(&mut self) {
        self.end_long();
        if self.room.len() > USUAL_BYTES {
            let mut room = self.room[self.taken..self.filled].to_vec();
            self.filled -= self.taken;
            self.taken = 0;
            room.resize(self.filled.max(ROOM_BYTES), 0);
            self.room = room;
        }
    }

    /// Whether what is there begins as a message of TLS does, as no frame that is sent.
    pub fn is_of_tls(&self) -> bool {
        self.long.is_none()
            && matches!(self.room[self.taken..self.filled], [0x15 | 0x16, 3, 0..=4, ..])
    }

    /// Whether bytes of a frame are there that is not whole.
    pub fn is_amid(&self) -> bool {
        match &self.long {
            Some(long) => !long.is_over(),
            None => self.taken < self.filled,
        }
    }

    /// Gives room back where nothing is in it.
    pub fn rest(&mut self) {
        if !self.is_amid() {
            *self = Decoder::default();
        }
    }
}

/// What is before the message.
#[derive(Clone, Copy)]
struct Head {
    sum: u32,
    slot: u16,
    zero: u16,
    message: usize,
    data: usize,
}

impl Head {
    fn of(bytes: &[u8; HEAD_BYTES]) -> Head {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let (message, data) = (word(8) as usize, word(12) as usize);
        Head { sum: word(0), slot: half(4), zero: half(6), message, data }
    }

    fn is_long(&self) -> bool {
        is_long(self.message, self.data)
    }

    /// Of the frame, if it is a short one.
    fn bytes(&self) -> usize {
        HEAD_BYTES.saturating_add(self.message).saturating_add(self.data)
    }
}

fn check(head: &Head) -> Result<(), Broken> {
    if head.zero != 0 || head.slot < NOTICE && usize::from(head.slot) >= SLOTS {
        return Err(Broken::Slot);
    }
    if head.message > MESSAGE_BYTES_MAX || head.data > DATA_BYTES_MAX {
        return Err(Broken::Length);
    }
    Ok(())
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
