//! Removing names, and the end of inodes.
//!
//! The record that removes an inode's last name also drops the inode, or, while it is open,
//! remembers it as an orphan; the last close, or the next open of the pool, drops it then. What a
//! client of an earlier server may have open counts as open (`take_over`).

use crate::clock::now;
use crate::core::Core;
use crate::dir::Name;
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::item;
use crate::keys;
use crate::namespace::{Touched, check_directory, check_name, lock_all};
use crate::request;
use crate::rights::{Caller, Owned};
use crate::slot::Freed;
use crate::types::{Attr, FileKind, Ino, Timestamp};
use pool::tree::Change;
use pool::{KIND_CHANGE, RecordBuffer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    /// The inode that `name` of `dir` stands for now, with the entry's cookie.
    pub(crate) fn child(
        &self,
        dir: &Arc<Inode>,
        name: Name<'_>,
    ) -> Result<Option<(u64, Arc<Inode>)>> {
        loop {
            let Some((cookie, ino)) = self.entry(dir, name)? else { return Ok(None) };
            match self.inode(ino) {
                Ok(inode) => return Ok(Some((cookie, inode))),
                // the name was taken away or given to another meanwhile; if not, it dangles
                Err(Error::NotFound) if self.entry(dir, name)? == Some((cookie, ino)) => {
                    let key = keys::key(dir.ino, keys::DIRENT, cookie);
                    return Err(crate::core::damaged_value(&key));
                }
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn entry(&self, dir: &Arc<Inode>, name: Name<'_>) -> Result<Option<(u64, Ino)>> {
        let cached = {
            let meta = dir.meta.read();
            check_directory(dir, &meta)?;
            self.find_cached(&meta, name)
        };
        match cached {
            Some(found) => Ok(found),
            None => self.find(dir, &mut dir.meta.write(), name),
        }
    }

    /// Removes a name: of a directory if `directory`, else of anything else. Returns what is left
    /// of an inode that lost its last name.
    pub fn remove(
        &self,
        parent: Ino,
        name: &[u8],
        directory: bool,
        caller: Option<&Caller>,
    ) -> Result<Option<Attr>> {
        match name {
            b"." => {
                return Err(Error::Invalid("the directory itself cannot be removed from inside"));
            }
            b".." => return Err(Error::NotEmpty),
            name => check_name(name)?,
        }
        let name = self.name(name);
        let dir = self.inode_to_lock(parent)?;
        self.change(|| {
            loop {
                let (_, inode) = self.child(&dir, name)?.ok_or(Error::NotFound)?;
                if inode.ino == dir.ino {
                    return Err(Error::Damaged("a directory is an entry of its own".to_owned()));
                }
                let mut locked = lock_all(&mut [&dir, &inode]);
                let mut own = locked.take(&inode);
                let mut meta = locked.take(&dir);
                check_directory(&dir, &meta)?;
                let Some((cookie, ino)) = self.find(&dir, &mut meta, name)? else {
                    return Err(Error::NotFound);
                };
                if ino != inode.ino {
                    continue;
                }
                let owned = Owned::of(&inode, &own);
                self.permit_removal(caller, (&dir, &mut meta), owned)?;
                check_removable(&inode, directory)?;
                return self.remove_entry(&dir, &mut meta, cookie, &inode, &mut own);
            }
        })
    }

    fn remove_entry(
        &self,
        dir: &Arc<Inode>,
        meta: &mut Meta,
        cookie: u64,
        inode: &Arc<Inode>,
        own: &mut Meta,
    ) -> Result<Option<Attr>> {
        let time = now();
        let is_dir = u32::from(inode.kind == FileKind::Directory);
        let entries = Self::entries(dir).saturating_sub(1);
        let touched = Touched { links: meta.links.saturating_sub(is_dir), entries };
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        item::push_delete(&mut record, dir.ino.0, keys::DIRENT, cookie);
        self.push_dir(&mut record, dir, &touched);
        let end = self.push_unnamed(&mut record, inode, own, time);
        let left = end.left(inode, own, time);
        let mut freed = Freed::default();
        let mut published = Ok(());
        self.log(&mut record, &[dir, inode], || {
            self.set_entry(meta, cookie, None);
            self.touch_dir(dir, meta, &touched, time);
            published = self.unnamed(inode, own, end, time, &mut freed);
        })?;
        self.retire(&freed);
        self.published(published)?;
        Ok(left)
    }

    /// Adds to the record what the loss of one name means for the inode.
    pub(crate) fn push_unnamed(
        &self,
        record: &mut RecordBuffer,
        inode: &Inode,
        meta: &Meta,
        time: i64,
    ) -> NameLoss {
        let left = match inode.kind {
            FileKind::Directory => 0,
            _ => meta.links.saturating_sub(1),
        };
        if left > 0 {
            self.push_links(record, inode, meta, left, time);
            NameLoss::Named(left)
        } else if inode.opens.load(Ordering::Acquire) > 0 || self.inherited.may_hold(inode) {
            self.push_links(record, inode, meta, 0, time);
            let orphan = keys::orphan(inode.ino);
            item::push_put(record, orphan.object, orphan.kind, orphan.index, keys::UNLINKED);
            NameLoss::Orphan
        } else {
            item::push_drop(record, inode.ino);
            NameLoss::Gone
        }
    }

    /// Takes over what `push_unnamed` said.
    pub(crate) fn unnamed(
        &self,
        inode: &Arc<Inode>,
        meta: &mut Meta,
        loss: NameLoss,
        time: i64,
        freed: &mut Freed,
    ) -> Result<()> {
        inode.changed.store(time, Ordering::Relaxed);
        match loss {
            NameLoss::Named(links) => {
                self.mark_dirty(inode);
                meta.links = links;
                Ok(())
            }
            NameLoss::Orphan => {
                self.mark_dirty(inode);
                meta.links = 0;
                meta.orphan = true;
                self.inherited.keep(inode);
                meta.pending.insert(keys::orphan(inode.ino), Change::Put(keys::UNLINKED.to_vec()));
                Ok(())
            }
            NameLoss::Gone => self.gone(inode, meta, freed),
        }
    }

    /// The inode is dropped: in DRAM now, in the tree (if it is there) at the next checkpoint.
    pub(crate) fn gone(
        &self,
        inode: &Arc<Inode>,
        meta: &mut Meta,
        freed: &mut Freed,
    ) -> Result<()> {
        meta.links = 0;
        meta.gone = true;
        meta.pending.clear();
        self.inodes.fetch_sub(1, Ordering::Relaxed);
        if let Some(dir) = &mut meta.dir {
            dir.clear();
            self.count_entries(inode.ino, dir);
        }
        if !inode.stored.load(Ordering::Relaxed) {
            self.forget_unstored(inode);
        } else {
            if meta.orphan {
                meta.pending.insert(keys::orphan(inode.ino), Change::Delete);
            }
            self.mark_dirty(inode);
        }
        self.drop_data(inode, freed)
    }

    /// A handle was closed: an orphan that nobody has open any more is dropped.
    pub fn release(&self, inode: &Arc<Inode>) -> Result<()> {
        // ordering: AcqRel, so that who closes last sees what the others did
        if inode.opens.fetch_sub(1, Ordering::AcqRel) != 1 || !inode.meta.read().orphan {
            return Ok(());
        }
        self.drop_orphan(inode)
    }

    /// Drops an orphan. Whatever request that comes at the end of, it is not its change.
    #[cold]
    pub fn drop_orphan(&self, inode: &Arc<Inode>) -> Result<()> {
        request::repeatable(|| self.change(|| self.try_drop(inode)))
    }

    fn try_drop(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut meta = inode.meta.write();
        if meta.gone || !meta.orphan || inode.opens.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        let mut record = RecordBuffer::new(KIND_CHANGE, now());
        item::push_drop(&mut record, inode.ino);
        let mut freed = Freed::default();
        let mut published = Ok(());
        self.log(&mut record, &[inode], || {
            published = self.gone(inode, &mut meta, &mut freed);
        })?;
        self.retire(&freed);
        self.published(published)
    }
}

/// What the loss of one name means for an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NameLoss {
    /// It has this many left.
    Named(u32),
    /// It has none, but is open, or may be to a client of an earlier server.
    Orphan,
    /// It is gone.
    Gone,
}

impl NameLoss {
    /// What is left of the inode, if that was its last name: its attributes as they are until now.
    pub(crate) fn left(self, inode: &Inode, meta: &Meta, time: i64) -> Option<Attr> {
        let attr = || Attr { links: 0, changed: Timestamp(time), ..inode.attr(meta) };
        (!matches!(self, NameLoss::Named(_))).then(attr)
    }
}

pub(crate) fn check_removable(inode: &Inode, directory: bool) -> Result<()> {
    check_kind(inode, directory)?;
    if directory && Core::entries(inode) > 0 { Err(Error::NotEmpty) } else { Ok(()) }
}

pub(crate) fn check_kind(inode: &Inode, directory: bool) -> Result<()> {
    match (inode.kind == FileKind::Directory, directory) {
        (true, false) => Err(Error::IsDirectory),
        (false, true) => Err(Error::NotDirectory),
        _ => Ok(()),
    }
}
