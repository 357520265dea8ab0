//! Which records of the log are whole.
//!
//! Only the last record of a lane can name data that a crash tore. It is taken if its blocks match
//! its checksums, or if a complete record with a higher stamp took away one of its blocks or
//! changed bytes in it: that one was written after this one's fence (the range's lock orders
//! them), and from then on the block may hold something else. The same goes for one that shared
//! the block. Otherwise it is dropped, as if the call had not been made.
//!
//! That trusts the fence. Where the memory says that it lost what was fenced, all data that records
//! name is verified, and what does not match is damage; what the log itself lost cannot be seen.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::item::{BlockRun, Item, Items, Placed};
use crate::replay::damaged_record;
use crate::types::{FILE_BYTES_MAX, FileKind, Ino};
use pool::{BLOCK_BYTES, KIND_CHANGE, Record, Recovery, Which};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

impl Core {
    /// Says that acknowledged calls may be missing, and trusts no data for having been fenced.
    pub fn verify_after_loss(&self, recovery: &Recovery, torn: &HashSet<usize>) -> Result<()> {
        for path in &recovery.lost {
            self.pool.note(format!(
                "{}: the memory lost power with data still on its way (its unsafe-shutdown count \
                 has grown); calls that were acknowledged just before may be missing; compare with \
                 a copy, and run nearside check",
                path.display()
            ));
        }
        let whole = recovery.records.iter().enumerate().filter(|(index, _)| !torn.contains(index));
        let changes: Option<Vec<(&Record, Items)>> = whole
            .filter(|(_, record)| record.kind == KIND_CHANGE)
            .map(|(_, record)| Some((record, self.items_of(record).ok()?)))
            .collect();
        // What cannot be decoded is refused when it is applied.
        match self.mismatch(&changes.unwrap_or_default()) {
            None => Ok(()),
            Some(record) => Err(Error::Damaged(format!(
                "after an unsafe shutdown the data of the log's record with stamp {} (slice {}, \
                 lane {}) is not what was written",
                record.stamp, record.slice, record.lane
            ))),
        }
    }

    /// The first record of which some data that it names, and that none of the later ones took away
    /// again, does not match its checksum.
    pub fn mismatch<'r>(&self, changes: &[(&'r Record, Items)]) -> Option<&'r Record> {
        self.mismatches(changes).next()
    }

    /// All such records.
    pub fn mismatches<'r>(
        &self,
        changes: &[(&'r Record, Items)],
    ) -> impl Iterator<Item = &'r Record> {
        let differs = |(index, (_, items)): &(usize, &(&Record, Items))| {
            items.iter().any(|item| self.item_differs(item, &changes[index + 1..]))
        };
        changes.iter().enumerate().filter(differs).map(|(_, (record, _))| *record)
    }

    /// Whether data of a write, none of which `later` took away, does not match its checksum.
    fn item_differs(&self, item: &Item, later: &[(&Record, Items)]) -> bool {
        if self.data_matches(std::slice::from_ref(item)) {
            return false;
        }
        let Item::Write { ino, block, placed, .. } = item else { return false };
        (*block..).zip(placed).any(|(block, placed)| {
            !self.block_matches(placed) && self.keeps_a_place((*ino, block), later)
        })
    }

    /// Which of the lanes' last records did not complete.
    pub fn torn_tails(&self, records: &[Record]) -> Result<HashSet<usize>> {
        // long ones are read once: of each that is torn all later ones are looked at
        let (mut torn, mut long) = (HashSet::new(), HashMap::new());
        // from the highest stamp down: whether a record vouches for another is known by then
        for (index, record) in records.iter().enumerate().rev() {
            if !record.unsealed || record.kind != KIND_CHANGE {
                continue;
            }
            let Some(payload) = self.payload_of(record)? else {
                torn.insert(index);
                continue;
            };
            let items = self.decode(record, &payload)?;
            if !self.makes_sense(&items) {
                return Err(damaged_record(record));
            }
            if self.data_matches(&items) {
                continue;
            }
            let mut later = records[index + 1..].iter().zip(index + 1..);
            let vouched = later.any(|(other, at)| {
                !torn.contains(&at)
                    && other.stamp > record.stamp
                    && self.record_takes_a_block((other, at), &items, &mut long)
            });
            if !vouched {
                torn.insert(index);
            }
        }
        Ok(torn)
    }

    /// Whether a write has blocks, and lies where a file can have data, in those that the pool has.
    pub fn write_fits(&self, block: u64, placed: &[Placed], end: u64) -> bool {
        let last = block.saturating_add(placed.len() as u64);
        !placed.is_empty()
            && end <= FILE_BYTES_MAX
            && last <= FILE_BYTES_MAX / BLOCK_BYTES
            && placed.iter().all(|placed| self.pool.contains(placed.addr))
            && placed.iter().all(|placed| placed.addr.device().is_none())
    }

    /// Whether writes name blocks of the pool, and places that a file can have in one that is no
    /// directory. A record whose checksum fits was made by a Nearside, torn data or not.
    fn makes_sense(&self, items: &[Item]) -> bool {
        items.iter().all(|item| match item {
            Item::Write { ino, block, placed, end } => {
                let file = self.inode(*ino).map_or(true, |inode| inode.kind == FileKind::File);
                file && self.write_fits(*block, placed, *end)
            }
            _ => true,
        })
    }

    fn data_matches(&self, items: &[Item]) -> bool {
        items.iter().all(|item| match item {
            Item::Write { placed, .. } => placed.iter().all(|placed| self.block_matches(placed)),
            _ => true,
        })
    }

    /// Whether any copy of a block is what was written.
    fn block_matches(&self, placed: &Placed) -> bool {
        let Placed { addr, crc } = *placed;
        let first = || self.pool.crc(addr).is_ok_and(|found| pmem::crc_fits(found, crc));
        let mirror = || self.fitting_copy(addr, Which::Mirror, None, crc).is_some();
        self.pool.contains(addr) && (first() || mirror())
    }

    /// A crash may have left what was being written in one copy only: the other one gets it.
    /// `changes` are all that counts, in order, and whether of each that may be so. Who only looks
    /// remembers the blocks: it is no damage.
    pub fn settle_data(&self, changes: &[(&Record, Items)], all: bool) {
        if !self.pool.has_mirrors() {
            return;
        }
        // who wrote a block last says what it is
        let mut seen = HashSet::new();
        for (record, items) in changes.iter().rev() {
            for item in items.iter() {
                let Item::Write { placed, .. } = item else { continue };
                for placed in placed.iter().filter(|placed| seen.insert(placed.addr)) {
                    if all || record.unsealed {
                        self.settle_block(placed);
                    }
                }
            }
        }
    }

    fn settle_block(&self, placed: &Placed) {
        if self.pool.read_only() {
            self.unsettled.lock().insert(placed.addr);
            return;
        }
        let fits = |which| self.fitting_copy(placed.addr, which, None, placed.crc);
        let (other, good) = match (fits(Which::First), fits(Which::Mirror)) {
            (Some((good, _)), None) => (Which::Mirror, good),
            (None, Some((good, _))) => (Which::First, good),
            // the same, or somebody else's by now
            _ => return,
        };
        self.pool.write_copy(placed.addr, other, &good);
    }

    /// Whether a block that was put in place there still has a place after all of `later`, there
    /// or where it was shared to, and still the bytes that were written.
    fn keeps_a_place(&self, written: (Ino, u64), later: &[(&Record, Items)]) -> bool {
        let mut places = vec![written];
        for item in later.iter().flat_map(|(_, items)| items) {
            if let Item::Patch { ino, offset, .. } = item
                && self.stores_in_place
                && places.contains(&(*ino, offset / BLOCK_BYTES))
            {
                return false;
            }
            // a range does not overlap the one that it is shared to
            let shared = |place: &(Ino, u64)| match item {
                Item::Share(share) => share.leads_to(*place),
                _ => None,
            };
            let more: Vec<(Ino, u64)> = places.iter().filter_map(shared).collect();
            places.retain(|(ino, block)| !self.takes(item, *ino, *block, *block + 1));
            places.extend(more);
        }
        !places.is_empty()
    }

    /// Whether a record, the one at this place of the log, takes away a block that `items` put in
    /// place, changes its bytes, or shares it. `long` are the items of those that were read.
    fn record_takes_a_block(
        &self,
        (record, at): (&Record, usize),
        items: &[Item],
        long: &mut HashMap<usize, Items>,
    ) -> bool {
        // one that makes no sense takes nothing
        let read = || self.items_of(record).unwrap_or_default();
        match record.is_spilled() {
            true => self.takes_a_block(long.entry(at).or_insert_with(read), items),
            false => self.takes_a_block(&read(), items),
        }
    }

    fn takes_a_block(&self, others: &[Item], items: &[Item]) -> bool {
        let blocks = items.iter().filter_map(|item| match item {
            Item::Write { ino, block, placed, .. } => {
                Some((*ino, *block, *block + placed.len() as u64))
            }
            _ => None,
        });
        blocks.into_iter().any(|(ino, first, end)| {
            let shares = |other: &Item| match other {
                Item::Share(share) => share.from == ino && overlap(share.source(), first..end),
                _ => false,
            };
            others.iter().any(|other| shares(other) || self.takes(other, ino, first, end))
        })
    }

    /// Whether `item` takes away one of these blocks of a file, or changes its bytes.
    fn takes(&self, item: &Item, ino: Ino, first: u64, end: u64) -> bool {
        let range = first..end;
        match item {
            Item::Write { ino: own, block, placed, .. } => {
                *own == ino && overlap(*block..*block + placed.len() as u64, range)
            }
            Item::Inline { ino: own, block, .. } => *own == ino && range.contains(block),
            Item::Patch { ino: own, offset, .. } if self.stores_in_place => {
                *own == ino && range.contains(&(offset / BLOCK_BYTES))
            }
            Item::Truncate { ino: own, size } => *own == ino && size.div_ceil(BLOCK_BYTES) < end,
            Item::Punch { ino: own, block, blocks } => {
                *own == ino && overlap(*block..block.saturating_add(*blocks), range)
            }
            Item::Share(share) => share.ino == ino && overlap(share.target(), range),
            Item::Move { ino: own, runs } => {
                let moved = |run: &BlockRun| run.block..run.block.saturating_add(run.blocks);
                *own == ino && runs.iter().any(|run| overlap(moved(run), range.clone()))
            }
            Item::Drop { ino: own } => *own == ino,
            _ => false,
        }
    }
}

fn overlap(one: Range<u64>, other: Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
