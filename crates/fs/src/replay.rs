//! Recovery: the records that no checkpoint folded, applied to DRAM in the order of their stamps.
//! Which of them are to be believed is `torn`'s to say.

use crate::attr::Stored;
use crate::core::{Core, damaged_value};
use crate::dir::Dirent;
use crate::error::{Error, Result};
use crate::fallocate::PUNCH_BLOCKS_MAX;
use crate::inode::Inode;
use crate::item::{Item, Items, Placed};
use crate::keys;
use crate::patches::Patches;
use crate::request::RequestId;
use crate::slot::{Freed, SlotChange};
use crate::tickets::decode_orphan;
use crate::types::{FILE_BYTES_MAX, FileKind, Ino};
use crate::write::grow;
use pmem::Domain;
use pool::tree::Change;
use pool::{BLOCK_BYTES, INODE_COUNTER_MAX, Left, Record, Recovery};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A record makes no sense.
pub fn damaged_record(record: &Record) -> Error {
    Error::Damaged(format!(
        "the log's record with stamp {} (slice {}, lane {}) makes no sense",
        record.stamp, record.slice, record.lane
    ))
}

impl Core {
    /// Applies what the log holds. Returns the number of records applied.
    pub fn replay(&self, recovery: &Recovery) -> Result<u64> {
        self.check_spilled(&recovery.records)?;
        let crashed = recovery.left >= Some(Left::Crashed);
        if crashed && self.pool.domain() == Domain::Sync {
            return self.replay_epoch(recovery);
        }
        if let Some(damage) = recovery.damage.first() {
            return Err(pool::Error::Damaged {
                slice: u32::from(damage.slice),
                offset: damage.offset,
                what: damage.what.clone(),
            }
            .into());
        }
        if crashed && self.pool.domain() == Domain::Process {
            self.pool.note(
                "the machine was restarted while the pool was open in the domain process, which \
                 survives a killed process only; run nearside check"
                    .to_owned(),
            );
        }
        let torn = self.torn_tails(&recovery.records)?;
        if recovery.left == Some(Left::Lost) {
            self.verify_after_loss(recovery, &torn)?;
        }
        if self.pool.has_mirrors() {
            let decoded = |(record, items): (_, Result<Items>)| Some((record, items.ok()?));
            let changes: Vec<_> = self.changes_of(recovery, &torn).filter_map(decoded).collect();
            self.settle_data(&changes, false);
        }
        let mut applied = 0;
        for (record, items) in self.changes_of(recovery, &torn) {
            let items = items?;
            self.apply_all(&items, record)?;
            applied += 1;
        }
        Ok(applied)
    }

    /// After a restart of the machine: the newest epoch of which everything is there. An error if a
    /// record of what was synced is lost.
    pub(crate) fn replay_epoch(&self, recovery: &Recovery) -> Result<u64> {
        let synced = recovery.synced_epoch()?.map(|epoch| epoch.tails);
        for epoch in recovery.whole_epochs() {
            let records = pool::records_until(&recovery.records, &epoch.tails);
            let Some(changes) = self.changes_in(&records)? else {
                if synced.as_ref() == Some(&epoch.tails) {
                    let what = "a record's payload is not what was written, and it was synced";
                    return Err(Error::Damaged(what.to_owned()));
                }
                continue;
            };
            let damaged: Vec<&Record> = self.mismatches(&changes).collect();
            let is_synced = |record: &&Record| {
                synced.as_ref().is_some_and(|tails| pool::is_until(record, tails))
            };
            if !damaged.iter().all(is_synced) {
                continue;
            }
            if let Some(record) = damaged.first() {
                self.pool.note(format!(
                    "data that was synced is damaged: that of the log's record with stamp {} \
                     (slice {}, lane {}), at least; reading it is an error; run nearside check",
                    record.stamp, record.slice, record.lane
                ));
            }
            // the sync that closed it may not have ended
            self.settle_data(&changes, true);
            for (record, items) in &changes {
                self.apply_all(items, record)?;
            }
            return Ok(changes.len() as u64);
        }
        Ok(0)
    }

    pub(crate) fn apply_all(&self, items: &[Item], record: &Record) -> Result<()> {
        if record.is_spilled() {
            // until it is folded its payload stays where it is
            self.pool.withhold_spilled(record)?;
        }
        items.iter().try_for_each(|item| self.apply(item, record))?;
        // a truncation changes the time of the content, unless the record sets attributes itself
        for item in items {
            let Item::Truncate { ino, .. } = item else { continue };
            let sets = |other: &Item| matches!(other, Item::Put { object, .. } if *object == ino.0);
            if !items.iter().any(sets) {
                self.replayed_inode(*ino, record)?.touch(record.time_ns);
            }
        }
        Ok(())
    }

    fn replayed_inode(&self, ino: Ino, record: &Record) -> Result<Arc<Inode>> {
        let inode = self.inode(ino).map_err(|error| match error {
            Error::NotFound => damaged_record(record),
            error => error,
        })?;
        inode.stamped(record.stamp);
        self.mark_dirty(&inode);
        Ok(inode)
    }

    pub fn replayed_file(&self, ino: Ino, record: &Record) -> Result<Arc<Inode>> {
        let inode = self.replayed_inode(ino, record)?;
        if inode.kind == FileKind::File { Ok(inode) } else { Err(damaged_record(record)) }
    }

    fn apply(&self, item: &Item, record: &Record) -> Result<()> {
        let mut freed = Freed::default();
        self.apply_to(item, record, &mut freed)?;
        // what else replay frees is read off the trees afterwards
        for addr in freed.shared {
            self.unrefer(addr)?;
        }
        Ok(())
    }

    fn apply_to(&self, item: &Item, record: &Record, freed: &mut Freed) -> Result<()> {
        match item {
            Item::Write { ino, block, placed, end } => {
                self.apply_write((*ino, *block, *end), placed, record, freed)
            }
            Item::Inline { ino, block, placed, data, end } => {
                let patches = Arc::new(Patches::whole(data));
                let change = SlotChange::Unwritten(*placed, patches);
                let changes = smallvec![change];
                self.apply_blocks((*ino, *block, *end), &[*placed], changes, record, freed)
            }
            Item::Share(share) => self.apply_share(share, record, freed),
            Item::Reserve { ino, runs } => self.apply_reserve(*ino, runs, record, freed),
            Item::Patch { ino, offset, data, crc, end } => {
                self.apply_patch((*ino, *offset, *end), data, *crc, record)
            }
            Item::Move { ino, runs } => self.apply_move(*ino, runs, record, freed),
            Item::Truncate { ino, size } => {
                let inode = self.replayed_file(*ino, record)?;
                if *size > FILE_BYTES_MAX {
                    return Err(damaged_record(record));
                }
                // of what is reserved behind the file's end, one that grows leaves all
                let old = inode.size.load(Ordering::Relaxed);
                self.cut_off(&inode, old, *size, freed)
            }
            Item::Punch { ino, block, blocks } => {
                let inode = self.replayed_file(*ino, record)?;
                // each leaf of the range is looked for: all that a file may have would take minutes
                let end = block
                    .checked_add(*blocks)
                    .filter(|_| *blocks <= PUNCH_BLOCKS_MAX)
                    .filter(|end| *end <= FILE_BYTES_MAX / BLOCK_BYTES)
                    .ok_or_else(|| damaged_record(record))?;
                inode.touch(record.time_ns);
                self.clear_blocks(&inode, *block..end, freed)
            }
            Item::Touch { ino, links, entries } => {
                let inode = self.replayed_inode(*ino, record)?;
                if inode.kind != FileKind::Directory || *entries > u64::MAX / 64 {
                    return Err(damaged_record(record));
                }
                let mut meta = inode.meta.write();
                meta.links = *links;
                // whatever the tree said of it
                meta.orphan &= *links == 0;
                drop(meta);
                inode.size.store(*entries, Ordering::Relaxed);
                inode.touch(record.time_ns);
                Ok(())
            }
            Item::Drop { ino } => {
                let inode = self.replayed_inode(*ino, record)?;
                let mut meta = inode.meta.write();
                self.gone(&inode, &mut meta, freed)
            }
            Item::Put { object, kind, index, value } => {
                self.apply_put(*object, *kind, *index, value, record)
            }
            Item::Delete { object, kind, index } => {
                self.apply_delete(*object, *kind, *index, record)
            }
            Item::Request { client, sequence, answer } => {
                let client = u128::from_le_bytes(*client);
                self.tickets.met(RequestId { client, sequence: *sequence }, *answer);
                Ok(())
            }
        }
    }

    fn apply_write(
        &self,
        (ino, block, end): (Ino, u64, u64),
        placed: &[Placed],
        record: &Record,
        freed: &mut Freed,
    ) -> Result<()> {
        let changes = placed.iter().map(|placed| SlotChange::Recover(*placed)).collect();
        self.apply_blocks((ino, block, end), placed, changes, record, freed)
    }

    fn apply_blocks(
        &self,
        (ino, block, end): (Ino, u64, u64),
        placed: &[Placed],
        mut changes: SmallVec<[SlotChange<'_>; 1]>,
        record: &Record,
        freed: &mut Freed,
    ) -> Result<()> {
        if !self.write_fits(block, placed, end) {
            return Err(damaged_record(record));
        }
        let inode = self.replayed_file(ino, record)?;
        let grown = || grow(&inode, end, record.time_ns);
        if changes.len() == 1
            && let Some(change) = changes.pop()
        {
            let published = self.publish_one(&inode, block, &change, grown)?;
            if !published.old.is_none() {
                freed.push(published.old, published.shared);
            }
            return Ok(());
        }
        self.publish(&inode, block, &changes, freed, grown)
    }

    fn apply_patch(
        &self,
        (ino, offset, end): (Ino, u64, u64),
        data: &[u8],
        crc: u32,
        record: &Record,
    ) -> Result<()> {
        let inode = self.replayed_file(ino, record)?;
        let block = offset / BLOCK_BYTES;
        let at = (offset % BLOCK_BYTES) as usize;
        let inside = end <= FILE_BYTES_MAX && offset < FILE_BYTES_MAX;
        if !inside || at + data.len() > BLOCK_BYTES as usize {
            return Err(damaged_record(record));
        }
        let view = self.view_block(&inode, block)?;
        if view.shared || view.reserved || view.addr.device().is_some() {
            // nobody patches a block that has other places, none that is reserved, none of the tier
            return Err(damaged_record(record));
        }
        let patches = view.patches.as_deref().unwrap_or(&Patches::default()).with(at, data);
        let change = [SlotChange::Patch(Arc::new(patches), crc)];
        self.publish(&inode, block, &change, &mut Freed::default(), || {
            grow(&inode, end, record.time_ns);
        })
    }

    fn apply_put(
        &self,
        object: u64,
        kind: u8,
        index: u64,
        value: &[u8],
        record: &Record,
    ) -> Result<()> {
        let ino = Ino(if object == 0 { index } else { object });
        if object == 0 && kind != keys::ORPHAN {
            // other keys of no inode are checkpoints' to write
            return Err(damaged_record(record));
        }
        if object != 0 && kind == keys::INODE {
            return self.apply_inode(ino, value, record);
        }
        let inode = self.replayed_inode(ino, record)?;
        let mut meta = inode.meta.write();
        if object == 0 {
            let (nameable, _) = decode_orphan(value).ok_or_else(|| damaged_record(record))?;
            (meta.orphan, meta.nameable) = (true, nameable);
        } else if kind == keys::DIRENT {
            let (Some(dir), Some(entry)) = (&mut meta.dir, Dirent::decode(value)) else {
                return Err(damaged_record(record));
            };
            dir.set(index, Some(entry));
            return Ok(());
        } else if kind == keys::XATTR || kind == keys::SYMLINK {
            // put together when it is asked for
            meta.xattrs = None;
            meta.target = None;
        } else {
            return Err(damaged_record(record));
        }
        let key = pool::tree::Key::new(object, kind, index);
        meta.pending.insert(key, Change::Put(value.to_vec()));
        Ok(())
    }

    fn apply_inode(&self, ino: Ino, value: &[u8], record: &Record) -> Result<()> {
        let mut stored = Stored::decode(value).ok_or_else(|| damaged_record(record))?;
        match self.inode(ino) {
            Ok(inode) => {
                inode.restore(&mut inode.meta.write(), &stored);
                inode.stamped(record.stamp);
                self.mark_dirty(&inode);
            }
            Err(Error::NotFound) if self.cached_inode(ino).is_none() => {
                if keys::counter_of(ino) >= INODE_COUNTER_MAX {
                    return Err(damaged_record(record));
                }
                self.pool.inode_seen(keys::home(ino), keys::counter_of(ino));
                stored.stamp = record.stamp;
                let inode = Arc::new(Inode::new(ino, &stored, false));
                self.insert_inode(&inode);
                self.mark_dirty(&inode);
                self.inodes.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::NotFound) => return Err(damaged_record(record)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn apply_delete(&self, object: u64, kind: u8, index: u64, record: &Record) -> Result<()> {
        let ino = Ino(if object == 0 { index } else { object });
        if object == 0 && kind != keys::ORPHAN {
            return Err(damaged_record(record));
        }
        let inode = self.replayed_inode(ino, record)?;
        let mut meta = inode.meta.write();
        if object != 0 && kind == keys::DIRENT {
            let dir = meta.dir.as_mut().ok_or_else(|| damaged_record(record))?;
            dir.set(index, None);
        } else {
            if object == 0 {
                // it was given its first name
                (meta.orphan, meta.nameable) = (false, false);
            }
            meta.xattrs = None;
            meta.pending.insert(pool::tree::Key::new(object, kind, index), Change::Delete);
        }
        Ok(())
    }

    /// Folds what replay brought into the trees, and takes the free space from them.
    pub fn commit_recovery(&self) -> Result<()> {
        self.settle_overlays();
        let closed = self.pool.close_gate();
        let cut = self.pool.cut(&closed, self.inodes.load(Ordering::Relaxed).max(0) as u64);
        let (batch, folded) = self.encode();
        drop(closed);
        self.mark_named(&batch)?;
        self.pool.commit(cut, &batch, &crate::checkpoint::FileBlocks)?;
        *self.folded.lock() = folded;
        Ok(self.pool.load_space(true)?)
    }

    /// Takes the blocks that replayed records name, so that no tree page is put there.
    pub fn mark_named(&self, batch: &[pool::SliceBatch]) -> Result<()> {
        for (key, change) in batch.iter().flat_map(|slice| &slice.changes) {
            let Change::Put(value) = change else { continue };
            if key.kind != keys::MAP || key.object == 0 {
                continue;
            }
            let named = crate::leaf_value::decode(value).ok_or_else(|| damaged_value(key))?;
            for addr in named.iter().map(|named| named.placed.addr) {
                let slice = self.pool.slices().get(usize::from(addr.slice()));
                slice.map(|slice| slice.space.mark_used(addr.block()));
            }
        }
        Ok(())
    }
}
