//! What the file system stores in the trees: kinds of keys, and where an inode is at home.

use crate::types::Ino;
use pool::BlockAddr;
use pool::tree::Key;

/// Attributes of an inode.
pub const INODE: u8 = 1;
/// A leaf of a file's block map; index = file offset / (128 * 4 KiB).
pub const MAP: u8 = 2;
/// Bytes that overlay one block; index = file offset / 4 KiB.
pub const PATCH: u8 = 3;
/// A directory entry; index = its cookie.
pub const DIRENT: u8 = 4;
/// A part of an extended attribute; index = its number << 8 | part.
pub const XATTR: u8 = 5;
/// A part of a symbolic link's target.
pub const SYMLINK: u8 = 6;
/// Object 0: an inode without a name that was open; index = its number.
pub const ORPHAN: u8 = 1;
/// Object 0, in the tree of [`TICKETS_SLICE`]: a request whose change is made, and that may not be
/// answered; index = a number of its own.
pub const TICKET: u8 = 2;
/// The slice whose tree has the tickets.
pub const TICKETS_SLICE: u8 = 0;

/// Object 0, in the tree of the slice that has the blocks: how many places blocks have that may
/// have several; index = address / [`REFERENCES_BLOCKS`].
pub const REFERENCES: u8 = 3;
/// Blocks of one such value.
pub const REFERENCES_BLOCKS: u64 = 128;

/// The key of one fact about an inode.
pub fn key(ino: Ino, kind: u8, index: u64) -> Key {
    Key::new(ino.0, kind, index)
}

/// All keys of an inode: `[from, to)`.
pub fn all_of(ino: Ino) -> (Key, Key) {
    (Key::new(ino.0, 0, 0), Key::new(ino.0 + 1, 0, 0))
}

/// The keys of one kind of an inode from `index` on: `[from, to)`.
pub fn from_index(ino: Ino, kind: u8, index: u64) -> (Key, Key) {
    (Key::new(ino.0, kind, index), Key::new(ino.0, kind + 1, 0))
}

/// The key that remembers an orphan.
pub fn orphan(ino: Ino) -> Key {
    Key::new(0, ORPHAN, ino.0)
}

/// Its value where the inode lost its last name.
pub const UNLINKED: &[u8] = &[];
/// Its value where the inode never had a name, and may be given one. Behind it is the request that
/// made the inode, as in a ticket, if that has an id.
pub const UNNAMED: &[u8] = &[1];

/// The key of a ticket.
pub fn ticket(number: u64) -> Key {
    Key::new(0, TICKET, number)
}

/// The keys of all tickets: `[from, to)`.
pub fn tickets() -> (Key, Key) {
    (ticket(0), Key::new(0, TICKET + 1, 0))
}

/// The key of the references to a block and its neighbours.
pub fn references(addr: BlockAddr) -> Key {
    Key::new(0, REFERENCES, addr.bits() / REFERENCES_BLOCKS)
}

/// The slice where an inode's keys are: the low byte of its number (the root's is slice 0).
pub fn home(ino: Ino) -> u8 {
    if ino == Ino::ROOT { 0 } else { ino.0 as u8 }
}

/// The inode with this counter at home on `slice`.
pub fn ino_of(slice: u8, counter: u64) -> Ino {
    Ino(counter << 8 | u64::from(slice))
}

/// The counter in an inode's number.
pub fn counter_of(ino: Ino) -> u64 {
    ino.0 >> 8
}
