//! Attributes of an inode as a value of the tree.
//!
//! ```text
//!  0  u8   kind          8  u32  uid          24  u64  size (directories: entries)
//!  1  u8   flags        12  u32  gid          32  u64  blocks of data
//!  2  u16  mode         16  u32  rdev         40  i64  accessed   48  i64  modified
//!  4  u32  links        20  u32  placing          56  i64  changed    64  i64  created
//!                                             72  u64  parent (directories)
//!                                             80  u64  stamp
//! ```

use crate::bytes::Bytes;
use crate::placing::Placing;
use crate::types::{FILE_BYTES_MAX, FileKind, Ino, Timestamp};
use pool::STAMP_AT_OPEN_MAX;

/// Bytes of the value.
pub const BYTES: usize = 88;

/// The stored attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// What the inode is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Bytes; of a directory: entries.
    pub size: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of attributes.
    pub changed: Timestamp,
    /// Creation.
    pub created: Timestamp,
    /// Of a directory: the directory that holds it.
    pub parent: Ino,
    /// Where new blocks go, and what may move; a directory's is inherited.
    pub placing: Placing,
    /// The highest stamp among the changes to it.
    pub stamp: u64,
    /// In a record: `modified` is what the change is about (flag 1). Otherwise it, like `size` and
    /// `blocks`, is what happened to be at the time, and replay leaves to the writes' own records.
    pub sets_modified: bool,
}

const SETS_MODIFIED: u8 = 1;

impl Stored {
    /// Of an inode that is made at this time, empty, with one name, and root's.
    pub fn new(kind: FileKind, mode: u16, time: Timestamp) -> Stored {
        Stored {
            kind,
            mode,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            accessed: time,
            modified: time,
            changed: time,
            created: time,
            parent: Ino::ROOT,
            placing: Placing::default(),
            stamp: 0,
            sets_modified: false,
        }
    }

    /// As a value.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut out = [0u8; BYTES];
        out[0] = self.kind as u8;
        out[1] = u8::from(self.sets_modified) * SETS_MODIFIED;
        out[2..4].copy_from_slice(&self.mode.to_le_bytes());
        out[4..8].copy_from_slice(&self.links.to_le_bytes());
        out[8..12].copy_from_slice(&self.uid.to_le_bytes());
        out[12..16].copy_from_slice(&self.gid.to_le_bytes());
        out[16..20].copy_from_slice(&self.rdev.to_le_bytes());
        out[20..24].copy_from_slice(&self.placing.code().to_le_bytes());
        let words = [
            self.size,
            self.blocks,
            self.accessed.0 as u64,
            self.modified.0 as u64,
            self.changed.0 as u64,
            self.created.0 as u64,
            self.parent.0,
            self.stamp,
        ];
        for (place, word) in out[24..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The attributes that a value says, if it makes sense.
    pub fn decode(value: &[u8]) -> Option<Stored> {
        let mut bytes = Bytes(value);
        if value.len() != BYTES {
            return None;
        }
        let kind = FileKind::from_code(bytes.u8()?)?;
        let flags = bytes.u8()?;
        let mode = bytes.u16()?;
        let (links, uid, gid, rdev) = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
        let placing = Placing::from_code(bytes.u32()?)?;
        if flags > SETS_MODIFIED || mode > 0o7777 {
            return None;
        }
        let stored = Stored {
            kind,
            mode,
            links,
            uid,
            gid,
            rdev,
            size: bytes.u64()?,
            blocks: bytes.u64()?,
            accessed: Timestamp(bytes.i64()?),
            modified: Timestamp(bytes.i64()?),
            changed: Timestamp(bytes.i64()?),
            created: Timestamp(bytes.i64()?),
            parent: Ino(bytes.u64()?),
            placing,
            stamp: bytes.u64()?,
            sets_modified: flags == SETS_MODIFIED,
        };
        let size_max = match kind {
            FileKind::Directory => u64::MAX / 64,
            _ => FILE_BYTES_MAX,
        };
        let blocks_max = FILE_BYTES_MAX / 4096;
        let fine = stored.size <= size_max && stored.blocks <= blocks_max;
        (fine && stored.stamp <= STAMP_AT_OPEN_MAX).then_some(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn attributes_round_trip() {
        let stored = Stored {
            kind: FileKind::Directory,
            mode: 0o1755,
            links: 3,
            uid: 1,
            gid: 2,
            rdev: 4,
            size: 5,
            blocks: 6,
            accessed: Timestamp(-7),
            modified: Timestamp(8),
            changed: Timestamp(9),
            created: Timestamp(10),
            parent: Ino(11),
            placing: Placing { layout: Layout::Node(300), ..Placing::default() },
            stamp: 12,
            sets_modified: true,
        };
        assert_eq!(Stored::decode(&stored.encode()), Some(stored));
        assert_eq!(Stored::decode(&[1; BYTES - 1]), None);
        assert_eq!(Stored::decode(&[99; BYTES]), None);
        // no change could follow it
        let last = Stored { stamp: STAMP_AT_OPEN_MAX + 1, ..stored };
        assert_eq!(Stored::decode(&last.encode()), None);
    }
}
