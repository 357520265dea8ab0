//! Between the engine's words and those of the protocol.

use nearside::FileKind;
use nearside::files::{Attr, Timestamp};

use crate::wire::{NodeAttr, SetattrTime, StatxAnswer, StatxTime};

/// What stat(2) calls the preferred I/O size. Programs size their buffers by it, and every buffer
/// is one request: larger than a block, small enough not to waste memory.
const PREFERRED_IO_BYTES: u32 = 64 << 10;
const SECOND_NS: i64 = 1_000_000_000;
/// STATX_BASIC_STATS and STATX_BTIME.
const STATX_MASK: u32 = 0xfff;

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

pub(crate) fn node_attr(attr: &Attr) -> NodeAttr {
    let (accessed_s, accessed_ns) = attr.accessed.parts();
    let (modified_s, modified_ns) = attr.modified.parts();
    let (changed_s, changed_ns) = attr.changed.parts();
    NodeAttr {
        ino: attr.ino.0,
        size: attr.size,
        sectors: attr.sectors,
        accessed_s,
        modified_s,
        changed_s,
        accessed_ns,
        modified_ns,
        changed_ns,
        mode: attr.kind.type_bits() | u32::from(attr.mode),
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_bytes: PREFERRED_IO_BYTES,
        flags: 0,
    }
}

pub(crate) fn statx(attr: &Attr, valid: std::time::Duration) -> StatxAnswer {
    let time = |time: Timestamp| {
        let (s, ns) = time.parts();
        StatxTime { s, ns, padding: 0 }
    };
    StatxAnswer {
        valid_s: valid.as_secs(),
        valid_ns: valid.subsec_nanos(),
        mask: STATX_MASK,
        block_bytes: PREFERRED_IO_BYTES,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.kind.type_bits() as u16 | attr.mode,
        ino: attr.ino.0,
        size: attr.size,
        sectors: attr.sectors,
        accessed: time(attr.accessed),
        created: time(attr.created),
        changed: time(attr.changed),
        modified: time(attr.modified),
        rdev: [(attr.rdev & 0xf_ff00) >> 8, (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xf_ff00)],
        ..StatxAnswer::default()
    }
}

/// The time that a request gives, or `now`, which is to come from the engine's clock.
pub(crate) fn timestamp(time: SetattrTime, now: Timestamp) -> Timestamp {
    match time {
        SetattrTime::Now => now,
        SetattrTime::At { s, ns } => {
            let whole = i128::from(s) * i128::from(SECOND_NS) + i128::from(ns);
            // Held to what the engine can say (1677 to 2262).
            let near = whole.clamp(i64::MIN.into(), i64::MAX.into());
            Timestamp(near as i64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// -1.2 s is said as -2 s and 0.8 s more.
    #[test]
    fn times_before_1970_come_and_go_unchanged() {
        let now = Timestamp(77);
        for nanos in [-1_200_000_000, -2_000_000_000, -1, 0, 1_000_000_005, i64::MAX, i64::MIN] {
            let (s, ns) = Timestamp(nanos).parts();
            assert!(ns < 1_000_000_000);
            assert_eq!(timestamp(SetattrTime::At { s, ns }, now), Timestamp(nanos));
        }
        assert_eq!(Timestamp(-1_200_000_000).parts(), (-2, 800_000_000));
        assert_eq!(timestamp(SetattrTime::Now, now), now);
        let far = SetattrTime::At { s: i64::MAX, ns: 0 };
        assert_eq!(timestamp(far, now), Timestamp(i64::MAX));
        let past = SetattrTime::At { s: i64::MIN, ns: 0 };
        assert_eq!(timestamp(past, now), Timestamp(i64::MIN));
    }
}
