//! Changing attributes.

use crate::clock::now;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::item;
use crate::keys;
use crate::placing::Placing;
use crate::privileges::{self, CAPABILITY, RAISES};
use crate::request::{self, Answer};
use crate::rights::{Caller, Owned, settle};
use crate::types::{Attr, FileKind, Ino, SetAttr, Timestamp};
use crate::xattr::XattrChange;
use placement::Levers;
use pool::{BLOCK_BYTES, KIND_CHANGE, RecordBuffer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    /// Changes attributes; truncates or extends.
    pub fn setattr(&self, ino: Ino, change: &SetAttr, caller: Option<&Caller>) -> Result<Attr> {
        let inode = self.inode(ino)?;
        self.settle(&inode);
        match (change.size, inode.kind) {
            (Some(_), FileKind::Directory) => return Err(Error::IsDirectory),
            (Some(_), FileKind::File) | (None, _) => {}
            (Some(_), _) => return Err(Error::Invalid("only a regular file has a size to set")),
        }
        if change.places() {
            check_kind(inode.kind)?;
        }
        if let Some(layout) = change.layout {
            self.check_layout(layout)?;
        }
        self.change(|| {
            // who changes the content has looked what privileges it takes away, and has done so
            let raises = change.mode.is_some_and(|mode| privileges::raises(inode.kind, mode));
            let waits = change.size.is_some() || raises;
            let _range = waits.then(|| inode.ranges.lock(0, u64::MAX));
            if waits {
                self.check_leased(&inode, 0, u64::MAX)?;
            }
            if let Some(size) = change.size {
                let end = size.min(inode.size.load(Ordering::Acquire));
                self.may_change(&inode, end / BLOCK_BYTES, u64::MAX)?;
            }
            let mut meta = inode.meta.write();
            if change.touches {
                self.permit_touch(caller, &inode, &mut meta)?;
            }
            let settled = caller.map(|asking| settle(asking, &Owned::of(&inode, &meta), change));
            match settled.transpose()? {
                Some(settled) => self.set(&inode, &mut meta, &settled),
                None => self.set(&inode, &mut meta, change),
            }
        })
    }

    fn set(&self, inode: &Arc<Inode>, meta: &mut Meta, change: &SetAttr) -> Result<Attr> {
        if meta.gone {
            return Err(Error::NotFound);
        }
        let time = now();
        let mut stored = inode.stored(meta);
        stored.mode = change.mode.unwrap_or(stored.mode) & 0o7777;
        stored.uid = change.uid.unwrap_or(stored.uid);
        stored.gid = change.gid.unwrap_or(stored.gid);
        let touched = change.touches.then_some(Timestamp(time));
        let accessed = touched.or(change.accessed);
        let cut = change.size.map(|_| Timestamp(time));
        let modified = touched.or(change.modified).or(cut);
        stored.accessed = accessed.unwrap_or(stored.accessed);
        stored.modified = modified.unwrap_or(stored.modified);
        stored.sets_modified = modified.is_some();
        stored.changed.0 = time;
        let Placing { layout, levers } = stored.placing;
        stored.placing = Placing {
            layout: change.layout.unwrap_or(layout),
            levers: Levers {
                threads: change.move_threads.unwrap_or(levers.threads),
                data: change.move_data.unwrap_or(levers.data),
            },
        };
        let mut record = RecordBuffer::new(KIND_CHANGE, time);
        let (acl, capability) = self.changed_with(inode, meta, change, stored.mode)?;
        acl.iter().chain(&capability).for_each(|it| it.push(&mut record));
        item::push_put(&mut record, inode.ino.0, keys::INODE, 0, &stored.encode());
        let publish = || {
            meta.mode = stored.mode;
            meta.uid = stored.uid;
            meta.gid = stored.gid;
            if accessed.is_some() {
                inode.accessed.store(stored.accessed.0, Ordering::Relaxed);
            }
            if stored.sets_modified {
                inode.modified.store(stored.modified.0, Ordering::Relaxed);
            }
            inode.placing.store(stored.placing.code(), Ordering::Relaxed);
            if inode.ino == Ino::ROOT {
                self.observer.let_levers(stored.placing.levers);
            }
            inode.changed.store(time, Ordering::Relaxed);
            self.mark_dirty(inode);
            acl.into_iter().chain(capability).for_each(|it| self.take_over(it, meta));
            if privileges::raises(inode.kind, stored.mode) {
                inode.marks.set(RAISES, true);
            }
        };
        if change.size.is_some() && request::is_current() {
            request::answer_with(Answer::Cut(inode.ino));
        }
        match change.size {
            Some(size) => self.truncate(inode, size, &mut record, publish)?,
            None => self.log(&mut record, &[inode], publish)?,
        }
        let mut attr = inode.attr(meta);
        self.show(inode, &mut attr);
        Ok(attr)
    }

    /// Extended attributes that change with others: the access list with the permission bits, and
    /// capabilities go with a file's owner.
    fn changed_with(
        &self,
        inode: &Inode,
        meta: &mut Meta,
        change: &SetAttr,
        mode: u16,
    ) -> Result<(Option<XattrChange<'static>>, Option<XattrChange<'static>>)> {
        let has_list = change.mode.is_some() && inode.kind != FileKind::Symlink;
        let chowns = change.uid.is_some() || change.gid.is_some();
        let is_capable = inode.kind == FileKind::File && chowns;
        let acl = if has_list { self.acl_with_mode(inode, meta, mode)? } else { None };
        let capability = match is_capable && self.has_capability(inode, meta)? {
            true => Some(XattrChange::new(inode.ino, self.xattrs(inode, meta)?, CAPABILITY, None)),
            false => None,
        };
        Ok((acl, capability))
    }
}

fn check_kind(kind: FileKind) -> Result<()> {
    match kind {
        FileKind::File | FileKind::Directory => Ok(()),
        _ => Err(Error::Invalid("only files and directories have data to lay or move")),
    }
}
