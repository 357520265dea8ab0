//! Who wrote to a slice last: the boot of the machine, whether the pool was closed, and how often
//! the memory had lost power with data on its way by then.
//!
//! In the `sync` domain it decides what recovery may believe: after a mere kill the page cache
//! still has every store; after a restart of the machine only what was synced counts. So it is of
//! another medium than that which was open: a snapshot, a copy, a disk that was taken away.
//!
//! In `cpu-flush` and `cpu-cache` a store counts as durable once the platform has promised to
//! carry it to the medium when the power fails. The DIMMs count when that went wrong: if they have
//! counted since a slice was opened, what was acknowledged may be missing.

use crate::error::Result;
use crate::superblock::{BLOCK_BYTES, STATE_BLOCK};
use pmem::{Domain, Mapping, crc_fits};
use std::mem::offset_of;
use std::sync::OnceLock;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of the state.
pub const STATE_MAGIC: [u8; 8] = *b"NSSTATE1";

/// The medium is not known: what builds before wrote, and where there is no file.
const NOT_KNOWN: u32 = 1;

/// The state's bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// [`STATE_MAGIC`].
    pub magic: [u8; 8],
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// 1 while the pool is open for writing.
    pub open: U32,
    /// 1 if the memory counts its unsafe shutdowns.
    pub counted: U32,
    /// Unsafe shutdowns that it had counted when this was written.
    pub unsafe_shutdowns: U64,
    /// The medium of the second copy; 0: there is none, or it is not known.
    pub second: U32,
    /// CRC-32C of everything before.
    pub crc: U32,
}

// docs/FORMAT.md says these
const _: () = assert!(size_of::<State>() == 48);
const _: () = assert!(offset_of!(State, unsafe_shutdowns) == 32);
const _: () = assert!(offset_of!(State, second) == 40);
const _: () = assert!(offset_of!(State, crc) == 44);

/// How the pool was left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Left {
    /// It was closed, or never opened.
    Closed,
    /// It was open, and the machine has not restarted since.
    Killed,
    /// It was open when the machine restarted; or, in `sync`, this is not the medium that was open:
    /// a snapshot of it, a copy, or a disk that was away meanwhile.
    Crashed,
    /// The machine restarted, and the memory says that it lost power with data still on its way:
    /// what was acknowledged may be missing.
    Lost,
}

/// This boot's id.
pub fn boot_id() -> [u8; 16] {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    *ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        uuid::Uuid::parse_str(text.trim()).map(|id| *id.as_bytes()).unwrap_or_default()
    })
}

impl State {
    /// The state, from now on, of a slice in this memory. `open`: it is open for writing, and these
    /// are the media of its copies.
    pub fn now(mapping: &Mapping, open: Option<&[Option<u32>]>, boot: [u8; 16]) -> State {
        let medium = |copy: usize| open.and_then(|media| *media.get(copy)?);
        let count = mapping.unsafe_shutdown_count();
        let state = State {
            magic: STATE_MAGIC,
            boot,
            open: U32::new(open.map_or(0, |_| medium(0).unwrap_or(NOT_KNOWN))),
            counted: U32::new(u32::from(count.is_some())),
            unsafe_shutdowns: U64::new(count.unwrap_or(0)),
            second: U32::new(medium(1).unwrap_or(0)),
            crc: U32::new(0),
        };
        State { crc: U32::new(state.checksum()), ..state }
    }

    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        pmem::crc32c(0, bytes.get(..bytes.len() - 4).unwrap_or_default())
    }

    /// How the slice was left, seen from this boot. A state that cannot be read promises nothing:
    /// crashed.
    pub fn left(mapping: &Mapping, boot: [u8; 16]) -> Result<Left> {
        let Some(state) = State::read(mapping) else { return Ok(Left::Crashed) };
        if state.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(Left::Closed);
        }
        if !state.is_whole() {
            return Ok(Left::Crashed);
        }
        let closed = state.open.get() == 0;
        Ok(if state.lost(mapping) {
            Left::Lost
        } else if closed {
            Left::Closed
        } else if state.is_of_boot(boot) && state.is_of_this(mapping) {
            Left::Killed
        } else {
            Left::Crashed
        })
    }

    /// Whether the slice was left open in this boot, on another medium.
    pub fn is_elsewhere(mapping: &Mapping, boot: [u8; 16]) -> bool {
        State::read(mapping).is_some_and(|state| {
            let is_open = state.is_whole() && state.open.get() != 0;
            is_open && state.is_of_boot(boot) && !state.is_of_this(mapping)
        })
    }

    /// What lies in a copy of the slice, whatever it is. `None`: it cannot be read.
    fn read(mapping: &Mapping) -> Option<State> {
        let mut bytes = [0u8; size_of::<State>()];
        mapping.read_own(STATE_BLOCK * BLOCK_BYTES, &mut bytes).ok()?;
        State::read_from_bytes(&bytes).ok()
    }

    fn is_whole(&self) -> bool {
        self.magic == STATE_MAGIC && crc_fits(self.checksum(), self.crc.get())
    }

    fn is_of_boot(&self, boot: [u8; 16]) -> bool {
        self.boot == boot && boot != [0; 16]
    }

    /// The same of a slice with a mirror: what one copy's memory lost the other has.
    pub fn left_either(mapping: &Mapping, boot: [u8; 16]) -> Result<Left> {
        let first = State::left(mapping, boot)?;
        let Some(mirror) = mapping.mirror() else { return Ok(first) };
        let second = State::left(mirror, boot)?;
        Ok(match (first, second) {
            (Left::Lost, other) | (other, Left::Lost) => other,
            (first, second) => first.max(second),
        })
    }

    /// Whether this is one of the media that it was open on, as far as that is known and matters:
    /// where nothing is synced, the page cache has all of another medium's, too.
    fn is_of_this(&self, mapping: &Mapping) -> bool {
        let (first, second) = (self.open.get(), self.second.get());
        mapping.domain() != Domain::Sync
            || first == NOT_KNOWN
            || mapping.medium_id().is_none_or(|medium| medium == first || medium == second)
    }

    /// Whether the memory lost something that we had taken for durable. A closed pool has nothing
    /// on its way but in the CPU's caches, where those are trusted.
    fn lost(&self, mapping: &Mapping) -> bool {
        let grown = self.counted.get() != 0
            && mapping.unsafe_shutdown_count() > Some(self.unsafe_shutdowns.get());
        match mapping.domain() {
            Domain::CpuCache => grown,
            Domain::CpuFlush => grown && self.open.get() != 0,
            _ => false,
        }
    }

    /// Writes it to this copy of the slice.
    pub fn write(&self, mapping: &Mapping) -> Result<()> {
        let _ = pmem::fence(mapping.write_own(STATE_BLOCK * BLOCK_BYTES, self.as_bytes()));
        Ok(mapping.sync()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmem::Domain;

    const BOOT: [u8; 16] = [8; 16];

    #[test]
    fn a_pool_left_open_was_killed_or_crashed_by_the_boot_id() {
        let mapping = Mapping::memory(1 << 20, Domain::Process).expect("memory");
        assert_eq!(State::left(&mapping, BOOT).expect("reads"), Left::Closed);
        State::now(&mapping, Some(&[]), BOOT).write(&mapping).expect("writes");
        assert_eq!(State::left(&mapping, BOOT).expect("reads"), Left::Killed);
        State::now(&mapping, None, BOOT).write(&mapping).expect("writes");
        assert_eq!(State::left(&mapping, BOOT).expect("reads"), Left::Closed);
        State::now(&mapping, Some(&[]), [9; 16]).write(&mapping).expect("writes");
        assert_eq!(State::left(&mapping, BOOT).expect("reads"), Left::Crashed);
        let _ = pmem::fence(mapping.write(STATE_BLOCK * BLOCK_BYTES + 9, &[77]));
        assert_eq!(State::left(&mapping, BOOT).expect("reads"), Left::Crashed, "torn");
    }
}
