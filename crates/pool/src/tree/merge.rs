//! A leaf's entries and the changes to them, merged in the order of keys.

use super::{Change, Key, TreeError, page::Page};
use std::cmp::Ordering;

/// New entries side by side from this many on are a run that will go on, such as the extents of a
/// file that is being written; fewer may be chance.
const APPENDED_MIN: usize = 4;

/// The part of a batch that concerns one page and what is below it.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Ascending.
    pub changes: &'a [(Key, Change)],
    /// Ascending and disjoint; the first and the last may reach out of the page.
    pub ranges: &'a [(Key, Key)],
    /// Ascending: keys whose pages are written anew.
    pub touched: &'a [Key],
}

impl<'a> Work<'a> {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.ranges.is_empty() && self.touched.is_empty()
    }

    /// Cuts off the part for the next child, which has the keys from `first` to `upper`. Changes
    /// below `first` are its as well: there is no other child for them.
    pub fn cut(&mut self, first: Option<Key>, upper: Option<Key>) -> Work<'a> {
        let first = first.unwrap_or(Key::MIN);
        let below = |key: &Key| upper.is_none_or(|upper| *key < upper);
        let (changes, changes_rest) =
            self.changes.split_at(self.changes.partition_point(|(key, _)| below(key)));
        let ranges = &self.ranges[self.ranges.partition_point(|(_, to)| *to <= first)..];
        let (touched, touched_rest) = self.touched.split_at(self.touched.partition_point(below));
        // A range may go on in the children after this one, so that it is not cut off here.
        *self = Work { changes: changes_rest, ranges, touched: touched_rest };
        let ranges = &ranges[..ranges.partition_point(|(from, _)| below(from))];
        Work { changes, ranges, touched }
    }

    /// Whether a range has `key`; asked with ascending keys.
    fn deletes(&mut self, key: &Key) -> bool {
        while let Some((first, rest)) = self.ranges.split_first() {
            if *key < first.1 {
                return first.0 <= *key;
            }
            self.ranges = rest;
        }
        false
    }
}

/// What becomes of one entry.
pub(super) enum Step<'a> {
    /// It stays.
    Keep(Key, &'a [u8]),
    /// It is new.
    Insert(Key, &'a [u8]),
    /// It has a new value: key, old, new.
    Replace(Key, &'a [u8], &'a [u8]),
    /// It goes.
    Remove(Key, &'a [u8]),
}

/// The steps from a page as it is to the page as it will be.
#[derive(Clone, Copy)]
pub(super) struct Merge<'a> {
    page: Page<'a>,
    next: usize,
    work: Work<'a>,
}

impl<'a> Merge<'a> {
    /// Merges `work` into the leaf `page`.
    pub fn new(page: Page<'a>, work: Work<'a>) -> Merge<'a> {
        Merge { page, next: 0, work }
    }

    /// Looks at all steps without taking them: whether the page changes, and whether it is appended
    /// to.
    pub fn survey(self) -> Result<Survey, TreeError> {
        let mut changed = !self.work.touched.is_empty();
        let (mut inserted, mut runs) = (0, 0);
        let (mut in_run, mut at_end) = (false, false);
        for step in self {
            match step? {
                Step::Keep(..) => (in_run, at_end) = (false, false),
                Step::Replace(_, old, new) => {
                    changed |= old != new;
                    (in_run, at_end) = (false, false);
                }
                Step::Remove(..) => changed = true,
                Step::Insert(..) => {
                    changed = true;
                    inserted += 1;
                    runs += usize::from(!in_run);
                    (in_run, at_end) = (true, true);
                }
            }
        }
        Ok(Survey { changed, appending: runs == 1 && (at_end || inserted >= APPENDED_MIN) })
    }

    fn take_entry(&mut self) -> Result<&'a [u8], TreeError> {
        let value = self.page.value(self.next);
        self.next += 1;
        value
    }
}

/// What a merge will do to a page.
pub(super) struct Survey {
    /// Whether it does anything.
    pub changed: bool,
    /// Whether new entries come in one run that is likely to go on.
    pub appending: bool,
}

impl<'a> Iterator for Merge<'a> {
    type Item = Result<Step<'a>, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = (self.next < self.page.count()).then(|| self.page.key(self.next));
            let change = self.work.changes.first();
            let order = match (entry, change) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(entry), Some((key, _))) => entry.cmp(key),
            };
            if let Some((_, rest)) = self.work.changes.split_first()
                && order.is_ge()
            {
                self.work.changes = rest;
            }
            let old = if order.is_le() { self.take_entry() } else { Ok(&[][..]) };
            let old = match old {
                Ok(old) => old,
                Err(error) => return Some(Err(error)),
            };
            return Some(Ok(match (order, entry, change) {
                (Ordering::Less, Some(key), _) if self.work.deletes(&key) => Step::Remove(key, old),
                (Ordering::Less, Some(key), _) => Step::Keep(key, old),
                (Ordering::Equal, _, Some((key, Change::Put(new)))) => {
                    Step::Replace(*key, old, new)
                }
                (Ordering::Equal, _, Some((key, Change::Delete))) => Step::Remove(*key, old),
                (Ordering::Greater, _, Some((key, Change::Put(new)))) => Step::Insert(*key, new),
                // A deletion of what is not there.
                _ => continue,
            }));
        }
    }
}
