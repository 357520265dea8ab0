//! Making inodes: with a name, or without one.
//!
//! One record holds the inode with all that it has from birth (target of a link, ACLs), and its
//! name, or that it has none and is open. Without a name it is an orphan from birth: it is dropped
//! by the last close, or the next open of the pool, unless a link gave it a name before.

use crate::attr::Stored;
use crate::clock::now;
use crate::core::Core;
use crate::dir::{Dirent, Name};
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::item;
use crate::keys;
use crate::namespace::{Touched, check_directory, check_name};
use crate::placing::Placing;
use crate::privileges::{self, RAISES};
use crate::request::{self, Answer};
use crate::rights::{self, Access, Caller, Owned};
use crate::short_name::ShortName;
use crate::tickets;
use crate::types::{
    Attr, Creation, DIRECTORY_LINKS_MAX, FileKind, Ino, NewNode, SYMLINK_BYTES_MAX, Timestamp,
};
use crate::xattr::XattrChange;
use placement::Levers;
use pool::tree::Change;
use pool::{KIND_CHANGE, RecordBuffer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a part of a symbolic link's target.
const TARGET_PART_BYTES: usize = 1024;

/// An inode that is to be.
struct New<'n> {
    kind: FileKind,
    node: NewNode<'n>,
    by: Creation,
    links: u32,
    /// Handles that count it from birth.
    opens: u32,
    time: i64,
}

fn kind_of(node: NewNode<'_>) -> Result<FileKind> {
    Ok(match node {
        NewNode::File => FileKind::File,
        NewNode::Directory => FileKind::Directory,
        NewNode::Symlink(target) => {
            if target.is_empty() || target.len() > SYMLINK_BYTES_MAX || target.contains(&0) {
                return Err(Error::Invalid("a link's target has 1 to 4095 bytes without NUL"));
            }
            FileKind::Symlink
        }
        NewNode::Special(kind, _) => kind,
    })
}

impl Core {
    /// Makes a new inode named `name` in `parent`.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        node: NewNode<'_>,
        by: Creation,
        caller: Option<&Caller>,
    ) -> Result<Attr> {
        self.create_opened(parent, name, (node, 0), by, caller).map(|(attr, _)| attr)
    }

    /// The same, of an inode that counts as open so many times: whoever takes its name away before
    /// this returns, it is there.
    pub fn create_opened(
        &self,
        parent: Ino,
        name: &[u8],
        (node, opens): (NewNode<'_>, u32),
        by: Creation,
        caller: Option<&Caller>,
    ) -> Result<(Attr, Arc<Inode>)> {
        check_name(name)?;
        let kind = kind_of(node)?;
        let name = self.name(name);
        let dir = self.inode_to_lock(parent)?;
        self.change(|| {
            let mut meta = dir.meta.write();
            check_directory(&dir, &meta)?;
            if self.find(&dir, &mut meta, name)?.is_some() {
                return Err(Error::Exists);
            }
            let by = self.permit_birth(caller, (&dir, &mut meta), node, by)?;
            self.check_room()?;
            if kind == FileKind::Directory && meta.links >= DIRECTORY_LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            let links = if kind == FileKind::Directory { 2 } else { 1 };
            self.create_in(&dir, &mut meta, name, New { kind, node, by, links, opens, time: now() })
        })
    }

    /// An error unless the caller may make this in the directory; what becomes of it if so.
    fn permit_birth(
        &self,
        caller: Option<&Caller>,
        (dir, meta): (&Inode, &mut Meta),
        node: NewNode<'_>,
        by: Creation,
    ) -> Result<Creation> {
        let Some(asking) = caller else { return Ok(by) };
        self.permit(caller, dir, meta, Access::NAMES)?;
        let rdev = if let NewNode::Special(_, rdev) = node { rdev } else { 0 };
        rights::birth(asking, &Owned::of(dir, meta), (kind_of(node)?, rdev), by)
    }

    fn create_in(
        &self,
        dir: &Arc<Inode>,
        meta: &mut Meta,
        name: Name<'_>,
        new: New<'_>,
    ) -> Result<(Attr, Arc<Inode>)> {
        let time = new.time;
        let cookie = self.free_cookie(meta, name)?;
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        let inode = self.push_new(&mut record, dir, meta, &new)?;
        let entry = Dirent { ino: inode.ino, kind: new.kind, name: ShortName::new(name.bytes) };
        let is_dir = u32::from(new.kind == FileKind::Directory);
        let touched = Touched { links: meta.links + is_dir, entries: Self::entries(dir) + 1 };
        Self::push_entry(&mut record, dir, cookie, &entry);
        self.push_dir(&mut record, dir, &touched);
        self.log(&mut record, &[dir], || {
            self.was_born(&inode);
            self.set_entry(meta, cookie, Some(entry));
            self.touch_dir(dir, meta, &touched, time);
        })?;
        inode.stamped(dir.stamp_now());
        let attr = inode.attr(&inode.meta.read());
        Ok((attr, inode))
    }

    /// Makes a file without a name; it counts as open.
    pub fn create_unnamed(
        &self,
        parent: Ino,
        by: Creation,
        caller: Option<&Caller>,
    ) -> Result<(Attr, Arc<Inode>)> {
        let dir = self.inode_to_lock(parent)?;
        self.change(|| {
            let mut meta = dir.meta.write();
            check_directory(&dir, &meta)?;
            let (kind, node) = (FileKind::File, NewNode::File);
            let by = self.permit_birth(caller, (&dir, &mut meta), node, by)?;
            self.check_room()?;
            let new = New { kind, node, by, links: 0, opens: 1, time: now() };
            let mut record = RecordBuffer::new(KIND_CHANGE, new.time);
            let inode = self.push_new(&mut record, &dir, &mut meta, &new)?;
            let orphan = keys::orphan(inode.ino);
            let value = tickets::encode_unnamed();
            item::push_put(&mut record, orphan.object, orphan.kind, orphan.index, &value);
            let mut own = inode.meta.write();
            (own.orphan, own.nameable) = (true, true);
            own.pending.insert(orphan, Change::Put(value));
            // above the stamps of what made the directory as it is
            self.log(&mut record, &[&dir, &inode], || self.was_born(&inode))?;
            let attr = inode.attr(&own);
            drop(own);
            Ok((attr, inode))
        })
    }

    /// Takes over a new inode whose record is durable.
    pub(crate) fn was_born(&self, inode: &Arc<Inode>) {
        self.insert_inode(inode);
        self.mark_dirty(inode);
        self.inodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a whiteout to the record, to be made in `dir`.
    pub(crate) fn push_whiteout(
        &self,
        record: &mut RecordBuffer,
        dir: &Inode,
        meta: &mut Meta,
        (uid, gid): (u32, u32),
        time: i64,
    ) -> Result<Arc<Inode>> {
        self.check_room()?;
        let kind = FileKind::CharDevice;
        let by = Creation { mode: 0, umask: 0, uid, gid };
        let new = New { kind, node: NewNode::Special(kind, 0), by, links: 1, opens: 0, time };
        self.push_new(record, dir, meta, &new)
    }

    /// Adds a new inode to the record, with what it has from birth.
    fn push_new(
        &self,
        record: &mut RecordBuffer,
        dir: &Inode,
        meta: &mut Meta,
        new: &New<'_>,
    ) -> Result<Arc<Inode>> {
        let slice = self.pool.near_slice();
        let ino = keys::ino_of(slice, self.pool.next_inode(slice));
        let inherited = self.inherit(dir, meta, new.kind, &new.by)?;
        let stored = new.attributes(dir, meta, inherited.mode);
        item::push_put(record, ino.0, keys::INODE, 0, &stored.encode());
        let inode = Arc::new(Inode::new(ino, &stored, false));
        inode.marks.set(RAISES, privileges::raises(new.kind, stored.mode));
        // ordering: nobody sees the inode before it is inserted, under a lock
        inode.opens.store(new.opens, Ordering::Relaxed);
        if request::is_current() {
            request::answer_with(Answer::Made(ino));
        }
        if let NewNode::Symlink(target) = new.node {
            push_target(record, &inode, target);
        }
        if !inherited.lists.is_empty() {
            self.push_lists(record, &inode, &inherited.lists);
        }
        Ok(inode)
    }

    /// Adds access control lists to the record of a new inode, which nobody sees before it is
    /// durable.
    #[cold]
    fn push_lists(&self, record: &mut RecordBuffer, inode: &Inode, lists: &[(&[u8], Vec<u8>)]) {
        for (name, value) in lists {
            let mut own = inode.meta.write();
            let xattrs = own.xattrs.get_or_insert_default();
            let change = XattrChange::new(inode.ino, xattrs, name, Some(value));
            change.push(record);
            self.take_over(change, &mut own);
        }
    }
}

/// Adds a symbolic link's target to the record.
#[inline(never)] // files, whose instructions are counted, are made without it
fn push_target(record: &mut RecordBuffer, inode: &Inode, target: &[u8]) {
    let mut own = inode.meta.write();
    for (part, bytes) in target.chunks(TARGET_PART_BYTES).enumerate() {
        item::push_put(record, inode.ino.0, keys::SYMLINK, part as u64, bytes);
        let key = keys::key(inode.ino, keys::SYMLINK, part as u64);
        own.pending.insert(key, Change::Put(bytes.to_vec()));
    }
    own.target = Some(target.into());
}

impl New<'_> {
    /// The attributes that it begins with.
    fn attributes(&self, parent: &Inode, dir: &Meta, mode: u16) -> Stored {
        let inherits = dir.mode & 0o2000 != 0;
        let is_dir = self.kind == FileKind::Directory;
        let time = Timestamp(self.time);
        let size = match self.node {
            NewNode::Symlink(target) => target.len() as u64,
            _ => 0,
        };
        let holds_data = is_dir || self.kind == FileKind::File;
        let mode = mode | if inherits && is_dir { 0o2000 } else { 0 };
        Stored {
            links: self.links,
            uid: self.by.uid,
            gid: if inherits { dir.gid } else { self.by.gid },
            rdev: if let NewNode::Special(_, rdev) = self.node { rdev } else { 0 },
            size,
            parent: if is_dir { parent.ino } else { Ino(0) },
            placing: if holds_data { inherited(parent) } else { Placing::default() },
            ..Stored::new(self.kind, mode, time)
        }
    }
}

/// What is made in a directory begins with. What is said of levers at the root counts anyway, for
/// as long as it is said there.
fn inherited(parent: &Inode) -> Placing {
    let placing = parent.placing();
    let levers = if parent.ino == Ino::ROOT { Levers::ALL } else { placing.levers };
    Placing { levers, ..placing }
}
