//! What stretches of the log held that cannot be read.
//!
//! Bytes of damaged records are still there. Where the whole stretch decodes as records that fit
//! between the lane's whole ones, they say which files were changed, though not how: these files
//! are in doubt, and those whose numbers differ from theirs in one bit, for a number may be what
//! was damaged. Where it does not, any file that the log changes may have been changed there, too,
//! and any whose number is there but for one bit. What was made later is not in doubt.

use crate::attr::Stored;
use crate::core::Core;
use crate::item::{Item, Items};
use crate::item_decode;
use crate::keys;
use crate::repair::doubts::{ChangeTime, changed_by};
use crate::types::{FileKind, Ino};
use pool::{FLAG_SPILLED, INODE_COUNTER_MAX, KIND_CHANGE, KIND_EPOCH, LostStretch, Record};
use std::collections::{BTreeSet, HashMap};

/// Bytes of a record's head.
const HEAD_BYTES: usize = 24;
/// Bytes of a unit of its length.
const UNIT_BYTES: usize = 64;
/// Inodes that lost records can have made on a slice.
const NEW_INODES_MAX: u64 = 1 << 12;
/// How far clocks of CPUs, and a clock that was set, may be apart within a lane, ns.
const CLOCK_SLACK_NS: i64 = 3600 * 1_000_000_000;

/// A damaged record of which the items still decode.
#[derive(Debug)]
pub struct DescribedRecord {
    /// When it was made, by what it says.
    pub time_ns: i64,
    /// What it changed, by what it says.
    pub items: Items,
}

/// Whether a payload that was corrected makes sense; `is_weak`: only if it proves itself.
pub fn makes_sense(kind: u8, flags: u8, payload: &[u8], is_weak: bool) -> bool {
    if kind != KIND_CHANGE || flags == FLAG_SPILLED {
        return !is_weak;
    }
    let Some(items) = item_decode::decode(payload) else { return false };
    let proves = |item: &Item| match item {
        Item::Inline { placed, data, .. } => pmem::crc_fits(pmem::crc32c(0, data), placed.crc),
        _ => !is_weak,
    };
    !items.is_empty() && items.iter().all(proves)
}

impl Core {
    /// The records that a stretch held, if all of it still says what they were.
    pub fn described(&self, stretch: &LostStretch) -> Option<Vec<DescribedRecord>> {
        let (mut described, mut at) = (Vec::new(), 0);
        let mut stamp = stretch.after.map_or(0, |(stamp, _)| stamp);
        if stretch.bytes.is_empty() {
            return None;
        }
        while at < stretch.bytes.len() {
            let bytes = &stretch.bytes[at..];
            let head = RecordHead::read(bytes)?;
            let fits = head.len > 0
                && head.len <= bytes.len()
                && head.len.is_multiple_of(stretch.line_bytes)
                && head.stamp > stamp
                && stretch.before.is_none_or(|(before, _)| head.stamp < before)
                && head.fits_between(stretch);
            if !fits {
                return None;
            }
            stamp = head.stamp;
            at += head.len;
            if head.kind == KIND_EPOCH {
                continue;
            }
            if head.kind != KIND_CHANGE || head.flags != 0 {
                return None;
            }
            let items = item_decode::decode(&bytes[HEAD_BYTES..head.len])?;
            let inodes = items.iter().flat_map(changed_by);
            if items.is_empty() || !inodes.map(|(ino, _)| ino).all(|ino| self.may_be_inode(ino)) {
                return None;
            }
            described.push(DescribedRecord { time_ns: head.time_ns, items });
        }
        Some(described)
    }

    /// The inodes whose numbers are to be found in a stretch, whole or but for one bit: it cannot
    /// be read since bits of it were flipped, and a number may be among them.
    pub fn mentioned(&self, stretch: &LostStretch) -> BTreeSet<Ino> {
        let words = stretch.bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        self.numbered_like(words)
    }

    /// The inodes that there are whose numbers are among these, or differ from one in one bit.
    pub fn numbered_like(&self, numbers: impl Iterator<Item = u64>) -> BTreeSet<Ino> {
        let near = |number: u64| (0..u64::BITS).map(move |bit| number ^ 1 << bit).chain([number]);
        let near: BTreeSet<u64> = numbers.flat_map(near).filter(|number| *number > 255).collect();
        let may_be = near.into_iter().map(Ino).filter(|ino| self.may_be_inode(*ino));
        may_be.filter(|ino| self.inode(*ino).is_ok()).collect()
    }

    /// Whether the pool can have an inode of this number.
    pub fn may_be_inode(&self, ino: Ino) -> bool {
        let slice = usize::from(keys::home(ino));
        let counter = keys::counter_of(ino);
        ino == Ino::ROOT
            || (slice < self.pool.slices().len()
                && (1..INODE_COUNTER_MAX).contains(&counter)
                && counter < self.pool.slices()[slice].inodes_below() + NEW_INODES_MAX)
    }
}

struct RecordHead {
    len: usize,
    kind: u8,
    flags: u8,
    stamp: u64,
    time_ns: i64,
}

impl RecordHead {
    fn read(bytes: &[u8]) -> Option<RecordHead> {
        let mut head = crate::bytes::Bytes(bytes.get(4..HEAD_BYTES)?);
        Some(RecordHead {
            len: usize::from(head.u16()?) * UNIT_BYTES,
            kind: head.u8()?,
            flags: head.u8()?,
            stamp: head.u64()?,
            time_ns: head.i64()?,
        })
    }

    fn fits_between(&self, stretch: &LostStretch) -> bool {
        let ChangeTime { from, to } = time_of(stretch);
        let after = from.map_or(i64::MIN, |time| time.saturating_sub(CLOCK_SLACK_NS));
        let before = to.map_or(i64::MAX, |time| time.saturating_add(CLOCK_SLACK_NS));
        // that of an epoch is 0
        self.kind == KIND_EPOCH || (after..=before).contains(&self.time_ns)
    }
}

/// When what a stretch held was changed.
pub fn time_of(stretch: &LostStretch) -> ChangeTime {
    let time = |known: Option<(u64, i64)>| known.map(|(_, time)| time).filter(|time| *time != 0);
    ChangeTime { from: time(stretch.after), to: time(stretch.before) }
}

/// The stamps of the records that made inodes, by inode. The changes are in the order of stamps.
pub fn creations(changes: &[(&Record, Items)]) -> HashMap<Ino, u64> {
    let mut stamps = HashMap::new();
    for (record, items) in changes {
        for item in items {
            if let Item::Put { object, kind: keys::INODE, value, .. } = item
                && is_creation(value, record)
            {
                stamps.entry(Ino(*object)).or_insert(record.stamp);
            }
        }
    }
    stamps
}

/// Whether attributes in a record are those that the inode began with. Changes of one tick of the
/// clock have one time; those that follow the first write are told by its blocks and bytes.
pub fn is_creation(value: &[u8], record: &Record) -> bool {
    Stored::decode(value).is_some_and(|stored| {
        let times = [stored.created, stored.changed, stored.modified];
        let is_empty = stored.size == 0 || stored.kind == FileKind::Symlink;
        times.iter().all(|time| time.0 == record.time_ns) && is_empty && stored.blocks == 0
    })
}
