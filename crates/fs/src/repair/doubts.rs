//! Doubts: changes of a file that a repair knows to be lost, or cannot rule out, by inode.
//!
//! A file in doubt may hold other bytes than were written last. It reads as an error in its place,
//! and what is known of it is put aside (`put_aside.rs`).

use crate::item::Item;
use crate::keys;
use crate::types::{Ino, Timestamp};
use pool::BLOCK_BYTES;
use std::collections::BTreeMap;

/// Doubts that are listed of one file; the others say nothing new.
const LISTED_MAX: usize = 8;

/// When a lost change was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChangeTime {
    /// Not before this, ns since 1970; none: unknown.
    pub from: Option<i64>,
    /// Not after this.
    pub to: Option<i64>,
}

impl ChangeTime {
    /// At this time.
    pub fn at(time_ns: i64) -> ChangeTime {
        ChangeTime { from: Some(time_ns), to: Some(time_ns) }
    }

    /// In words, in UTC.
    pub fn text(self) -> String {
        let utc = |time: i64| {
            let (date, clock) = Timestamp(time).utc_date_and_clock();
            format!("{date} {clock} UTC")
        };
        match (self.from, self.to) {
            (Some(from), Some(to)) if from == to => format!("of {}", utc(from)),
            (Some(from), Some(to)) => format!("between {} and {}", utc(from), utc(to)),
            (Some(from), None) => format!("after {}", utc(from)),
            (None, Some(to)) => format!("before {}", utc(to)),
            (None, None) => "of an unknown time".to_owned(),
        }
    }
}

/// Why a file is in doubt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doubt {
    /// What was changed, and how that is known.
    pub what: &'static str,
    /// Where in the file, bytes; none: anywhere.
    pub offset: Option<u64>,
    /// When.
    pub time: ChangeTime,
}

/// All doubts.
#[derive(Debug, Default)]
pub struct Doubts {
    by_inode: BTreeMap<Ino, Vec<Doubt>>,
}

impl Doubts {
    /// Adds a doubt of this inode.
    pub fn add(&mut self, ino: Ino, doubt: Doubt) {
        let doubts = self.by_inode.entry(ino).or_default();
        let is_known = |known: &Doubt| known.what == doubt.what && known.offset == doubt.offset;
        if doubts.len() < LISTED_MAX && !doubts.iter().any(is_known) {
            doubts.push(doubt);
        }
    }

    /// Adds a doubt of all that a record changed.
    pub fn add_items(&mut self, items: &[Item], what: &'static str, time: ChangeTime) {
        for (ino, offset) in items.iter().flat_map(changed_by) {
            self.add(ino, Doubt { what, offset, time });
        }
    }

    /// Takes all doubts.
    pub fn take(&mut self) -> BTreeMap<Ino, Vec<Doubt>> {
        std::mem::take(&mut self.by_inode)
    }
}

/// The inodes that an item changes, and where in the file, if it changes content at one place.
pub fn changed_by(item: &Item) -> impl Iterator<Item = (Ino, Option<u64>)> {
    let at = |block: u64| Some(block.saturating_mul(BLOCK_BYTES));
    let changed = match item {
        Item::Write { ino, block, .. }
        | Item::Inline { ino, block, .. }
        | Item::Punch { ino, block, .. } => Some((*ino, at(*block))),
        Item::Patch { ino, offset, .. } => Some((*ino, Some(*offset))),
        Item::Truncate { ino, size } => Some((*ino, Some(*size))),
        Item::Share(share) => Some((share.ino, at(share.block))),
        Item::Reserve { ino, .. } | Item::Move { ino, .. } => Some((*ino, None)),
        Item::Drop { ino } => Some((*ino, None)),
        Item::Touch { ino, .. } => Some((*ino, None)),
        Item::Put { object: 0, index, .. } | Item::Delete { object: 0, index, .. } => {
            Some((Ino(*index), None))
        }
        Item::Put { object, .. } | Item::Delete { object, .. } => Some((Ino(*object), None)),
        Item::Request { .. } => None,
    };
    changed.into_iter()
}

/// The inode that an entry names which an item adds.
pub fn named_by(item: &Item) -> Option<Ino> {
    match item {
        Item::Put { object, kind: keys::DIRENT, value, .. } if *object != 0 => {
            crate::dir::Dirent::decode(value).map(|entry| entry.ino)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_utc() {
        let time = |from, to| ChangeTime { from, to }.text();
        let second = 1_000_000_000;
        assert_eq!(ChangeTime::at(86_400 * second).text(), "of 1970-01-02 00:00:00 UTC");
        assert_eq!(
            time(Some(0), Some(61 * second)),
            "between 1970-01-01 00:00:00 UTC and 1970-01-01 00:01:01 UTC"
        );
        assert_eq!(time(Some(0), None), "after 1970-01-01 00:00:00 UTC");
        assert_eq!(time(None, Some(0)), "before 1970-01-01 00:00:00 UTC");
        assert_eq!(time(None, None), "of an unknown time");
    }
}
