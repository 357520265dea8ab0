//! Maps of files: a slot whose block is lost names one that cannot be read, so that reading there
//! is an error and never zeros.

use crate::attr::Stored;
use crate::item::Placed;
use crate::keys::{self, REFERENCES_BLOCKS};
use crate::leaf::LEAF_BLOCKS;
use crate::leaf_value::{self, Named, Part};
use crate::references;
use crate::repair::found::{Found, Inode, file_place};
use crate::repair::{Lost, Repair};
use crate::types::{FileKind, Ino};
use pool::tree::{Change, Key};
use pool::{BLOCK_BYTES, BlockAddr};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

/// Most leaves of one file that are marked as lost; a file of more is put aside.
pub const LEAVES_MAX: u64 = 1 << 14;

impl Lost {
    /// The files of which something may have lain there.
    fn files(&self, found: &Found) -> Vec<(Ino, Stored)> {
        let (from, upper) = (self.from.unwrap_or(Key::MIN), self.upper.unwrap_or(Key::MAX));
        let within = found.inodes.range(Ino(from.object)..=Ino(upper.object));
        let files = within.filter_map(|(ino, inode)| Some((*ino, inode.stored?)));
        files
            .filter(|(ino, stored)| stored.kind == FileKind::File && keys::home(*ino) == self.slice)
            .collect()
    }

    /// Which of an inode's first `count` keys of a kind would have lain there.
    fn range(&self, ino: Ino, kind: u8, count: u64) -> Range<u64> {
        let (first, behind) = (keys::key(ino, kind, 0), keys::key(ino, kind, count));
        let below = |key: Key| match key {
            key if key <= first => 0,
            key if key > behind => count,
            key => key.index,
        };
        below(self.from.unwrap_or(Key::MIN))..below(self.upper.unwrap_or(Key::MAX))
    }
}

impl Repair {
    /// Mends the leaves that name what they must not, and those that are lost.
    pub(super) fn mend_leaves(&mut self, found: &mut Found, pages: &HashSet<BlockAddr>) {
        for addr in found.shared.keys() {
            if let Some(owner) = found.owners.get(addr) {
                found.wrong_leaves.insert(*owner);
                found.contested.insert(*addr);
            }
        }
        for (ino, index) in std::mem::take(&mut found.wrong_leaves) {
            self.mend_leaf((ino, index), found, pages);
        }
        found.owners.retain(|addr, _| !found.contested.contains(addr));
        for lost in std::mem::take(&mut self.lost) {
            self.mark_lost(&lost, found);
            self.mark_lost_bytes(&lost, found);
        }
    }

    fn mend_leaf(
        &mut self,
        (ino, index): (Ino, u64),
        found: &mut Found,
        pages: &HashSet<BlockAddr>,
    ) {
        let key = keys::key(ino, keys::MAP, index);
        let value = self.core.pool.get(keys::home(ino), &key).ok().flatten();
        let Some(named) = value.as_deref().and_then(leaf_value::decode) else {
            self.say(file_place(ino, index * LEAF_BLOCKS), "its map makes no sense: lost");
            return self.lose_leaf(ino, index, found);
        };
        let (before, mut slots) = (named.len() as u64, Vec::new());
        for mut named in named {
            let addr = named.placed.addr;
            let foreign = !self.core.pool.contains(addr) || pages.contains(&addr);
            let contested = found.contested.contains(&addr);
            if (foreign || contested) && named.part == Part::Reserved {
                // nothing was written there
                *self.blocks_dropped.entry(ino).or_default() += 1;
                continue;
            }
            if foreign {
                let Some(bad) = self.bad_slot(named.slot) else { continue };
                named = bad;
            } else if contested {
                if named.part == Part::Own {
                    *found.shared.entry(addr).or_default() += 1;
                }
                named.part = Part::Shared;
            }
            if foreign || contested {
                self.drop_patch(ino, index * LEAF_BLOCKS + named.slot as u64);
            }
            slots.push(named);
        }
        self.put_leaf((ino, index), before, slots, found);
    }

    pub(super) fn put_leaf(
        &mut self,
        (ino, index): (Ino, u64),
        before: u64,
        slots: Vec<Named>,
        found: &mut Found,
    ) {
        let inode = found.inodes.entry(ino).or_default();
        inode.blocks = (inode.blocks + slots.len() as u64).saturating_sub(before);
        inode.leaves.insert(index);
        if let Some(last) = slots.last() {
            inode.end = inode.end.max(index * LEAF_BLOCKS + last.slot as u64 + 1);
        }
        let change = leaf_value::encode(slots.into_iter()).map_or(Change::Delete, Change::Put);
        self.changes.insert((keys::home(ino), keys::key(ino, keys::MAP, index)), change);
    }

    fn drop_patch(&mut self, ino: Ino, block: u64) {
        let key = keys::key(ino, keys::PATCH, block);
        if matches!(self.core.pool.get(keys::home(ino), &key), Ok(Some(_))) {
            self.changes.insert((keys::home(ino), key), Change::Delete);
        }
    }

    /// Nothing of a leaf can be read, as far as the file goes.
    fn lose_leaf(&mut self, ino: Ino, index: u64, found: &mut Found) {
        let size = found.inodes.get(&ino).and_then(|inode| inode.stored).map(|stored| stored.size);
        let first = index * LEAF_BLOCKS;
        let blocks = size.map_or(LEAF_BLOCKS, |size| size.div_ceil(BLOCK_BYTES));
        let count = blocks.saturating_sub(first).min(LEAF_BLOCKS) as usize;
        let slots = self.bad_slots(count);
        for block in first..first + LEAF_BLOCKS {
            self.drop_patch(ino, block);
        }
        self.put_leaf((ino, index), 0, slots, found);
    }

    /// The leaves that lay in a part of the tree that is lost, of files that had more blocks than
    /// are there, or of which nobody knows how many they had.
    fn mark_lost(&mut self, lost: &Lost, found: &mut Found) {
        for (ino, stored) in lost.files(found) {
            let unsure = self.unsure.contains(&ino);
            let has_lost = |inode: &&Inode| unsure || stored.blocks > inode.blocks;
            let Some(inode) = found.inodes.get(&ino).filter(has_lost) else { continue };
            let leaves = stored.size.div_ceil(LEAF_BLOCKS * BLOCK_BYTES);
            let gone: Vec<u64> = lost
                .range(ino, keys::MAP, leaves)
                .filter(|i| !inode.leaves.contains(i))
                .take(LEAVES_MAX as usize + 1)
                .collect();
            if gone.is_empty() {
                continue;
            }
            let missing = match unsure {
                true => "blocks".to_owned(),
                false => format!("{} blocks", stored.blocks - inode.blocks),
            };
            if gone.len() as u64 > LEAVES_MAX {
                let what = format!("{missing} of it are lost, in too large a range to be marked");
                self.say(crate::check::inode_place(ino), what);
                self.unmarked.insert(ino);
                continue;
            }
            let what = format!(
                "the map of {} KiB from there on is lost, with {missing}: reading there is an \
                 error now",
                gone.len() as u64 * LEAF_BLOCKS * BLOCK_BYTES / 1024
            );
            self.say(file_place(ino, gone[0] * LEAF_BLOCKS), what);
            for index in gone {
                self.lose_leaf(ino, index, found);
            }
        }
    }

    /// Holes of files where the part of the tree is lost that would say whether bytes lie over
    /// them.
    fn mark_lost_bytes(&mut self, lost: &Lost, found: &mut Found) {
        for (ino, stored) in lost.files(found) {
            let range = lost.range(ino, keys::PATCH, stored.size.div_ceil(BLOCK_BYTES));
            if range.is_empty() {
                continue;
            }
            if range.end - range.start > LEAVES_MAX * LEAF_BLOCKS {
                let what = "what was written in parts of its holes may be lost: too many to mark";
                self.say(crate::check::inode_place(ino), what);
                self.unmarked.insert(ino);
                continue;
            }
            for index in range.start / LEAF_BLOCKS..=(range.end - 1) / LEAF_BLOCKS {
                self.mark_holes((ino, index), range.clone(), found);
            }
        }
    }

    fn mark_holes(&mut self, (ino, index): (Ino, u64), range: Range<u64>, found: &mut Found) {
        let mut slots = self.slots_of(ino, index);
        let before = slots.len();
        for slot in 0..LEAF_BLOCKS as usize {
            let block = index * LEAF_BLOCKS + slot as u64;
            let patched = found.inodes.get(&ino).is_some_and(|i| i.patched.contains_key(&block));
            let named = slots.iter().any(|named| named.slot == slot);
            if range.contains(&block) && !patched && !named {
                slots.extend(self.bad_slot(slot));
            }
        }
        if slots.len() > before {
            let what = format!(
                "{} holes may have held bytes that are lost: reading there is an error now",
                slots.len() - before
            );
            self.say(file_place(ino, index * LEAF_BLOCKS), what);
            slots.sort_unstable_by_key(|named| named.slot);
            self.put_leaf((ino, index), before as u64, slots, found);
        }
    }

    /// Slots of all leaves that are written anew and name the block that cannot be read.
    fn count_bad_slots(&self, bad: Placed) -> u64 {
        let is_map = |key: &Key| key.kind == keys::MAP && key.object != 0;
        let leaves = self.changes.iter().filter(|((_, key), _)| is_map(key));
        let slots = leaves.filter_map(|(_, change)| match change {
            Change::Put(value) => leaf_value::decode(value),
            Change::Delete => None,
        });
        slots.flatten().filter(|named| named.placed.addr == bad.addr).count() as u64
    }

    /// Counts the references to blocks anew; gives all blocks that are in use.
    pub(super) fn count_places(&mut self, found: &mut Found) -> BTreeSet<BlockAddr> {
        if let Some(bad) = self.bad {
            let slots = self.count_bad_slots(bad);
            found.shared.insert(bad.addr, slots);
        }
        let mut counts: BTreeMap<u64, [u32; REFERENCES_BLOCKS as usize]> = BTreeMap::new();
        for (addr, count) in &found.shared {
            let index = keys::references(*addr).index;
            let counts = counts.entry(index).or_insert([0; REFERENCES_BLOCKS as usize]);
            counts[(addr.bits() % REFERENCES_BLOCKS) as usize] = *count as u32;
        }
        let slices = self.core.pool.slices().len();
        let mut wrong = 0;
        for (index, counts) in &counts {
            let value = references::encode(counts);
            if found.counted.remove(index) != value
                && let Some(value) = value
            {
                wrong += 1;
                let key = Key::new(0, keys::REFERENCES, *index);
                let slice = references::home(*index, slices) as u8;
                self.changes.insert((slice, key), Change::Put(value));
            }
        }
        for index in std::mem::take(&mut found.counted).into_keys() {
            wrong += 1;
            let key = Key::new(0, keys::REFERENCES, index);
            self.changes.insert((references::home(index, slices) as u8, key), Change::Delete);
        }
        if wrong > 0 {
            self.say("references to blocks", format!("counted anew in {wrong} places"));
        }
        found.owners.keys().chain(found.shared.keys()).copied().collect()
    }
}
