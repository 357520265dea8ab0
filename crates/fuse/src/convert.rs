//! Between the engine's words and those of `fuser`.

use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use nearside::FileKind;
use nearside::files::{Attr, Ino, Timestamp};

/// What stat(2) calls the preferred I/O size. Programs size their buffers by it, and every buffer
/// is one request: larger than a block, small enough not to waste memory.
const PREFERRED_IO_BYTES: u32 = 64 << 10;

pub(crate) fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// The kind in the type bits of a mode, for mknod(2).
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    Some(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => FileKind::File,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFBLK => FileKind::BlockDevice,
        _ => return None,
    })
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.sectors,
        atime: attr.accessed.to_system_time(),
        mtime: attr.modified.to_system_time(),
        ctime: attr.changed.to_system_time(),
        crtime: attr.created.to_system_time(),
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: PREFERRED_IO_BYTES,
        flags: 0,
    }
}

/// The time that a request gives, or `now`, which is to come from the engine's clock.
pub(crate) fn timestamp(time: TimeOrNow, now: Timestamp) -> Timestamp {
    match time {
        TimeOrNow::Now => now,
        TimeOrNow::SpecificTime(time) => Timestamp::from_system_time(mended(time)),
    }
}

/// Before 1970 the kernel says -2 s + 0.8 s for -1.2 s, and `fuser` 0.18 reads that as -2.8 s: it
/// takes the nanoseconds away where they are to be added.
fn mended(time: SystemTime) -> SystemTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => time,
        Err(before) => {
            let nanos = std::time::Duration::from_nanos(before.duration().subsec_nanos().into());
            time.checked_add(2 * nanos).unwrap_or(time)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970_are_mended() {
        let now = Timestamp(77);
        let given_by_fuser = UNIX_EPOCH - Duration::new(2, 800_000_000);
        let meant = Timestamp(-1_200_000_000);
        assert_eq!(timestamp(TimeOrNow::SpecificTime(given_by_fuser), now), meant);
        let whole = UNIX_EPOCH - Duration::from_secs(2);
        assert_eq!(timestamp(TimeOrNow::SpecificTime(whole), now), Timestamp(-2_000_000_000));
        let after = UNIX_EPOCH + Duration::new(1, 5);
        assert_eq!(timestamp(TimeOrNow::SpecificTime(after), now), Timestamp(1_000_000_005));
        assert_eq!(timestamp(TimeOrNow::Now, now), now);
    }
}
