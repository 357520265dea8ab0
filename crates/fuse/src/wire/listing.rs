//! The entries of a directory, as the kernel reads them.

use std::time::Duration;

use zerocopy::{FromZeros, IntoBytes};

use super::answers::{DirentHead, EntryAnswer, NodeAttr};

/// Entries begin at multiples of this.
const ALIGN_BYTES: usize = 8;
/// Largest listing, whatever room is offered, bytes.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// A listing that does not grow over its room.
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
    room: usize,
}

impl Listing {
    /// An empty listing for `room` bytes.
    pub fn new(room: u32) -> Listing {
        let room = (room as usize).min(ROOM_BYTES_MAX);
        Listing { bytes: Vec::with_capacity(room), room }
    }

    /// Adds an entry: its inode, the type bits of its mode, where to go on after it. False when it
    /// does not fit; then nothing is added.
    pub fn add(&mut self, ino: u64, mode: u32, offset: u64, name: &[u8]) -> bool {
        self.push(&[], ino, mode, offset, name)
    }

    /// Adds an entry with the attributes of its inode, which counts as a look-up; without them it
    /// is as from [`add`](Self::add).
    pub fn add_plus(
        &mut self,
        attr: Result<(NodeAttr, Duration), (u64, u32)>,
        offset: u64,
        name: &[u8],
    ) -> bool {
        match attr {
            Ok((attr, valid)) => {
                let entry = EntryAnswer::new(attr, valid);
                self.push(entry.as_bytes(), attr.ino, attr.mode, offset, name)
            }
            Err((ino, mode)) => {
                self.push(EntryAnswer::new_zeroed().as_bytes(), ino, mode, offset, name)
            }
        }
    }

    fn push(&mut self, entry: &[u8], ino: u64, mode: u32, offset: u64, name: &[u8]) -> bool {
        let head = DirentHead { ino, offset, name_bytes: name.len() as u32, kind: mode >> 12 };
        let bytes = entry.len() + size_of::<DirentHead>() + name.len();
        let end = self.bytes.len() + bytes.next_multiple_of(ALIGN_BYTES);
        if end > self.room {
            return false;
        }
        self.bytes.extend_from_slice(entry);
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
