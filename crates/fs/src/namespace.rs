//! Names: lookup, link, and what all changes of names share.
//!
//! Each change is one record. Locks of several inodes are taken in the order of their numbers; a
//! name that changed while they were taken is looked up again.

use crate::attr::Stored;
use crate::clock::now;
use crate::core::Core;
use crate::dir::{Dirent, Name};
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::item;
use crate::keys;
use crate::rights::{Access, Caller};
use crate::short_name::ShortName;
use crate::types::{Attr, FileKind, Ino, LINKS_MAX, NAME_BYTES_MAX, SYMLINK_BYTES_MAX, Timestamp};
use ::locks::RwLockWriteGuard;
use pool::tree::Change;
use pool::{KIND_CHANGE, RecordBuffer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A directory's counts after a change, with its time.
pub struct Touched {
    pub links: u32,
    pub entries: u64,
}

/// Whether `name` can be an entry.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    let special = name.is_empty() || name == b"." || name == b"..";
    // one pass over what is a few bytes in most cases
    if special || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(Error::Invalid("a name is not empty, not . or .., without / and NUL"));
    }
    Ok(())
}

pub(crate) fn check_directory(inode: &Inode, meta: &Meta) -> Result<()> {
    if meta.gone || (meta.orphan && inode.kind == FileKind::Directory) {
        return Err(Error::NotFound);
    }
    if inode.kind == FileKind::Directory { Ok(()) } else { Err(Error::NotDirectory) }
}

impl Core {
    /// The entry `name` of `parent`, `.` and `..` included.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let dir = self.inode(parent)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if name == b"." || name == b".." {
            let meta = dir.meta.read();
            check_directory(&dir, &meta)?;
            let up = meta.parent;
            drop(meta);
            return self.getattr(if name == b"." { parent } else { up });
        }
        let name = self.name(name);
        // ordering: a change that the attributes show has stamped the directory before it let go
        // of them
        let before = dir.stamp.load(Ordering::Acquire);
        let (_, inode) = self.child(&dir, name)?.ok_or(Error::NotFound)?;
        self.settle(&inode);
        let mut attr = inode.attr(&inode.meta.read());
        self.show(&inode, &mut attr);
        match dir.stamp.load(Ordering::Acquire) == before {
            true => Ok(attr),
            false => self.lookup_locked(&dir, name),
        }
    }

    /// The same while no entry changes: name and attributes are of one moment.
    #[cold]
    fn lookup_locked(&self, dir: &Arc<Inode>, name: Name<'_>) -> Result<Attr> {
        loop {
            let (_, inode) = self.child(dir, name)?.ok_or(Error::NotFound)?;
            let mut locked = lock_all(&mut [dir, &inode]);
            check_directory(dir, locked.get(dir))?;
            match self.find(dir, locked.get(dir), name)? {
                None => return Err(Error::NotFound),
                Some((_, ino)) if ino == inode.ino => {
                    let mut attr = inode.attr(locked.get(&inode));
                    self.show(&inode, &mut attr);
                    return Ok(attr);
                }
                Some(_) => {}
            }
        }
    }

    /// Attributes.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let inode = self.inode(ino)?;
        self.settle(&inode);
        let meta = inode.meta.read();
        if meta.gone {
            return Err(Error::NotFound);
        }
        let mut attr = inode.attr(&meta);
        drop(meta);
        self.show(&inode, &mut attr);
        Ok(attr)
    }

    /// Adds a directory's change to the record.
    pub(crate) fn push_dir(&self, record: &mut RecordBuffer, dir: &Inode, touched: &Touched) {
        item::push_touch(record, dir.ino, touched.links, touched.entries);
    }

    /// Takes a directory's change over.
    pub(crate) fn touch_dir(&self, dir: &Arc<Inode>, meta: &mut Meta, touched: &Touched, now: i64) {
        meta.links = touched.links;
        dir.size.store(touched.entries, Ordering::Relaxed);
        dir.touch(now);
        self.mark_dirty(dir);
    }

    /// Takes an entry's change over.
    pub(crate) fn set_entry(&self, meta: &mut Meta, cookie: u64, entry: Option<Dirent>) {
        let units = meta.dir.as_mut().map_or(0, |dir| dir.set(cookie, entry));
        if units != 0 {
            // ordering: a hint; adding what is negative wraps to the difference
            self.dirty_units.fetch_add(units as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn entries(dir: &Inode) -> u64 {
        dir.size.load(Ordering::Relaxed)
    }

    pub(crate) fn push_entry(record: &mut RecordBuffer, dir: &Inode, cookie: u64, entry: &Dirent) {
        let head = entry.encode_head();
        item::push_put_parts(record, dir.ino.0, keys::DIRENT, cookie, &[&head, entry.name.bytes()]);
    }

    /// Gives `ino` one more name.
    pub fn link(
        &self,
        ino: Ino,
        parent: Ino,
        name: &[u8],
        caller: Option<&Caller>,
    ) -> Result<Attr> {
        let linked = self.link_if(ino, None, (parent, name), caller)?;
        linked.ok_or(Error::NotFound)
    }

    /// Gives what `from` names one more name, in one step.
    pub fn link_name(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        caller: Option<&Caller>,
    ) -> Result<Attr> {
        let (dir, name) = (self.inode(from.0)?, self.name(from.1));
        loop {
            let (_, inode) = self.child(&dir, name)?.ok_or(Error::NotFound)?;
            if let Some(attr) = self.link_if(inode.ino, Some((&dir, name)), to, caller)? {
                return Ok(attr);
            }
        }
    }

    /// Gives `ino` one more name, if that entry leads there; `None`: not any more.
    fn link_if(
        &self,
        ino: Ino,
        from: Option<(&Arc<Inode>, Name<'_>)>,
        (parent, name): (Ino, &[u8]),
        caller: Option<&Caller>,
    ) -> Result<Option<Attr>> {
        check_name(name)?;
        let name = self.name(name);
        let dir = self.inode(parent)?;
        let inode = match self.inode(ino) {
            Err(Error::NotFound) if from.is_some() => return Ok(None),
            inode => inode?,
        };
        self.settle(&inode);
        if inode.kind == FileKind::Directory {
            self.permit_unlocked(caller, &dir, Access::NAMES)?;
            return Err(Error::NotPermitted("a directory has one name"));
        }
        if dir.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        self.change(|| {
            let from_dir = from.map_or(&dir, |(from_dir, _)| from_dir);
            let mut locked = lock_all(&mut [&dir, &inode, from_dir]);
            if let Some((from_dir, name)) = from {
                let meta = locked.get(from_dir);
                check_directory(from_dir, meta)?;
                if self.find(from_dir, meta, name)?.is_none_or(|(_, found)| found != ino) {
                    return Ok(None);
                }
            }
            let (mut own, mut meta) = (locked.take(&inode), locked.take(&dir));
            check_directory(&dir, &meta)?;
            if own.gone || (own.links == 0 && !own.nameable) {
                return Err(Error::NotFound);
            }
            if self.find(&dir, &mut meta, name)?.is_some() {
                return Err(Error::Exists);
            }
            self.permit(caller, &dir, &mut meta, Access::NAMES)?;
            if own.links >= LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            self.check_room()?;
            self.add_name((&dir, &mut meta), name, (&inode, &mut own))?;
            Ok(Some(inode.attr(&own)))
        })
    }

    /// Adds the name, which is free, to a directory: one more of the inode.
    fn add_name(
        &self,
        (dir, meta): (&Arc<Inode>, &mut Meta),
        name: Name<'_>,
        (inode, own): (&Arc<Inode>, &mut Meta),
    ) -> Result<()> {
        let first = own.links == 0;
        let time = now();
        let cookie = self.free_cookie(meta, name)?;
        let entry = Dirent { ino: inode.ino, kind: inode.kind, name: ShortName::new(name.bytes) };
        let touched = Touched { links: meta.links, entries: Self::entries(dir) + 1 };
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        Self::push_entry(&mut record, dir, cookie, &entry);
        self.push_dir(&mut record, dir, &touched);
        self.push_links(&mut record, inode, own, own.links + 1, time);
        let orphan = keys::orphan(inode.ino);
        if first {
            item::push_delete(&mut record, orphan.object, orphan.kind, orphan.index);
        }
        self.log(&mut record, &[dir, inode], || {
            self.set_entry(meta, cookie, Some(entry));
            self.touch_dir(dir, meta, &touched, time);
            own.links += 1;
            if first {
                (own.orphan, own.nameable) = (false, false);
                own.pending.insert(orphan, Change::Delete);
            }
            inode.changed.store(time, Ordering::Relaxed);
            self.mark_dirty(inode);
        })
    }

    /// Adds the inode's attributes with another count of names.
    pub(crate) fn push_links(
        &self,
        record: &mut RecordBuffer,
        inode: &Inode,
        meta: &Meta,
        links: u32,
        time: i64,
    ) {
        let stored = Stored { links, changed: Timestamp(time), ..inode.stored(meta) };
        item::push_put(record, inode.ino.0, keys::INODE, 0, &stored.encode());
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        if inode.kind != FileKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        self.was_read(&inode);
        if let Some(target) = &inode.meta.read().target {
            return Ok(target.to_vec());
        }
        let mut meta = inode.meta.write();
        let mut parts = BTreeMap::new();
        let (from, to) = keys::from_index(ino, keys::SYMLINK, 0);
        self.pool.scan(keys::home(ino), from, to, &mut |key, value| {
            parts.insert(key.index, value.to_vec());
            parts.len() <= SYMLINK_BYTES_MAX
        })?;
        // what replay brought is not in the tree yet
        for (key, change) in meta.pending.range(from..to) {
            match change {
                Change::Put(part) => parts.insert(key.index, part.clone()),
                Change::Delete => parts.remove(&key.index),
            };
        }
        let target = parts.into_values().collect::<Vec<_>>().concat();
        if target.len() as u64 != inode.size.load(Ordering::Relaxed) {
            return Err(crate::core::damaged_value(&from));
        }
        meta.target = Some(target.clone().into());
        Ok(target)
    }
}

/// Inodes that one change locks at most.
const LOCKED_MAX: usize = 4;

/// Locks of several inodes, taken in the order of their numbers.
pub struct Locked<'l>([Option<(Ino, RwLockWriteGuard<'l, Meta>)>; LOCKED_MAX]);

/// Locks the inodes, [`LOCKED_MAX`] at most; one that is named twice is locked once.
pub fn lock_all<'l>(inodes: &mut [&'l Arc<Inode>]) -> Locked<'l> {
    assert!(inodes.len() <= LOCKED_MAX, "no change concerns more inodes");
    inodes.sort_unstable_by_key(|inode| inode.ino);
    let mut locked = Locked([const { None }; LOCKED_MAX]);
    let mut last = None;
    for (place, inode) in locked.0.iter_mut().zip(inodes) {
        if last.replace(inode.ino) != Some(inode.ino) {
            *place = Some((inode.ino, inode.meta.write()));
        }
    }
    locked
}

impl<'l> Locked<'l> {
    /// The lock of `inode`, which is among them and was not taken yet.
    pub fn take(&mut self, inode: &Inode) -> RwLockWriteGuard<'l, Meta> {
        let own = |lock: &&mut Option<(Ino, _)>| lock.as_ref().is_some_and(|l| l.0 == inode.ino);
        let taken = self.0.iter_mut().find(own).and_then(Option::take);
        let Some((_, guard)) = taken else { panic!("the inode was locked, and is taken once") };
        guard
    }

    /// The state of `inode`, which is among them.
    pub fn get(&mut self, inode: &Inode) -> &mut Meta {
        let own = self.0.iter_mut().flatten().find(|(ino, _)| *ino == inode.ino);
        let Some((_, guard)) = own else { panic!("the inode was locked") };
        guard
    }
}
