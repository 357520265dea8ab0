//! What the log says of the epochs of the `sync` domain that were closed since the last checkpoint.
//!
//! An epoch is closed only after the sync of the one before has ended. So of the newest one parts
//! may never have reached the medium, and all of the one before it did: what is missing of that one
//! is damage, and not a torn write. Its record, too: that of the newest says where it ends.

use crate::epoch::{Tail, decode_payload};
use crate::error::{Error, Result};
use crate::open::Recovery;
use crate::record::{KIND_EPOCH, Record};
use crate::scan::Damage;

/// An epoch that the log says was closed.
#[derive(Debug)]
pub struct ClosedEpoch {
    /// Where the lanes ended.
    pub tails: Vec<Tail>,
    /// Where its record ends.
    end: Tail,
    /// Where the record of the epoch before ends.
    before: Option<Tail>,
}

impl ClosedEpoch {
    fn of(record: &Record) -> ClosedEpoch {
        let Record { slice, lane, chunk, end, .. } = *record;
        let (tails, before) = decode_payload(&record.payload);
        ClosedEpoch { tails, end: Tail { slice, lane, chunk, used: end }, before }
    }
}

impl Recovery {
    /// All epochs, the newest first, whether or not their records are all there.
    pub fn closed_epochs(&self) -> Vec<ClosedEpoch> {
        let readable = self.records.iter().filter(|record| record.kind == KIND_EPOCH);
        let mut epochs: Vec<&Record> = readable.chain(&self.epochs_behind_damage).collect();
        epochs.sort_by_key(|record| std::cmp::Reverse(record.stamp));
        epochs.into_iter().map(ClosedEpoch::of).collect()
    }

    /// Epochs whose records are all there, the newest first.
    pub fn whole_epochs(&self) -> Vec<ClosedEpoch> {
        let is_whole = |epoch: &ClosedEpoch| epoch.tails.iter().all(|tail| self.whole_until(tail));
        self.closed_epochs().into_iter().filter(is_whole).collect()
    }

    /// The newest epoch whose sync is known to have ended; none where it, and all that came before
    /// it, is in the trees. An error if a record of it is lost.
    pub fn synced_epoch(&self) -> Result<Option<ClosedEpoch>> {
        let mut epochs = self.closed_epochs().into_iter();
        let Some(newest) = epochs.next() else { return Ok(None) };
        let synced = match newest.before {
            Some(before) if self.is_folded(&before) => None,
            Some(before) => match epochs.find(|epoch| epoch.end == before) {
                Some(epoch) => Some(epoch),
                None => return Err(self.lost_until(&before)),
            },
            None => epochs.next(),
        };
        let tails = synced.iter().flat_map(|epoch| &epoch.tails);
        match tails.into_iter().find(|tail| !self.whole_until(tail)) {
            Some(tail) => Err(self.lost_until(tail)),
            None => Ok(synced),
        }
    }

    /// Whether a checkpoint folded what lies there. An epoch that was closed while one folded lists
    /// where lanes ended before the cut, too.
    fn is_folded(&self, tail: &Tail) -> bool {
        self.floors.get(usize::from(tail.slice)).is_some_and(|floor| tail.chunk < *floor)
    }

    fn whole_until(&self, tail: &Tail) -> bool {
        if self.is_folded(tail) {
            return true;
        }
        let ends_there = self.records.iter().any(|record| {
            (record.slice, record.lane) == (tail.slice, tail.lane)
                && (record.chunk, record.end) == (tail.chunk, tail.used)
        });
        ends_there && self.damage_until(tail).is_none()
    }

    /// Damage in the lane before this place.
    fn damage_until(&self, tail: &Tail) -> Option<&Damage> {
        self.damage.iter().find(|damage| {
            (damage.slice, damage.lane) == (tail.slice, tail.lane)
                && (damage.chunk, damage.position) < (tail.chunk, tail.used)
        })
    }

    /// What was synced is not there up to this place.
    fn lost_until(&self, tail: &Tail) -> Error {
        let damage = self.damage_until(tail);
        let what = match damage {
            Some(damage) => format!("{}, and it was synced", damage.what),
            None => format!("a record of the log's lane {} is lost, and it was synced", tail.lane),
        };
        let offset = damage.map_or(0, |damage| damage.offset);
        Error::Damaged { slice: u32::from(tail.slice), offset, what }
    }
}
