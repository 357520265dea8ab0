//! Who has all that a mirrored pool has: the files of its slices that were written to whenever the
//! pool was.
//!
//! A file that was away while the pool was changed is stale: it is not read until everything is
//! copied to it. Each such change of who is current is counted, and has an id made of all before
//! it: of two files that were both changed without the other, neither is taken for stale.

use crate::superblock::BLOCK_BYTES;
use pmem::{Mapping, crc_fits};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of it.
pub const MEMBERS_MAGIC: [u8; 8] = *b"NSMEMB01";
/// Block that holds it, in each half of a file.
pub const MEMBERS_BLOCK: u64 = 6;
/// Ids of changes that are kept.
const HISTORY: usize = 24;

/// The bytes of it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Members {
    /// [`MEMBERS_MAGIC`].
    pub magic: [u8; 8],
    /// Identity of the pool.
    pub pool_uuid: [u8; 16],
    /// How often it has changed who is current.
    pub changes: U64,
    /// A bit for each slice: its file is stale.
    pub stale: [u8; 32],
    /// Ids of the last changes; that of change `n` is number `n % 24`.
    pub history: [U64; HISTORY],
    /// Room.
    pub reserved: [u8; 56],
    /// CRC-32C of everything before.
    pub crc: U32,
    /// Room.
    pub tail: U32,
}

// docs/FORMAT.md says these
const _: () = assert!(size_of::<Members>() == 320);
const _: () = assert!(offset_of!(Members, changes) == 24);
const _: () = assert!(offset_of!(Members, history) == 64);
const _: () = assert!(offset_of!(Members, crc) == 312);

/// What a file that knows of earlier changes is to one that knows of later ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Past {
    /// It was there until then, and knows nothing that the other does not.
    Known,
    /// It was there so long ago that nobody can say.
    Forgotten,
    /// It was changed without the other.
    Other,
}

impl Members {
    /// All files are current.
    pub fn new(pool_uuid: [u8; 16]) -> Members {
        let mut members: Members = zerocopy::FromZeros::new_zeroed();
        members.magic = MEMBERS_MAGIC;
        members.pool_uuid = pool_uuid;
        members.changed()
    }

    /// Whether the file of a slice is stale.
    pub fn is_stale(&self, index: usize) -> bool {
        self.stale.get(index / 8).is_some_and(|bits| bits >> (index % 8) & 1 != 0)
    }

    /// From now on the file of a slice is stale, or current; [`changed`](Members::changed) says so.
    pub fn set_stale(&mut self, index: usize, stale: bool) {
        if let Some(bits) = self.stale.get_mut(index / 8) {
            *bits = *bits & !(1 << (index % 8)) | u8::from(stale) << (index % 8);
        }
    }

    /// One change more, with an id and a checksum.
    pub fn changed(mut self) -> Members {
        let changes = self.changes.get() + 1;
        let mut past = self.pool_uuid.to_vec();
        past.extend(changes.to_le_bytes());
        past.extend(self.stale);
        past.extend(self.id(self.changes.get()).to_le_bytes());
        let low = pmem::crc32c(0, &past);
        past.reverse();
        let id = u64::from(low) | u64::from(pmem::crc32c(!low, &past)) << 32;
        self.changes = U64::new(changes);
        self.history[place(changes)] = U64::new(id);
        self.crc = U32::new(self.checksum());
        self
    }

    fn id(&self, change: u64) -> u64 {
        self.history[place(change)].get()
    }

    /// What `earlier` is to this one, which has as many changes or more.
    pub fn past(&self, earlier: &Members) -> Past {
        let change = earlier.changes.get();
        if self.changes.get() - change >= HISTORY as u64 {
            Past::Forgotten
        } else if self.id(change) == earlier.id(change) {
            Past::Known
        } else {
            Past::Other
        }
    }

    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        pmem::crc32c(0, bytes.get(..bytes.len() - 8).unwrap_or_default())
    }

    /// What the half of a file in this memory says.
    pub fn read(half: &Mapping, pool_uuid: &[u8; 16]) -> Option<Members> {
        let mut bytes = [0; size_of::<Members>()];
        half.read_own(MEMBERS_BLOCK * BLOCK_BYTES, &mut bytes).ok()?;
        let (members, _) = Members::read_from_prefix(&bytes).ok()?;
        let whole = members.magic == MEMBERS_MAGIC
            && members.pool_uuid == *pool_uuid
            && (1..u64::MAX >> 1).contains(&members.changes.get())
            && crc_fits(members.checksum(), members.crc.get());
        whole.then_some(members)
    }

    /// Writes it to one half of a file, durably.
    pub fn write(&self, half: &Mapping) -> pmem::Result<()> {
        let _ = pmem::fence(half.write_own(MEMBERS_BLOCK * BLOCK_BYTES, self.as_bytes()));
        half.sync()
    }
}

fn place(change: u64) -> usize {
    (change % HISTORY as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::Domain;

    fn with_stale(before: Members, index: usize, stale: bool) -> Members {
        let mut members = before;
        members.set_stale(index, stale);
        members.changed()
    }

    #[test]
    fn who_was_away_is_known_and_who_was_changed_meanwhile_is_told_apart() {
        let all = Members::new([7; 16]);
        let without_1 = with_stale(all, 1, true);
        let without_0 = with_stale(all, 0, true);
        assert!(without_1.is_stale(1) && !without_1.is_stale(0) && !all.is_stale(1));
        assert_eq!(without_1.past(&all), Past::Known);
        assert_eq!(without_1.past(&without_0), Past::Other);
        // however often one of them was changed since
        let mut later = without_1;
        for turn in 0..10 {
            later = with_stale(later, 1, turn % 2 == 1);
        }
        assert_eq!(later.past(&without_1), Past::Known);
        assert_eq!(later.past(&without_0), Past::Other);
        for turn in 0..12 {
            later = with_stale(later, 1, turn % 2 == 1);
        }
        assert_eq!((later.changes.get(), later.past(&all)), (24, Past::Known));
        assert_eq!(with_stale(later, 254, true).past(&all), Past::Forgotten);
        assert!(with_stale(later, 254, true).is_stale(254));
    }

    #[test]
    fn what_is_torn_or_another_pools_says_nothing() {
        let half = Mapping::memory(1 << 20, Domain::Process).unwrap();
        let members = with_stale(Members::new([7; 16]), 3, true);
        assert_eq!(Members::read(&half, &[7; 16]), None);
        members.write(&half).unwrap();
        assert_eq!(Members::read(&half, &[7; 16]), Some(members));
        assert_eq!(Members::read(&half, &[8; 16]), None);
        for byte in (0..size_of::<Members>() as u64 - 8).step_by(5) {
            let _ = pmem::fence(half.write(MEMBERS_BLOCK * BLOCK_BYTES + byte, &[0xA5]));
            assert_eq!(Members::read(&half, &[7; 16]), None, "byte {byte}");
            members.write(&half).unwrap();
        }
    }
}
