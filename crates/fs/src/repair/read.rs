//! What can be read of a damaged pool, and the trees of it.

use crate::error::Result;
use crate::item::{BlockRun, Item};
use crate::keys;
use crate::leaf_value;
use crate::repair::{Lost, Repair};
use crate::types::Ino;
use pool::tree::{Change, Key, Met};
use pool::{BlockAddr, KIND_CHANGE, Pages, Recovery};
use std::collections::{BTreeMap, HashSet};

/// Data blocks that a value of a tree names.
fn blocks_of(key: &Key, value: &[u8]) -> Vec<BlockAddr> {
    let is_map = key.kind == keys::MAP && key.object != 0;
    let named = leaf_value::decode(value).filter(|_| is_map).unwrap_or_default();
    named.iter().map(|named| named.placed.addr).collect()
}

/// Data blocks that an item of the log names.
fn named(item: &Item) -> Vec<BlockAddr> {
    match item {
        Item::Write { placed, .. } => placed.iter().map(|placed| placed.addr).collect(),
        Item::Inline { placed, .. } => vec![placed.addr],
        Item::Reserve { runs, .. } | Item::Move { runs, .. } => {
            let of = |run: &BlockRun| {
                let (first, blocks) = (run.addr.bits(), run.blocks.min(RESERVED_MAX));
                (0..blocks).map_while(move |block| BlockAddr::from_bits(first.checked_add(block)?))
            };
            runs.iter().flat_map(of).collect()
        }
        _ => Vec::new(),
    }
}

/// More blocks than a record reserves.
const RESERVED_MAX: u64 = 1 << 24;

impl Repair {
    /// Takes all blocks that anything readable names: nothing of that is overwritten.
    pub(super) fn take_all(&mut self, recovery: &Recovery) {
        let mut pages: HashSet<BlockAddr> = HashSet::new();
        let mut data: Vec<BlockAddr> = Vec::new();
        for slice in 0..self.core.pool.slices().len() {
            let entries = self.core.pool.roots().trees.get(slice).map_or(0, |root| root.entries);
            let (mut count, mut twice, mut lost) = (0, None, Vec::new());
            self.core.pool.readable(slice, Key::MIN, &mut |met| {
                match met {
                    Met::Page(ptr, _) => {
                        // pages lie in slices, and on no device
                        let odd = |addr: &BlockAddr| {
                            let is_in_slice = addr.device().is_none();
                            !(is_in_slice && self.core.pool.contains(*addr) && pages.insert(*addr))
                        };
                        twice = ptr.blocks().filter(odd).last().or(twice);
                    }
                    Met::Entry(key, value) => {
                        count += 1;
                        data.extend(blocks_of(&key, value));
                    }
                    Met::Lost(page) => lost.push((page.from, page.upper, *page.ptr, page.why)),
                }
                true
            });
            let place = format!("slice {slice}, tree");
            if lost.is_empty() && (count != entries || twice.is_some()) {
                let what = match twice {
                    Some(addr) => format!("a page at {} is not its own", addr.place()),
                    None => format!("it has {count} entries, and says {entries}"),
                };
                self.say(&*place, format!("{what}: written anew"));
                self.rebuild.insert(slice as u8);
            }
            for (from, upper, ptr, why) in lost {
                // it may be of use to somebody yet
                data.extend(ptr.blocks());
                self.say(&*place, why.to_string());
                let before = self.before(slice, from, upper);
                for (key, change) in &before {
                    if let Change::Put(value) = change {
                        data.extend(blocks_of(key, value));
                    }
                }
                self.rebuild.insert(slice as u8);
                self.lost.push(Lost { slice: slice as u8, from, upper, before });
            }
        }
        self.take_spaces(&mut pages);
        for record in recovery.records.iter().filter(|record| record.kind == KIND_CHANGE) {
            data.extend(self.core.items_of(record).iter().flatten().flat_map(named));
            if record.is_spilled() {
                // one whose places make no sense is left out when it is to be applied
                let _ = self.core.pool.spilled_blocks(record, &mut |addr| data.push(addr));
            }
        }
        for addr in pages.into_iter().chain(data) {
            self.core.pool.take(addr);
        }
    }

    /// The pages of the free-space trees, which are made anew.
    fn take_spaces(&mut self, pages: &mut HashSet<BlockAddr>) {
        for slice in 0..self.core.pool.slices().len() {
            let mut lost = None;
            self.core.pool.readable_space(slice, &mut |met| {
                match met {
                    Met::Page(ptr, _) => pages.extend(ptr.blocks()),
                    Met::Entry(..) => {}
                    Met::Lost(page) => lost = Some(page.why.to_string()),
                }
                true
            });
            if let Some(why) = lost {
                self.say(format!("slice {slice}, free-space tree"), format!("{why}: made anew"));
            }
        }
    }

    /// What the checkpoint before had between two keys.
    fn before(&self, slice: usize, from: Option<Key>, upper: Option<Key>) -> Vec<(Key, Change)> {
        let mut before = Vec::new();
        self.core.pool.readable_before(slice, from.unwrap_or(Key::MIN), &mut |met| match met {
            Met::Entry(key, _) if upper.is_some_and(|upper| key >= upper) => false,
            Met::Entry(key, value) => {
                before.push((key, Change::Put(value.to_vec())));
                true
            }
            _ => true,
        });
        before
    }

    /// Makes all main trees readable: those that are not are made anew of what is.
    pub(super) fn read_trees(&mut self, pages: &mut Pages) -> Result<()> {
        let mut trees = self.core.pool.roots().trees.clone();
        let mut before: BTreeMap<u8, Vec<(Key, Change)>> =
            self.rebuild.iter().map(|slice| (*slice, Vec::new())).collect();
        for lost in &mut self.lost {
            before.entry(lost.slice).or_default().append(&mut lost.before);
        }
        for (slice, mut before) in before {
            before.sort_unstable_by_key(|(key, _)| *key);
            before.dedup_by_key(|(key, _)| *key);
            self.doubt_older(&before);
            let attributes = before.iter().filter(|(key, _)| key.kind == keys::INODE);
            self.unsure.extend(attributes.map(|(key, _)| Ino(key.object)));
            if !before.is_empty() {
                let what = format!(
                    "{} entries of what is lost are taken from the checkpoint before: they may be \
                     older than what was there",
                    before.len()
                );
                self.say(format!("slice {slice}, tree"), what);
            }
            let slice = usize::from(slice);
            trees[slice] = self.core.pool.rebuilt(slice, &before, pages)?;
        }
        self.core.pool.use_trees(trees);
        Ok(())
    }
}
