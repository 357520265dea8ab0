//! Checkpoints of the file system: what changed since the last cut, as values of the trees.
//!
//! The cut closes the gate for the time that it takes to encode what changed (bounded by
//! `dirty_max`), so that the values are exactly the state before the cut. Folding them into the
//! trees goes on in the background while new changes come in.

use crate::core::Core;
use crate::error::Result;
use crate::inode::{Inode, NOTHING_VOID};
use crate::keys;
use crate::leaf::{self, LEAF_BLOCKS};
use crate::leaf_value::{self, Part};
use crate::references;
use pool::tree::{Change, Key};
use pool::{BlockAddr, DataBlocks, SliceBatch};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Knows which values of the tree name data blocks.
#[derive(Debug)]
pub struct FileBlocks;

impl DataBlocks for FileBlocks {
    fn data_blocks(&self, key: &Key, value: &[u8], each: &mut dyn FnMut(BlockAddr)) {
        if key.kind == keys::MAP && key.object != 0 && key.index <= leaf::LEAF_INDEX_MAX {
            // blocks that may have several places are the counts', who name each once
            let named = leaf_value::decode(value).unwrap_or_default();
            let own = named.iter().filter(|named| named.part != Part::Shared);
            own.for_each(|named| each(named.placed.addr));
        } else if key.object == 0 && key.kind == keys::REFERENCES {
            references::decode(key.index, value).iter().flatten().for_each(|(addr, _)| each(*addr));
        }
    }
}

impl Core {
    /// Folds all changes made before the call into the trees and frees the log behind them.
    pub fn checkpoint(&self) -> Result<()> {
        let _one = self.checkpointing.lock();
        self.pool.check_writable()?;
        self.note_time();
        self.list_accessed_late();
        let began = std::time::Instant::now();
        let _timed = self.log_pace.checkpoint();
        self.write_blocks();
        let closed = self.pool.close_gate();
        self.write_blocks();
        self.tidy();
        if self.all_folded() {
            return Ok(());
        }
        let cut = self.pool.cut(&closed, self.inodes.load(Ordering::Relaxed).max(0) as u64);
        let (batch, folded) = self.encode();
        drop(closed);
        if !self.pool.has_room() {
            // the fold lives on the reserve: pages of the trees before must be back in it
            self.pool.reclaim().gather_all();
        }
        let written = self.pool.commit(cut, &batch, &FileBlocks)?;
        self.pool.reclaim().retire(&written.freed);
        if !self.pool.has_room() {
            self.pool.reclaim().gather_all();
        }
        crate::core::adapt(&self.pool);
        self.dirty_max.store(crate::core::dirty_max(&self.pool), Ordering::Relaxed);
        *self.folded.lock() = folded;
        self.checkpoint_bytes.fetch_add(written.bytes, Ordering::Relaxed);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.checkpoint_times.took(began);
        self.log_pace.took(began.elapsed());
        Ok(())
    }

    /// Whether nothing changed since the last cut, and the log is empty. The gate is closed.
    pub fn all_folded(&self) -> bool {
        let log_empty = self.pool.log_used_bytes() == 0;
        let is_clean = self.dirty.is_empty() && self.touched.lock().is_empty();
        log_empty && is_clean && !self.tickets.any_stale()
    }

    /// Everything that changed since the last cut. The gate is closed, or nobody else is there.
    pub fn encode(&self) -> (Vec<SliceBatch>, Vec<Arc<Inode>>) {
        let mut batch: Vec<SliceBatch> = Vec::new();
        batch.resize_with(self.pool.slices().len(), SliceBatch::default);
        let dirty = self.dirty.take();
        for inode in &dirty {
            if let Some(batch) = batch.get_mut(usize::from(keys::home(inode.ino))) {
                encode_inode(inode, batch);
            }
        }
        if let Some(batch) = batch.get_mut(usize::from(keys::TICKETS_SLICE)) {
            self.tickets.cut(batch);
        }
        self.references.cut(&mut batch);
        self.dirty_units.store(0, Ordering::Relaxed);
        for slice in &mut batch {
            slice.changes.sort_unstable_by_key(|(key, _)| *key);
            slice.ranges.sort_unstable();
        }
        self.encode_touched(&mut batch);
        (batch, dirty)
    }

    fn encode_touched(&self, batch: &mut [SliceBatch]) {
        let mut touched = std::mem::take(&mut *self.touched.lock());
        touched.sort_unstable_by_key(|(_, _, key)| *key);
        for (slice, is_main, key) in touched {
            if let Some(batch) = batch.get_mut(slice) {
                batch.touched[usize::from(!is_main)].push(key);
            }
        }
    }

    /// What the last complete checkpoint folded need no longer be remembered as different from the
    /// tree; what nobody uses is let go if DRAM holds too much. The gate is closed.
    pub fn tidy(&self) {
        for inode in std::mem::take(&mut *self.folded.lock()) {
            let void = inode.void_from.load(Ordering::Relaxed);
            inode.map.tree_end.store(void, Ordering::Relaxed);
            let mut meta = inode.meta.write();
            if meta.gone && !inode.dirty.load(Ordering::Relaxed) {
                self.forget_inode(inode.ino);
                continue;
            }
            if let Some(dir) = &mut meta.dir {
                dir.folded();
                self.count_entries(inode.ino, dir);
            }
        }
        if self.cached_inodes() > self.inodes_max {
            self.retain_inodes(&mut |inode| {
                inode.dirty.load(Ordering::Relaxed) || Arc::strong_count(inode) > 1
            });
        }
        if self.dirents.sum() > self.dirents_max {
            self.evict_entries();
        }
        if self.leaf_bytes.sum() > self.leaf_bytes_max {
            self.evict_leaves();
        }
        self.references.evict(self.pool.options().memory());
    }

    /// Lets go of all leaves that are as the tree has them.
    fn evict_leaves(&self) {
        let mut kept_by_slice = vec![0; self.pool.slices().len()];
        self.retain_inodes(&mut |inode| {
            let _loading = inode.map.loading.lock();
            let mut clean = Vec::new();
            let mut kept = inode.map.inner_bytes();
            inode.map.for_each(0, &mut |index, leaf| {
                if leaf.is_dirty() || !inode.map.in_tree(index) {
                    kept += leaf.memory_bytes() as u64;
                } else {
                    clean.push(index);
                }
            });
            for index in clean {
                // dead, so that a reader who still has it looks the leaf up again
                if let Some(leaf) = inode.map.take(index)
                    && let Some(lock) = leaf.lock()
                {
                    lock.kill();
                }
            }
            if let Some(sum) = kept_by_slice.get_mut(usize::from(keys::home(inode.ino))) {
                *sum += kept;
            }
            true
        });
        for (slice, kept) in kept_by_slice.into_iter().enumerate() {
            self.leaf_bytes.set(slice, kept);
        }
    }
}

fn encode_inode(inode: &Arc<Inode>, batch: &mut SliceBatch) {
    inode.dirty.store(false, Ordering::Relaxed);
    inode.stored.store(true, Ordering::Relaxed);
    let mut meta = inode.meta.write();
    let void = inode.void_from.swap(NOTHING_VOID, Ordering::Relaxed);
    let mut leaves = std::mem::take(&mut *inode.dirty_leaves.lock());
    batch.changes.extend(std::mem::take(&mut meta.pending));
    if meta.gone {
        batch.ranges.push(keys::all_of(inode.ino));
        return;
    }
    let stored = inode.stored(&meta).encode();
    batch.changes.push((keys::key(inode.ino, keys::INODE, 0), Change::Put(stored.to_vec())));
    if let Some(dir) = &mut meta.dir {
        dir.cut(&mut |cookie, entry| {
            let change = entry.map_or(Change::Delete, |entry| Change::Put(entry.encode()));
            batch.changes.push((keys::key(inode.ino, keys::DIRENT, cookie), change));
        });
    }
    if void != NOTHING_VOID {
        batch.ranges.push(keys::from_index(inode.ino, keys::MAP, void));
        batch.ranges.push(keys::from_index(inode.ino, keys::PATCH, void * LEAF_BLOCKS));
    }
    leaves.sort_unstable();
    leaves.dedup();
    for index in leaves {
        encode_leaf(inode, index, batch);
    }
}

fn encode_leaf(inode: &Inode, index: u64, batch: &mut SliceBatch) {
    // a leaf that was cut off since is in the void
    let Some(leaf) = inode.map.cached(index) else { return };
    leaf.set_clean();
    let change = leaf.encode().map_or(Change::Delete, Change::Put);
    batch.changes.push((keys::key(inode.ino, keys::MAP, index), change));
    leaf.fold_patches(&mut |slot, patches| {
        let key = keys::key(inode.ino, keys::PATCH, index * LEAF_BLOCKS + slot as u64);
        let change = patches.map_or(Change::Delete, |patches| Change::Put(patches.encode()));
        batch.changes.push((key, change));
    });
}
