//! The words of the file system's interface: inode numbers, attributes, and what a call may ask.

use crate::layout::Layout;
use placement::Lever;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest name of a directory entry, bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link, bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Longest value of an extended attribute, bytes (Linux's own limit).
pub const XATTR_BYTES_MAX: usize = 65_536;
/// Largest file, bytes (64 TiB): as far as the block map in memory reaches.
pub const FILE_BYTES_MAX: u64 = 64 << 40;
/// Largest write that is atomic as a whole, bytes; a larger call is split at this size.
pub const ATOMIC_WRITE_BYTES_MAX: usize = 2 << 20;
/// Most hard links of one inode.
pub const LINKS_MAX: u32 = 65_000;
/// Links of a directory: two, and one of each directory in it.
pub const DIRECTORY_LINKS_MAX: u32 = u32::MAX - 1;

/// The number of an inode: unique in its pool, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
}

/// Nanoseconds since 1970-01-01 UTC, negative before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Now, by the clock that every change goes by. It ticks every few milliseconds: a time from a
    /// finer one would be later than those of changes that come after it.
    pub fn now() -> Timestamp {
        Timestamp(crate::clock::now())
    }

    /// Whole seconds since 1970, rounded down, and nanoseconds to be added.
    pub fn parts(self) -> (i64, u32) {
        const SECOND_NS: i64 = 1_000_000_000;
        (self.0.div_euclid(SECOND_NS), self.0.rem_euclid(SECOND_NS) as u32)
    }

    /// The same instant as the standard library's type.
    pub fn to_system_time(self) -> SystemTime {
        let distance = Duration::from_nanos(self.0.unsigned_abs());
        if self.0 >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
    }

    /// The instant, held to what 64 bits of nanoseconds can say (1677 to 2262).
    pub fn from_system_time(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX)),
            Err(before) => {
                Timestamp(i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n))
            }
        }
    }
}

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A socket's name.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl FileKind {
    /// The kind of this code on media, if it is one.
    pub fn from_code(code: u8) -> Option<FileKind> {
        Some(match code {
            1 => FileKind::File,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::Fifo,
            5 => FileKind::Socket,
            6 => FileKind::CharDevice,
            7 => FileKind::BlockDevice,
            _ => return None,
        })
    }

    /// The type bits of a mode, as in `stat(2)`.
    pub fn type_bits(self) -> u32 {
        match self {
            FileKind::File => libc::S_IFREG,
            FileKind::Directory => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::Fifo => libc::S_IFIFO,
            FileKind::Socket => libc::S_IFSOCK,
            FileKind::CharDevice => libc::S_IFCHR,
            FileKind::BlockDevice => libc::S_IFBLK,
        }
    }
}

/// The attributes of an inode, as `stat` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, setuid, setgid and sticky (`07777`).
    pub mode: u16,
    /// Number of names (for a directory: 2 + subdirectories).
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte sectors that its data occupies.
    pub sectors: u64,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of attributes.
    pub changed: Timestamp,
    /// Creation.
    pub created: Timestamp,
}

/// What `setattr` changes; `None` leaves a field as it is. `changed` is always set to now.
#[derive(Clone, Copy, Default, Debug)]
pub struct SetAttr {
    /// New permission bits.
    pub mode: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size, bytes (truncate or extend with zeros).
    pub size: Option<u64>,
    /// New time of the last read.
    pub accessed: Option<Timestamp>,
    /// New time of the last change of content.
    pub modified: Option<Timestamp>,
    /// Both times become that of this change. A caller who may write the inode may do that;
    /// other times are set by its owner alone (utimensat(2)).
    pub touches: bool,
    /// Where blocks that are written from now on go.
    pub layout: Option<Layout>,
    /// How far its data may move to its readers,
    pub move_data: Option<Lever>,
    /// and its readers to its data.
    pub move_threads: Option<Lever>,
}

impl SetAttr {
    /// Whether it says where blocks lie, or whether they move.
    pub(crate) fn places(&self) -> bool {
        self.layout.is_some() || self.move_data.is_some() || self.move_threads.is_some()
    }
}

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub enum NewNode<'a> {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A pipe, socket or device: its kind and device number.
    Special(FileKind, u32),
}

/// Who makes a new inode and with which permission bits.
#[derive(Clone, Copy, Debug)]
pub struct Creation {
    /// Permission bits that are asked for.
    pub mode: u16,
    /// Bits that are taken away from them, unless the directory has a default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group (a set-group-id directory gives its own instead).
    pub gid: u32,
}

/// What rename does when the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replace it (rename(2)).
    Replace,
    /// Fail with EEXIST (RENAME_NOREPLACE).
    NoReplace,
    /// Exchange the two (RENAME_EXCHANGE).
    Exchange,
    /// Replace it, and leave a whiteout under the old name: a character device 0:0, by which an
    /// overlay knows a name as removed (RENAME_WHITEOUT).
    Whiteout {
        /// The whiteout's owner.
        uid: u32,
        /// Its group (a set-group-id directory gives its own instead).
        gid: u32,
    },
}

/// What `fallocate` does with a range.
///
/// Ranges are not collapsed or inserted: that gives every block behind them another place in the
/// file, and leaves, patches and the log's records all go by places. A record of a few bytes would
/// do, but all leaves behind the range would have to be in DRAM, locked and changed at one moment,
/// and written anew by the next checkpoint: a bound that the caches and the reserve do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Reserve: extend the size if the range ends beyond it (unless `keep_size`).
    Allocate {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Free the range; it reads as zeros. The size stays.
    PunchHole,
    /// Make the range read as zeros, extend the size unless `keep_size`.
    Zero {
        /// Leave the size as it is.
        keep_size: bool,
    },
}

/// Whether `setxattr` may create or replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum XattrMode {
    /// Either.
    Any,
    /// Fail with EEXIST if it is there (XATTR_CREATE).
    Create,
    /// Fail with ENODATA if it is not (XATTR_REPLACE).
    Replace,
}

/// One entry that `readdir` gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Its name, without slashes or NUL.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: Ino,
    /// What that inode is.
    pub kind: FileKind,
    /// Give this to `readdir` to go on after this entry; stable under inserts and checkpoints.
    pub cookie: u64,
}

/// The space of a pool, as `statfs` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Data blocks in all slices.
    pub blocks: u64,
    /// Blocks that can be allocated.
    pub blocks_free: u64,
    /// Inodes that exist.
    pub inodes: u64,
    /// Inodes that could still be made (bounded by space).
    pub inodes_free: u64,
}
