//! Whether a caller may: the rules of `rights.rs`, asked of inodes.
//!
//! What a change needs is asked under the locks with which it is made. So nobody's right is gone,
//! and no name given to another inode, between the question and the change.

use crate::acl::{ACCESS, Acl};
use crate::acls::list;
use crate::core::Core;
use crate::error::Result;
use crate::inode::{Inode, Meta};
use crate::namespace::Locked;
use crate::rights::{self, Access, Caller, Owned};
use crate::types::FileKind;
use crate::unlink::check_kind;

impl Core {
    /// An error unless the caller has this right to the inode, whose lock is held.
    #[inline]
    pub(crate) fn permit(
        &self,
        caller: Option<&Caller>,
        inode: &Inode,
        meta: &mut Meta,
        want: Access,
    ) -> Result<()> {
        let Some(caller) = caller else { return Ok(()) };
        let it = Owned::of(inode, meta);
        let allowed = match it.allows_without_list(caller, want) {
            Some(allowed) => allowed,
            None => it.allows(caller, self.access_list(inode, meta)?.as_ref(), want),
        };
        if allowed { Ok(()) } else { Err(want.denied(inode.kind)) }
    }

    /// The same of an inode whose lock is not held. It is shared, but for the first time that the
    /// inode's list is looked for.
    pub(crate) fn permit_unlocked(
        &self,
        caller: Option<&Caller>,
        inode: &Inode,
        want: Access,
    ) -> Result<()> {
        let Some(asking) = caller else { return Ok(()) };
        let meta = inode.meta.read();
        let it = Owned::of(inode, &meta);
        let known = match (it.allows_without_list(asking, want), &meta.xattrs) {
            (Some(allowed), _) => Some(allowed),
            (None, Some(xattrs)) => {
                let list = list(inode, xattrs, ACCESS)?;
                Some(it.allows(asking, list.as_ref(), want))
            }
            (None, None) => None,
        };
        drop(meta);
        match known {
            Some(true) => Ok(()),
            Some(false) => Err(want.denied(inode.kind)),
            None => self.permit(caller, inode, &mut inode.meta.write(), want),
        }
    }

    /// An error unless the caller may set both times of the inode, which is locked, to now.
    pub(crate) fn permit_touch(
        &self,
        caller: Option<&Caller>,
        inode: &Inode,
        meta: &mut Meta,
    ) -> Result<()> {
        match caller {
            Some(asking) if !asking.owns(&Owned::of(inode, meta)) => {
                self.permit(caller, inode, meta, Access::WRITE)
            }
            _ => Ok(()),
        }
    }

    fn access_list(&self, inode: &Inode, meta: &mut Meta) -> Result<Option<Acl>> {
        list(inode, self.xattrs(inode, meta)?, ACCESS)
    }

    /// An error unless the caller may take `entry` out of `dir`; both are locked.
    pub(crate) fn permit_removal(
        &self,
        caller: Option<&Caller>,
        (dir, meta): (&Inode, &mut Meta),
        entry: Owned,
    ) -> Result<()> {
        let Some(asking) = caller else { return Ok(()) };
        self.permit(caller, dir, meta, Access::NAMES)?;
        rights::check_sticky(asking, &Owned::of(dir, meta), &entry)
    }

    /// An error unless the caller may rename `moved` from one directory to the other, where it
    /// replaces another inode or changes places with it; all are locked.
    pub(crate) fn permit_rename(
        &self,
        caller: Option<&Caller>,
        locked: &mut Locked<'_>,
        (from, to): (&Inode, &Inode),
        moved: &Inode,
        (replaced, exchange): (Option<&Inode>, bool),
    ) -> Result<()> {
        if caller.is_none() {
            return Ok(());
        }
        let owned = Owned::of(moved, locked.get(moved));
        self.permit_removal(caller, (from, locked.get(from)), owned)?;
        let is_dir = |inode: &Inode| inode.kind == FileKind::Directory;
        match replaced {
            Some(other) => {
                let owned = Owned::of(other, locked.get(other));
                self.permit_removal(caller, (to, locked.get(to)), owned)?;
                if !exchange {
                    check_kind(other, is_dir(moved))?;
                }
            }
            None => self.permit(caller, to, locked.get(to), Access::NAMES)?,
        }
        if from.ino == to.ino {
            return Ok(());
        }
        // its entry .. changes, too
        let turned = replaced.filter(|_| exchange);
        for dir in [Some(moved), turned].into_iter().flatten().filter(|inode| is_dir(inode)) {
            self.permit(caller, dir, locked.get(dir), Access::WRITE)?;
        }
        Ok(())
    }
}
