//! The replay of a damaged log: all records that can be read, in the order of their stamps, past
//! those that are lost.
//!
//! A record that cannot be applied, or that changes an inode of which nothing else is known, leaves
//! its inodes in doubt. So does each record that is lost, as far as it says what it changed.

use crate::attr::Stored;
use crate::inode::Inode;
use crate::item::{Item, Items};
use crate::item_decode;
use crate::keys;
use crate::repair::Repair;
use crate::repair::doubts::{ChangeTime, Doubt, changed_by, named_by};
use crate::repair::lost_records::{creations, is_creation, time_of};
use crate::types::{FileKind, Ino, Timestamp};
use pmem::Domain;
use pool::{KIND_CHANGE, Left, LostStretch, Record, Recovery, STAMP_AT_OPEN_MAX, Tail};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whose change is lost, and how that is known.
const LOST: &str = "a damaged record of the log changed it";
const MAY_BE_LOST: &str = "a record of the log that cannot be read may have changed it";
const NOT_SYNCED: &str = "a change of it may not have been synced";
const MENTIONED: &str = "a record of the log that cannot be read may name it";
const LIKE_LOST: &str =
    "a damaged record of the log changed a file whose number differs in one bit, or this one";
const LEFT_OUT: &str = "a record of the log changed it, but does not fit what is there";
const BIRTH_LOST: &str = "the record of the log that made it is lost";

impl Repair {
    /// Applies what can be of the log.
    pub(super) fn replay_readable(&mut self, recovery: &Recovery) {
        let core = &self.core;
        let is_epochal = recovery.left >= Some(Left::Crashed) && core.pool.domain() == Domain::Sync;
        let (records, stretches): (Vec<&Record>, Vec<&LostStretch>) = match is_epochal {
            true => match self.damaged_epoch(recovery) {
                Some(found) => found,
                None => {
                    if let Err(error) = self.core.replay_epoch(recovery) {
                        let what = "left out: what came after the last checkpoint";
                        self.say("log", format!("{what}: {error}"));
                    }
                    return;
                }
            },
            false => {
                let torn = core.torn_tails(&recovery.records).unwrap_or_default();
                let all = recovery.records.iter().enumerate();
                let whole = all.filter(|(at, _)| !torn.contains(at)).map(|(_, record)| record);
                (whole.collect(), recovery.stretches.iter().collect())
            }
        };
        let (mut changes, mut unknown) = (Vec::new(), Vec::new());
        for record in records.into_iter().filter(|record| record.kind == KIND_CHANGE) {
            match self.items_or_doubts(record) {
                Some(items) => changes.push((record, items)),
                None => unknown.push((Some(record.stamp), ChangeTime::at(record.time_ns))),
            }
        }
        for (record, items) in &changes {
            self.apply_or_doubt(record, items);
        }
        let born = creations(&changes);
        for stretch in stretches {
            unknown.extend(self.doubt_stretch(stretch, &born));
        }
        self.doubt_all_later(&changes, &born, &unknown);
    }

    /// After a restart of the machine: the records of the newest epoch that is known to have been
    /// synced, and what cannot be read of it; none if nothing of the newest two is lost.
    ///
    /// An epoch is closed only after the one before was synced. Of the newest one nothing says so:
    /// where a part of it is lost, that may be damage, or never have been written. Its changes are
    /// in doubt then.
    fn damaged_epoch<'r>(
        &mut self,
        recovery: &'r Recovery,
    ) -> Option<(Vec<&'r Record>, Vec<&'r LostStretch>)> {
        let epochs = recovery.closed_epochs();
        let newest = &epochs.first()?.tails;
        let inside = |tails: &[Tail]| -> Vec<&'r LostStretch> {
            recovery.stretches.iter().filter(|it| is_before(it, tails)).collect()
        };
        if inside(newest).is_empty() && recovery.synced_epoch().is_ok() {
            return None;
        }
        let before = epochs.get(1).map_or(newest, |epoch| &epoch.tails);
        let last = pool::records_until(&recovery.records, newest);
        let lost_before = inside(newest).len() == inside(before).len();
        let is_whole = lost_before && self.has_all_data(&last);
        let synced = if is_whole { newest } else { before };
        let records = pool::records_until(&recovery.records, synced);
        let changes = last.into_iter().filter(|it| it.kind == KIND_CHANGE);
        for record in changes.filter(|it| !records.contains(it)) {
            if let Ok(items) = self.core.items_of(record) {
                self.doubts.add_items(&items, NOT_SYNCED, ChangeTime::at(record.time_ns));
            }
        }
        Some((records, inside(newest)))
    }

    /// Whether the data that these records name is what was written.
    fn has_all_data(&self, records: &[&Record]) -> bool {
        let changes = self.core.changes_in(records).ok().flatten();
        changes.is_some_and(|changes| self.core.mismatch(&changes).is_none())
    }

    /// The items of a record. Where its payload is damaged it is left out, and what it still says
    /// that it changed is in doubt; none where it does not say that either.
    fn items_or_doubts(&mut self, record: &Record) -> Option<Items> {
        let error = match record.stamp <= STAMP_AT_OPEN_MAX {
            true => match self.core.items_of(record) {
                Ok(items) => return Some(items),
                Err(error) => error,
            },
            false => crate::replay::damaged_record(record),
        };
        self.say("log", format!("left out: the change with stamp {}: {error}", record.stamp));
        let payload = self.core.pool.spilled_payload_as_is(record).ok();
        let payload = payload.filter(|_| record.is_spilled())?;
        let items = item_decode::decode(&payload)?;
        let mut inodes = items.iter().flat_map(changed_by);
        let known = !items.is_empty() && inodes.all(|(ino, _)| self.core.may_be_inode(ino));
        known.then(|| {
            self.doubts.add_items(&items, LOST, ChangeTime::at(record.time_ns));
            Items::new()
        })
    }

    fn apply_or_doubt(&mut self, record: &Record, items: &Items) {
        self.adopt_unknown(record, items);
        if let Err(error) = self.core.apply_all(items, record) {
            self.say("log", format!("left out: the change with stamp {}: {error}", record.stamp));
            self.doubts.add_items(items, LEFT_OUT, ChangeTime::at(record.time_ns));
            for ino in items.iter().filter_map(named_by) {
                let time = ChangeTime::at(record.time_ns);
                self.doubts.add(ino, Doubt { what: LEFT_OUT, offset: None, time });
            }
        }
    }

    /// Takes up the inodes that a record changes and that nothing is known of: what made them is
    /// lost, and what follows would be lost with it.
    fn adopt_unknown(&mut self, record: &Record, items: &Items) {
        let time = ChangeTime::at(record.time_ns);
        let birth_lost = Doubt { what: BIRTH_LOST, offset: None, time };
        for item in items {
            let (ino, kind) = match item {
                Item::Put { object, kind: keys::INODE, value, .. } => {
                    let ino = Ino(*object);
                    if !self.is_known(ino) && !is_creation(value, record) {
                        self.doubts.add(ino, birth_lost.clone());
                    }
                    continue;
                }
                Item::Put { object, kind: keys::DIRENT, .. } if *object != 0 => {
                    (Ino(*object), FileKind::Directory)
                }
                Item::Touch { ino, .. } => (*ino, FileKind::Directory),
                Item::Write { ino, .. } | Item::Inline { ino, .. } | Item::Patch { ino, .. } => {
                    (*ino, FileKind::File)
                }
                _ => continue,
            };
            if self.is_known(ino) || !self.core.may_be_inode(ino) {
                continue;
            }
            let made_here = items.iter().any(|other| {
                matches!(other, Item::Put { object, kind: keys::INODE, .. } if *object == ino.0)
            });
            if !made_here {
                self.adopt(ino, kind, record);
                self.doubts.add(ino, birth_lost.clone());
            }
        }
    }

    fn is_known(&self, ino: Ino) -> bool {
        // one that was removed is known, too
        self.core.cached_inode(ino).is_some() || self.core.inode(ino).is_ok()
    }

    fn adopt(&self, ino: Ino, kind: FileKind, record: &Record) {
        let core = &self.core;
        let mode = if kind == FileKind::Directory { 0o700 } else { 0o600 };
        let mut stored = Stored::new(kind, mode, Timestamp(record.time_ns));
        stored.stamp = record.stamp;
        core.pool.inode_seen(keys::home(ino), keys::counter_of(ino));
        let inode = Arc::new(Inode::new(ino, &stored, true));
        core.insert_inode(&inode);
        core.mark_dirty(&inode);
        core.inodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Doubts what a stretch of the log changed, of what was not `born` later; gives the stamp that
    /// all of it is below, and when it was, where it does not say what it changed.
    fn doubt_stretch(
        &mut self,
        stretch: &LostStretch,
        born: &HashMap<Ino, u64>,
    ) -> Option<(Option<u64>, ChangeTime)> {
        let before = stretch.before.map(|(stamp, _)| stamp);
        let was_there = |ino: &Ino| !is_later(born, *ino, before);
        let Some(described) = self.core.described(stretch) else {
            for ino in self.core.mentioned(stretch).into_iter().filter(was_there) {
                let time = time_of(stretch);
                self.doubts.add(ino, Doubt { what: MENTIONED, offset: None, time });
            }
            // one that a kill cut off changed nothing
            return (!stretch.is_last).then_some((before, time_of(stretch)));
        };
        for record in described {
            let time = ChangeTime::at(record.time_ns);
            self.doubts.add_items(&record.items, LOST, time);
            let changed = record.items.iter().flat_map(changed_by).map(|(ino, _)| ino);
            let named: BTreeSet<Ino> = record.items.iter().filter_map(named_by).collect();
            let said: BTreeSet<Ino> = changed.chain(named.iter().copied()).collect();
            let like = self.core.numbered_like(said.iter().map(|ino| ino.0));
            for ino in like.difference(&said).copied().filter(was_there) {
                self.doubts.add(ino, Doubt { what: LIKE_LOST, offset: None, time });
            }
            for ino in named {
                self.doubts.add(ino, Doubt { what: LOST, offset: None, time });
            }
        }
        None
    }

    /// Doubts all that the log changes and that was there when records were made of which nothing
    /// is known but that their stamps are below these.
    fn doubt_all_later(
        &mut self,
        changes: &[(&Record, Items)],
        born: &HashMap<Ino, u64>,
        unknown: &[(Option<u64>, ChangeTime)],
    ) {
        if unknown.is_empty() {
            return;
        }
        let items = changes.iter().flat_map(|(_, items)| items);
        let changed: BTreeSet<Ino> = items.flat_map(changed_by).map(|(ino, _)| ino).collect();
        for ino in changed {
            let may_be = |(before, _): &&(Option<u64>, _)| !is_later(born, ino, *before);
            if let Some((_, time)) = unknown.iter().find(may_be) {
                self.doubts.add(ino, Doubt { what: MAY_BE_LOST, offset: None, time: *time });
            }
        }
    }
}

/// Whether an inode was made after all records whose stamps are below `before`.
fn is_later(born: &HashMap<Ino, u64>, ino: Ino, before: Option<u64>) -> bool {
    before.zip(born.get(&ino)).is_some_and(|(before, born)| *born >= before)
}

/// Whether a stretch lies before the tail of its lane.
fn is_before(stretch: &LostStretch, tails: &[Tail]) -> bool {
    let (lane, chunk, position) = stretch.place;
    tails.iter().any(|tail| {
        (tail.slice, tail.lane) == (stretch.slice, lane)
            && (chunk, position) < (tail.chunk, tail.used)
    })
}
