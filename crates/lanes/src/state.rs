//! What is noted of a connection's leases, durably.
//!
//! Two copies, of which the one with the higher serial number counts, if it is whole; the other one
//! is written next. So it changes in one step, whatever happens. Both are written before there is a
//! lease, the first one last: where that is zeros, there was none.
//!
//! ```text
//! 0  "NSLEASE1"          8   serial, u64             16  connection, u128
//! 32 folded up to, u64   40  highest request folded, u64
//! 48 of each slot: generation, inode, first block, last block, highest request folded when it was
//!    closed (u64 each), and a word: bit 0 while it is leased, bit 1 if a write takes set-id bits
//!    away
//!    CRC-32C of all before, behind the pool's id, u32
//! ```

use fs::{Blocks, FILE_BYTES_MAX, Ino};
use pmem::{Mapping, fence};

use crate::record::{Record, number};
use crate::{Connection, Error, Happened, Piece, Result, SLOTS};

const MAGIC: [u8; 8] = *b"NSLEASE1";
const HEAD: usize = 48;
const SLOT: usize = 48;
const CRC_AT: usize = HEAD + SLOTS * SLOT;
const COPY_BYTES: usize = 4096;
/// Bits of a slot's last word.
const LEASED: u64 = 1;
const DROPS_SET_ID: u64 = 2;
/// Bytes of the file.
pub(crate) const STATE_BYTES: u64 = 2 * COPY_BYTES as u64;

const _: () = assert!(CRC_AT + 4 <= COPY_BYTES);

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The lease's, or the last one's.
    pub generation: u64,
    /// What is leased, or was.
    pub blocks: Blocks,
    /// Whether it still is.
    pub is_leased: bool,
    /// Whether its holder is one whose writes take set-id bits away.
    pub drops_set_id: bool,
    /// The highest request that was folded when it was closed.
    pub closed_at: u64,
}

/// What is noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    serial: u64,
    connection: Connection,
    /// The lane is folded up to here.
    pub folded: u64,
    /// The highest request folded.
    pub number: u64,
    /// The slots.
    pub slots: Vec<Slot>,
}

impl State {
    /// Of a new connection.
    pub fn new(connection: Connection) -> State {
        let blocks = Blocks { ino: Ino(0), blocks: 0..=0 };
        let (is_leased, drops_set_id) = (false, false);
        let slot = Slot { generation: 0, blocks, is_leased, drops_set_id, closed_at: 0 };
        State { serial: 0, connection, folded: 0, number: 0, slots: vec![slot; SLOTS] }
    }

    /// Notes it; durable when this returns.
    pub fn store(&mut self, to: &Mapping, pool: &str) {
        self.serial += 1;
        let mut bytes = Vec::with_capacity(CRC_AT + 4);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.serial.to_le_bytes());
        bytes.extend_from_slice(&self.connection.to_le_bytes());
        bytes.extend_from_slice(&self.folded.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        for slot in &self.slots {
            let Slot { generation, blocks, is_leased, drops_set_id, closed_at } = slot;
            let (first, last) = (*blocks.blocks.start(), *blocks.blocks.end());
            let flags = u64::from(*is_leased) * LEASED + u64::from(*drops_set_id) * DROPS_SET_ID;
            for word in [*generation, blocks.ino.0, first, last, *closed_at, flags] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&checksum(pool, &bytes).to_le_bytes());
        let _clean = fence(to.write(self.serial % 2 * COPY_BYTES as u64, &bytes));
    }

    /// What is noted there.
    pub fn load(from: &Mapping, pool: &str, connection: Connection) -> Result<State> {
        if from.len() < STATE_BYTES {
            return Err(Error::Damaged(connection));
        }
        let mut best: Option<State> = None;
        let (mut bytes, mut is_new) = ([0; CRC_AT + 4], false);
        for at in [0, COPY_BYTES as u64] {
            // a copy that cannot be read is none
            let Ok(()) = from.read(at, &mut bytes) else { continue };
            // its service ended before there was a lease
            is_new |= at == 0 && bytes.iter().all(|byte| *byte == 0);
            let state = State::decode(&bytes, pool).filter(|it| it.connection == connection);
            if let Some(state) = state
                && best.as_ref().is_none_or(|best| best.serial < state.serial)
            {
                best = Some(state);
            }
        }
        match best {
            Some(state) => Ok(state),
            None if is_new => Ok(State::new(connection)),
            None => Err(Error::Damaged(connection)),
        }
    }

    fn decode(bytes: &[u8], pool: &str) -> Option<State> {
        let (body, crc) = bytes.split_at_checked(CRC_AT)?;
        let crc = u32::from_le_bytes(crc.try_into().ok()?);
        if body[..8] != MAGIC || !pmem::crc_fits(checksum(pool, body), crc) {
            return None;
        }
        let word = |at| number(body, at);
        let mut slots = Vec::with_capacity(SLOTS);
        for at in (HEAD..CRC_AT).step_by(SLOT) {
            slots.push(Slot {
                generation: word(at)?,
                blocks: Blocks { ino: Ino(word(at + 8)?), blocks: word(at + 16)?..=word(at + 24)? },
                closed_at: word(at + 32)?,
                is_leased: word(at + 40)? & LEASED != 0,
                drops_set_id: word(at + 40)? & DROPS_SET_ID != 0,
            });
        }
        let connection = u128::from(word(16)?) | u128::from(word(24)?) << 64;
        let (serial, folded) = (word(8)?, word(32)?);
        Some(State { serial, connection, folded, number: word(40)?, slots })
    }
}

impl State {
    /// Whether a record happens: its leases are there and cover it, and its number is new.
    pub fn covers(&self, record: &Record<'_>, number: u64) -> bool {
        record.number > number && record.pieces.iter().all(|piece| self.covers_piece(piece))
    }

    fn covers_piece(&self, piece: &Piece<'_>) -> bool {
        let slot = &self.slots[usize::from(piece.slot)];
        let end = piece.offset.checked_add(piece.data.len() as u64);
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return false;
        }
        let (leased, blocks) = (&slot.blocks.blocks, piece.blocks());
        slot.is_leased
            && slot.generation == piece.generation
            && !piece.data.is_empty()
            && leased.contains(blocks.start())
            && leased.contains(blocks.end())
    }

    /// Whether request `number` under this lease happened, the lane being folded.
    pub fn happened(&self, slot: u8, generation: u64, number: u64) -> Happened {
        let Some(slot) = self.slots.get(usize::from(slot)) else { return Happened::No };
        let last = if slot.is_leased { self.number } else { slot.closed_at };
        match generation.cmp(&slot.generation) {
            std::cmp::Ordering::Less => Happened::Forgotten,
            std::cmp::Ordering::Equal if number <= last => Happened::Yes,
            _ => Happened::No,
        }
    }
}

fn checksum(pool: &str, bytes: &[u8]) -> u32 {
    pmem::crc32c(pmem::crc32c(0, pool.as_bytes()), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::Domain;

    fn noted() -> (Mapping, State) {
        let mapping = Mapping::memory(STATE_BYTES as usize, Domain::Process).unwrap();
        let mut state = State::new(7 << 100 | 5);
        state.folded = 640;
        state.number = 3;
        state.slots[31] = Slot {
            generation: 9,
            blocks: Blocks { ino: Ino(12), blocks: 5..=u64::MAX },
            is_leased: true,
            drops_set_id: true,
            closed_at: 2,
        };
        state.store(&mapping, "pool");
        (mapping, state)
    }

    #[test]
    fn what_is_noted_is_found() {
        let (mapping, mut state) = noted();
        let connection = 7 << 100 | 5;
        assert_eq!(State::load(&mapping, "pool", connection).unwrap(), state);
        state.folded = 1280;
        state.store(&mapping, "pool");
        assert_eq!(State::load(&mapping, "pool", connection).unwrap().folded, 1280);
        assert!(State::load(&mapping, "another", connection).is_err());
        assert!(State::load(&mapping, "pool", connection + 1).is_err());
    }

    #[test]
    fn a_copy_that_was_not_finished_is_none() {
        let (mapping, mut state) = noted();
        let before = state.clone();
        state.number = 4;
        state.store(&mapping, "pool");
        let at = state.serial % 2 * COPY_BYTES as u64;
        let _clean = fence(mapping.write(at + 40, &[9]));
        assert_eq!(State::load(&mapping, "pool", state.connection).unwrap(), before);
        let _clean = fence(mapping.write((COPY_BYTES as u64 - at) + 40, &[9]));
        assert!(matches!(State::load(&mapping, "pool", state.connection), Err(Error::Damaged(_))));
    }

    #[test]
    fn zeros_are_a_connection_without_leases() {
        let mapping = Mapping::memory(STATE_BYTES as usize, Domain::Process).unwrap();
        assert_eq!(State::load(&mapping, "pool", 3).unwrap(), State::new(3));
        let mut state = State::new(3);
        state.store(&mapping, "pool");
        assert_eq!(State::load(&mapping, "pool", 3).unwrap(), state);
        // the first that is written is not finished
        let _clean = fence(mapping.write(COPY_BYTES as u64 + 40, &[9]));
        assert_eq!(State::load(&mapping, "pool", 3).unwrap(), State::new(3));
        state.store(&mapping, "pool");
        let _clean = fence(mapping.write(40, &[9]));
        assert!(matches!(State::load(&mapping, "pool", 3), Err(Error::Damaged(_))));
    }
}
