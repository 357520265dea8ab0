//! Requests about attributes, extended ones, and the pool's space.

use nearside::files::{Attr, Error as FsError, Ino, SetAttr, StatFs, Timestamp};
use nearside::{FileKind, XattrMode};

use super::{Caller, Errno, May, Served, Service, stale};
use crate::placed::{self, Asked};

/// Class of the extended attributes that only root reads and writes.
const TRUSTED: &[u8] = b"trusted.";
/// The access control lists of acl(5).
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// What a setattr request changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<Timestamp>,
    pub(crate) modified: Option<Timestamp>,
    /// Both times are to be that of the change.
    pub(crate) touches: bool,
}

impl Service {
    pub(crate) fn getattr(&self, ino: Ino) -> Served<Attr> {
        let mut attr =
            self.fs.getattr(ino).or_else(|error| self.remains(ino).ok_or_else(|| stale(error)))?;
        // what somebody stored to a mapping may be its only data
        let is_empty = attr.kind == FileKind::File && attr.size > 0 && attr.sectors == 0;
        if is_empty && self.handles.is_written(ino) {
            attr.sectors = 1;
        }
        Ok(attr)
    }

    /// The kernel does not know the inode any more from so many of its lookups.
    pub(crate) fn forget(&self, ino: Ino, lookups: u64) {
        if let Some(remains) = &self.remains {
            remains.forget(ino);
        }
        self.retries.forget(ino, lookups);
        self.pages.forget(ino);
        drop(self.handles.disinherit(ino));
        if self.is_away {
            // what others hold without a name is not another machine's to let go of
            return;
        }
        // It may be one that an earlier server's clients held. Errors are in the log, and the next
        // open of the pool tries again.
        if let Err(error) = self.fs.release_orphan(ino) {
            tracing::warn!("freeing inode {}: {error}", ino.0);
        }
    }

    pub(crate) fn setattr(
        &self,
        ino: Ino,
        change: Change,
        number: Option<u64>,
        by: Caller,
    ) -> Served<Attr> {
        if self.is_checked {
            return self.setattr_checked(ino, change, number);
        }
        let mut mode = change.mode.map(|mode| (mode & 0o7777) as u16);
        let owner_changes = change.uid.is_some() || change.gid.is_some();
        // A new owner takes the set-id bits away.
        if mode.is_none() && owner_changes {
            let attr = self.getattr(ino)?;
            let left = self.rights_of(by).without_set_id(&attr);
            mode = Some(left).filter(|left| attr.kind != FileKind::Directory && *left != attr.mode);
        }
        let change = SetAttr {
            mode,
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            accessed: change.accessed,
            modified: change.modified,
            touches: change.touches,
            ..SetAttr::default()
        };
        self.fs.setattr(ino, &change).or_else(|error| {
            let left = self.remains.as_ref().and_then(|remains| remains.change(ino, &change));
            left.ok_or_else(|| stale(error))
        })
    }

    /// The same for whoever asks: the engine takes set-id bits away where that is due. A size is
    /// set by whoever has the file open for writing, under that number.
    fn setattr_checked(&self, ino: Ino, change: Change, number: Option<u64>) -> Served<Attr> {
        let mode = change.mode.map(|mode| (mode & 0o7777) as u16);
        let Change { uid, gid, size, accessed, modified, touches, .. } = change;
        let asked =
            SetAttr { mode, uid, gid, size, accessed, modified, touches, ..SetAttr::default() };
        let sets_times = touches || accessed.or(modified).is_some();
        let is_alone = mode.is_none() && uid.or(gid).is_none() && !sets_times;
        if let (Some(bytes), Some(number), true) = (size, number, is_alone)
            && let Ok(handle) = self.handle((number, ino), May::WRITE)
        {
            return self.checked(|fs| fs.resize(&handle, bytes)).map_err(stale);
        }
        self.checked(|fs| fs.setattr(ino, &asked)).map_err(stale)
    }

    pub(crate) fn statfs(&self) -> StatFs {
        self.fs.statfs()
    }

    pub(crate) fn getxattr(&self, ino: Ino, name: &[u8]) -> Served<Vec<u8>> {
        match Asked::of(name) {
            Some(Asked::Layout) => Ok(self.fs.layout(ino).map_err(stale)?.to_string().into()),
            Some(Asked::MoveData) => {
                Ok(self.fs.levers(ino).map_err(stale)?.data.to_string().into())
            }
            Some(Asked::MoveThreads) => {
                Ok(self.fs.levers(ino).map_err(stale)?.threads.to_string().into())
            }
            Some(Asked::Slices) => Ok(placed::encode_slices(&self.fs.near_slices()).into()),
            Some(Asked::Extents(from)) => {
                let extents = self.fs.extents(ino, from, placed::EXTENTS_MAX).map_err(stale)?;
                Ok(placed::encode_extents(&extents).into())
            }
            Some(Asked::Extras(from)) => {
                let extras = self.fs.extras(ino, from).map_err(stale)?;
                Ok(placed::encode_extras(&extras).into())
            }
            Some(Asked::Heat(from)) => {
                let heat = self.fs.heat(ino, from).map_err(stale)?;
                Ok(placed::encode_heat(&heat).into())
            }
            Some(Asked::Decisions) => {
                Ok(placed::encode_decisions(&self.fs.decisions(Some(ino))).into())
            }
            None => {
                supported(name)?;
                self.checked(|fs| fs.getxattr(ino, name)).map_err(stale)
            }
        }
    }

    /// Sets an extended attribute, with the flags of setxattr(2). `kill_set_gid`: a new ACL takes
    /// set-group-id away, for the caller is not in the file's group.
    pub(crate) fn setxattr(
        &self,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        flags: i32,
        kill_set_gid: bool,
    ) -> Served<()> {
        if name.starts_with(placed::PREFIX) {
            return match flags {
                0 | libc::XATTR_REPLACE => self.set_placed(ino, name, Some(value)),
                // it is always there
                libc::XATTR_CREATE => Err(Errno(libc::EEXIST)),
                _ => Err(Errno(libc::EINVAL)),
            };
        }
        supported(name)?;
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno(libc::EINVAL)),
        };
        if self.is_checked {
            return self.checked(|fs| fs.setxattr(ino, name, value, mode)).map_err(stale);
        }
        self.fs.setxattr_by(ino, name, value, mode, !kill_set_gid).map_err(stale)
    }

    pub(crate) fn removexattr(&self, ino: Ino, name: &[u8]) -> Served<()> {
        if name.starts_with(placed::PREFIX) {
            return self.set_placed(ino, name, None);
        }
        supported(name)?;
        self.checked(|fs| fs.removexattr(ino, name)).map_err(stale)
    }

    /// Sets where a file lies, or takes that back to what it is where nothing was set.
    fn set_placed(&self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Served<()> {
        let Some(change) = Asked::of(name).and_then(|asked| placed::change(asked, value)) else {
            return Err(FsError::NotPermitted("the attribute tells, and cannot be set").into());
        };
        let change = change?;
        self.checked(|fs| fs.setattr(ino, &change)).map(drop).map_err(stale)
    }

    /// All names, each with a NUL after it, as listxattr(2) gives them; those that only root may
    /// read are not for others to see.
    pub(crate) fn listxattr(&self, ino: Ino, caller: Caller) -> Served<Vec<u8>> {
        let mut names = self.checked(|fs| fs.listxattr(ino)).map_err(stale)?;
        names.retain(|name| caller.uid == 0 || !name.starts_with(TRUSTED));
        let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }
}

/// Names belong to classes, and unknown classes to nobody. Of `system.` there are the ACLs.
fn supported(name: &[u8]) -> Served<()> {
    let classes = [b"user.".as_slice(), b"security.", TRUSTED];
    if classes.contains(&name) {
        return Err(Errno(libc::EINVAL));
    }
    match classes.iter().any(|class| name.starts_with(class)) || ACLS.contains(&name) {
        true => Ok(()),
        false => Err(FsError::Unsupported("extended attributes of this class").into()),
    }
}
