//! Changes that no chunk of the log holds: their records' payloads lie in blocks (`pool`'s spill),
//! and they are let in one by one, so that a checkpoint can certainly fold what they change.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode_table::INODE_UNITS;
use crate::item::{Item, Items};
use crate::item_decode;
use crate::keys;
use crate::leaf::LEAF_BLOCKS;
use crate::leaves::LEAF_UNITS;
use crate::pieces::Part;
use crate::references::COUNTS_UNITS;
use crate::replay::damaged_record;
use crate::slot::SlotChange;
use crate::write::{Prepared, blocks_of};
use pmem::InFlight;
use pool::{
    KIND_CHANGE, Record, RecordBuffer, Recovery, SPILLED_BYTES_MAX, STAMP_AT_OPEN_MAX, Spilled,
};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// What of a piece of a transaction the record may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InRecord {
    /// Its bytes, however they get into the file.
    Bytes,
    /// Bytes that are stored over others in place.
    InPlace,
    /// None: it names blocks.
    Places,
}

/// Leaves that one record may change in any pool.
const LEAVES_MIN: u64 = 8;
/// Units of a patch: one if it is the first of its block, and one.
const PATCH_UNITS: u64 = 2;

/// How much a transaction changes, at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Files.
    pub inodes: u64,
    /// Leaves of their maps.
    pub leaves: u64,
    /// Blocks that it may take.
    pub blocks: u64,
    /// Blocks of which it writes a part, at most.
    pub parts: u64,
}

/// How much these parts change.
pub fn size_of(parts: &[Part<'_>]) -> Size {
    let mut size = Size { inodes: parts.len() as u64, ..Size::default() };
    for part in parts {
        let mut behind = 0;
        for (offset, data) in &part.pieces {
            let (first, last) = blocks_of(*offset, data.len());
            size.blocks += last - first + 1;
            let (first, end) = ((first / LEAF_BLOCKS).max(behind), last / LEAF_BLOCKS + 1);
            size.leaves += end - first.min(end);
            size.parts += 1 + u64::from(first != last);
            behind = end;
        }
    }
    size
}

/// Units that one change is let in with, until it has counted what it really took.
#[derive(Debug)]
pub struct Admitted<'c> {
    dirty_units: &'c AtomicU64,
    units: u64,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.dirty_units.fetch_sub(self.units, Ordering::Relaxed);
    }
}

/// A change that waits to be let in: others leave it room meanwhile.
#[derive(Debug)]
pub struct Waiting<'c>(&'c AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Core {
    /// Units that a change of this size adds to what the next checkpoint folds, at most.
    pub fn units_of(&self, size: &Size) -> u64 {
        size.leaves * LEAF_UNITS + size.inodes * INODE_UNITS + size.parts * PATCH_UNITS
    }

    /// Whether it changes no more than others may without being let in.
    pub fn is_short(&self, size: &Size) -> bool {
        size.leaves <= LEAVES_MIN || self.units_of(size) <= self.record_units()
    }

    /// How many blocks of a transaction may be patched: of one that is let in by itself, patches
    /// take half of what the leaves leave.
    pub fn patches_max(&self, size: &Size) -> u64 {
        let leaves = self.units_of(&Size { parts: 0, ..*size });
        self.units_max().saturating_sub(leaves) / 2 / PATCH_UNITS
    }

    /// The units that these parts, of this size, add: now that it is known what is done to each
    /// block.
    pub fn units_of_prepared(
        &self,
        size: &Size,
        parts: &[Part<'_>],
        all: &[Vec<Prepared<'_>>],
    ) -> Result<u64> {
        let (mut counts, mut patches) = (HashSet::new(), 0);
        for (part, prepared) in parts.iter().zip(all) {
            for (block, change) in prepared.iter().flat_map(|it| (it.first..).zip(&it.changes)) {
                patches += u64::from(matches!(change, SlotChange::Patch(..)));
                // a block with other places takes the count of them with it
                let view = self.view_block(part.inode, block)?;
                if view.shared {
                    counts.insert(keys::references(view.addr).index);
                }
            }
        }
        let size = Size { parts: patches, ..*size };
        Ok(self.units_of(&size) + counts.len() as u64 * COUNTS_UNITS)
    }

    /// Units that one change may add: a checkpoint folds twice as many, and those who are let in
    /// meanwhile.
    pub fn units_max(&self) -> u64 {
        self.dirty_max.load(Ordering::Relaxed) / 2
    }

    /// Says that a change of so many units is coming: until it has been, others begin only while
    /// there is room for it, too.
    pub fn wait_in_line(&self) -> Waiting<'_> {
        self.long_waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.long_waiting)
    }

    /// Lets in a change that adds so many units. The caller is inside the gate, so that no
    /// checkpoint cuts between this and the end of the change. `LogFull`: one is to come first.
    pub fn admit(&self, units: u64) -> Result<Admitted<'_>> {
        if units > self.units_max() {
            return Err(Error::TooLong);
        }
        let before = self.dirty_units.fetch_add(units, Ordering::Relaxed);
        let admitted = Admitted { dirty_units: &self.dirty_units, units };
        if before + units > self.dirty_max.load(Ordering::Relaxed) {
            return Err(pool::Error::LogFull.into());
        }
        Ok(admitted)
    }

    /// A record that no chunk holds becomes one that names the blocks of its payload, which are on
    /// their way with what is `in_flight`.
    #[cold]
    pub fn spill(
        &self,
        record: &mut RecordBuffer,
        in_flight: InFlight,
    ) -> Result<(InFlight, Spilled)> {
        match self.pool.spill(record) {
            Ok((short, written, spilled)) => {
                *record = short;
                Ok((in_flight.and(written), spilled))
            }
            Err(error) => {
                let _ = pmem::fence(in_flight);
                Err(error.into())
            }
        }
    }

    /// What a spilled record says is in the log, or could not be put there.
    #[cold]
    pub fn spilled(&self, spilled: Spilled, is_logged: bool) {
        match is_logged {
            true => self.pool.keep_spilled(spilled),
            false => self.pool.unspill(spilled),
        }
        // what it takes of the slices comes back with the next checkpoint
        self.ask_for_checkpoint();
    }

    /// The payload of a record, wherever it lies; `None` if its blocks do not hold what was
    /// written.
    pub fn payload_of<'r>(&self, record: &'r Record) -> Result<Option<Cow<'r, [u8]>>> {
        match record.flags {
            0 => Ok(Some(Cow::Borrowed(&record.payload))),
            _ if record.is_spilled() => Ok(self.pool.spilled_payload(record)?.map(Cow::Owned)),
            _ => Err(damaged_record(record)),
        }
    }

    /// The items of a record.
    pub fn items_of(&self, record: &Record) -> Result<Items> {
        let payload = self.payload_of(record)?.ok_or_else(|| damaged_record(record))?;
        self.decode(record, &payload)
    }

    /// The items of a record whose payload was read. One that is long has those of transactions:
    /// what any other one does is bounded by the length of records.
    pub fn decode(&self, record: &Record, payload: &[u8]) -> Result<Items> {
        let items = match record.is_spilled() {
            true => item_decode::decode_some(payload, &|item| match item {
                Item::Patch { data, .. } => !data.is_empty(),
                Item::Write { .. } | Item::Inline { .. } | Item::Request { .. } => true,
                _ => false,
            }),
            false => item_decode::decode(payload),
        };
        items.ok_or_else(|| damaged_record(record))
    }

    /// The changes that the log holds, but for those that are torn: what each is, if it makes
    /// sense.
    pub fn changes_of<'r>(
        &self,
        recovery: &'r Recovery,
        torn: &HashSet<usize>,
    ) -> impl Iterator<Item = (&'r Record, Result<Items>)> {
        let whole = recovery.records.iter().enumerate().filter(|(index, _)| !torn.contains(index));
        whole.filter(|(_, record)| record.kind == KIND_CHANGE).map(|(_, record)| {
            let items = match record.stamp <= STAMP_AT_OPEN_MAX {
                true => self.items_of(record),
                false => Err(damaged_record(record)),
            };
            (record, items)
        })
    }

    /// What these records change; `None` if one has its payload in blocks that do not hold it.
    pub fn changes_in<'r>(
        &self,
        records: &[&'r Record],
    ) -> Result<Option<Vec<(&'r Record, Items)>>> {
        let mut changes = Vec::new();
        for record in records.iter().filter(|record| record.kind == KIND_CHANGE) {
            let Some(payload) = self.payload_of(record)? else { return Ok(None) };
            changes.push((*record, self.decode(record, &payload)?));
        }
        Ok(Some(changes))
    }

    /// An error if the records have more in blocks than any Nearside lets there be, or two have the
    /// same.
    pub fn check_spilled(&self, records: &[Record]) -> Result<()> {
        let (mut all, mut blocks) = (0u64, HashSet::new());
        for record in records.iter().filter(|record| record.is_spilled()) {
            all = all.saturating_add(record.spilled_len());
            let mut is_twice = all > SPILLED_BYTES_MAX;
            // one whose places make no sense is met when it is applied
            let _ = self.pool.spilled_blocks(record, &mut |addr| is_twice |= !blocks.insert(addr));
            if is_twice {
                return Err(damaged_record(record));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "long_record_tests.rs"]
mod tests;
