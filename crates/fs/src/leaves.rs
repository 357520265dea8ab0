//! Finding, loading, growing and publishing leaves of a file's block map.

use crate::core::{Core, damaged_value};
use crate::error::Result;
use crate::inode::Inode;
use crate::keys;
use crate::leaf::{DIRTY, LEAF_BLOCKS, Leaf, LeafLock};
use crate::patches::Patches;
use crate::slot::{Freed, Published, SlotChange};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Units of a leaf's value at worst.
pub const LEAF_UNITS: u64 = 26;

/// Changes of the blocks from the first one on.
pub type Part<'c> = (u64, &'c [SlotChange<'c>]);

/// Leaf and slot of a block of a file.
#[inline]
pub fn leaf_of(block: u64) -> (u64, usize) {
    (block / LEAF_BLOCKS, (block % LEAF_BLOCKS) as usize)
}

impl Core {
    /// The leaf for reading; `None`: all hole.
    #[inline]
    pub fn leaf(&self, inode: &Inode, index: u64) -> Result<Option<Arc<Leaf>>> {
        match inode.map.cached(index) {
            Some(leaf) => Ok(Some(leaf)),
            None if !inode.map.in_tree(index) => Ok(None),
            None => {
                let _loading = inode.map.loading.lock();
                if let Some(leaf) = inode.map.cached(index) {
                    return Ok(Some(leaf));
                }
                let leaf = self.load_leaf(inode, index)?.map(Arc::new);
                if let Some(leaf) = &leaf {
                    self.cache_leaf(inode, index, leaf, 0);
                }
                Ok(leaf)
            }
        }
    }

    /// The leaf as the tree has it; `None`: the tree has nothing there.
    pub fn load_leaf(&self, inode: &Inode, index: u64) -> Result<Option<Leaf>> {
        let home = keys::home(inode.ino);
        if !inode.map.in_tree(index) {
            return Ok(None);
        }
        let key = keys::key(inode.ino, keys::MAP, index);
        let value = self.pool.get(home, &key)?;
        let first = index * LEAF_BLOCKS;
        let from = keys::key(inode.ino, keys::PATCH, first);
        let to = keys::key(inode.ino, keys::PATCH, first + LEAF_BLOCKS);
        let mut patches = Vec::new();
        let mut damaged = None;
        self.pool.scan(home, from, to, &mut |key, value| {
            match Patches::decode(value) {
                Some(found) => patches.push(((key.index - first) as usize, Arc::new(found))),
                None => damaged = Some(key),
            }
            damaged.is_none()
        })?;
        if let Some(key) = damaged {
            return Err(damaged_value(&key));
        }
        if value.is_none() && patches.is_empty() {
            return Ok(None);
        }
        let leaf = Leaf::load(value.as_deref(), &patches).ok_or_else(|| damaged_value(&key))?;
        if leaf.reserves() {
            inode.reserves.store(true, Ordering::Relaxed);
        }
        match leaf.fits(&self.pool) {
            true => Ok(Some(leaf)),
            false => Err(damaged_value(&key)),
        }
    }

    /// Puts a leaf in place, and counts what it takes more than the one `before` it. The caller
    /// holds `loading`.
    fn cache_leaf(&self, inode: &Inode, index: u64, leaf: &Arc<Leaf>, before: usize) {
        let more = (leaf.memory_bytes() - before) as u64;
        let inner = inode.map.store(index, leaf.clone());
        self.leaf_bytes.add(keys::home(inode.ino), more + inner);
    }

    /// The leaf for writing slot `slot`: made or grown if need be.
    #[inline]
    pub fn leaf_for_write(&self, inode: &Inode, index: u64, slot: usize) -> Result<Arc<Leaf>> {
        match inode.map.cached(index) {
            Some(leaf) if leaf.room() > slot => Ok(leaf),
            _ => self.make_leaf(inode, index, slot),
        }
    }

    fn make_leaf(&self, inode: &Inode, index: u64, slot: usize) -> Result<Arc<Leaf>> {
        let _loading = inode.map.loading.lock();
        let old = match inode.map.cached(index) {
            Some(leaf) => Some(leaf),
            None => self.load_leaf(inode, index)?.map(Arc::new),
        };
        let leaf = match &old {
            Some(leaf) if leaf.room() > slot => leaf.clone(),
            Some(leaf) => {
                let Some(lock) = leaf.lock() else { return Ok(leaf.clone()) };
                let grown = Arc::new(leaf.grown(slot));
                self.cache_leaf(inode, index, &grown, leaf.memory_bytes());
                lock.kill();
                return Ok(grown);
            }
            // a file that has a second leaf will fill it
            None if index > 0 => Arc::new(Leaf::new(LEAF_BLOCKS as usize - 1)),
            None => Arc::new(Leaf::new(slot)),
        };
        self.cache_leaf(inode, index, &leaf, 0);
        Ok(leaf)
    }

    /// Puts changes of the blocks from `first` on in place, all at once for readers; `finish` runs
    /// while they wait (it sets the size). Blocks that lost their place go to `freed`.
    pub fn publish(
        &self,
        inode: &Arc<Inode>,
        first: u64,
        changes: &[SlotChange<'_>],
        freed: &mut Freed,
        finish: impl FnOnce(),
    ) -> Result<()> {
        let (index, slot) = leaf_of(first);
        if slot + changes.len() <= LEAF_BLOCKS as usize {
            return self.publish_in(inode, index, slot, changes, freed, finish);
        }
        self.publish_parts(inode, &[(first, changes)], freed, finish)
    }

    /// The same for several runs of blocks of one file, each given with its first.
    pub fn publish_parts(
        &self,
        inode: &Arc<Inode>,
        parts: &[Part<'_>],
        freed: &mut Freed,
        finish: impl FnOnce(),
    ) -> Result<()> {
        // the highest slot of each leaf, by its index
        let mut tops: BTreeMap<u64, usize> = BTreeMap::new();
        for (first, changes) in parts {
            for block in *first..*first + changes.len() as u64 {
                let (index, slot) = leaf_of(block);
                let top = tops.entry(index).or_default();
                *top = slot.max(*top);
            }
        }
        'again: loop {
            let mut leaves = Vec::new();
            for (index, top) in &tops {
                leaves.push((*index, self.leaf_for_write(inode, *index, *top)?));
            }
            let mut locks: Vec<LeafLock<'_>> = Vec::new();
            for (_, leaf) in &leaves {
                match leaf.lock() {
                    Some(lock) => locks.push(lock),
                    None => continue 'again,
                }
            }
            for (first, changes) in parts {
                for (block, change) in (*first..).zip(*changes) {
                    let (index, slot) = leaf_of(block);
                    let place = leaves.partition_point(|(other, _)| *other < index);
                    self.place(inode, self.put(&locks[place], slot, change), change, freed);
                }
            }
            finish();
            let first: Vec<u8> = leaves.iter().map(|(_, leaf)| leaf.set_dirty()).collect();
            drop(locks);
            for ((index, _), first) in leaves.iter().zip(first) {
                self.leaf_dirty(inode, *index, first);
            }
            return Ok(());
        }
    }

    /// The same for one block; tells which block lost its place.
    #[inline]
    pub fn publish_one(
        &self,
        inode: &Arc<Inode>,
        block: u64,
        change: &SlotChange<'_>,
        finish: impl FnOnce(),
    ) -> Result<Published> {
        let (index, slot) = leaf_of(block);
        if let Some(lent) = inode.map.lent(index)
            && let Some(leaf) = lent.as_ref().filter(|leaf| leaf.room() > slot)
            && let Some(lock) = leaf.lock()
        {
            let published = self.publish_locked(inode, (index, leaf), lock, (slot, change), finish);
            if published.old.is_none() && !published.kept && change.places_a_block() {
                inode.blocks.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(published);
        }
        let mut freed = Freed::default();
        self.publish_in(inode, index, slot, std::slice::from_ref(change), &mut freed, finish)?;
        let shared = !freed.shared.is_empty();
        let old = freed.all().next().unwrap_or_default();
        Ok(Published { old, shared, ..Published::default() })
    }

    /// Changes one slot of a leaf, and lets go of its lock; `finish` runs before.
    // two callers, each of which knows which change it is
    #[inline(always)]
    pub fn publish_locked(
        &self,
        inode: &Arc<Inode>,
        (index, leaf): (u64, &Leaf),
        lock: LeafLock<'_>,
        (slot, change): (usize, &SlotChange<'_>),
        finish: impl FnOnce(),
    ) -> Published {
        let published = self.put(&lock, slot, change);
        finish();
        let first = leaf.set_dirty();
        drop(lock);
        self.leaf_dirty(inode, index, first);
        published
    }

    /// Calls `each` with every leaf in DRAM that changed since the last cut.
    pub fn each_dirty_leaf(&self, each: &mut dyn FnMut(&Arc<Inode>, u64, &Leaf)) {
        let dirty = self.dirty.all();
        for inode in &dirty {
            let leaves = inode.dirty_leaves.lock().clone();
            for index in leaves {
                if let Some(leaf) = inode.map.cached(index) {
                    each(inode, index, &leaf);
                }
            }
        }
    }

    /// Changes one slot of a locked leaf, and the block's bytes where they change in place.
    #[inline]
    fn put(&self, lock: &LeafLock<'_>, slot: usize, change: &SlotChange<'_>) -> Published {
        let published = lock.publish(slot, change);
        if let SlotChange::InPlace(change) = change {
            self.pool.store_in_place(change.addr, change.at, change.data);
        }
        published
    }

    #[inline]
    fn publish_in(
        &self,
        inode: &Arc<Inode>,
        index: u64,
        slot: usize,
        changes: &[SlotChange<'_>],
        freed: &mut Freed,
        finish: impl FnOnce(),
    ) -> Result<()> {
        loop {
            let leaf = self.leaf_for_write(inode, index, slot + changes.len() - 1)?;
            let Some(lock) = leaf.lock() else { continue };
            for (offset, change) in changes.iter().enumerate() {
                self.place(inode, self.put(&lock, slot + offset, change), change, freed);
            }
            finish();
            let first = leaf.set_dirty();
            drop(lock);
            self.leaf_dirty(inode, index, first);
            return Ok(());
        }
    }

    #[inline]
    fn place(
        &self,
        inode: &Inode,
        published: Published,
        change: &SlotChange<'_>,
        freed: &mut Freed,
    ) {
        let had = !published.old.is_none();
        if had {
            freed.push(published.old, published.shared);
        }
        if published.first_patch {
            self.dirty_units.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(change, SlotChange::Patch(..)) {
            self.dirty_units.fetch_add(1, Ordering::Relaxed);
        }
        match (had || published.kept, change) {
            (false, change) if change.places_a_block() => {
                inode.blocks.fetch_add(1, Ordering::Relaxed);
            }
            (true, SlotChange::Clear) => {
                inode.blocks.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// The leaf changed (`first`: and what it was not before): the next checkpoint folds it.
    #[inline(always)]
    fn leaf_dirty(&self, inode: &Arc<Inode>, index: u64, first: u8) {
        if first != 0 {
            self.list_leaf(inode, index, first);
        }
        self.mark_dirty(inode);
    }

    #[cold]
    fn list_leaf(&self, inode: &Inode, index: u64, first: u8) {
        if self.tier.is_some() {
            self.write_back.list(inode.ino, index);
        }
        if first & DIRTY != 0 {
            inode.dirty_leaves.lock().push(index);
            self.dirty_units.fetch_add(LEAF_UNITS, Ordering::Relaxed);
        }
    }
}
