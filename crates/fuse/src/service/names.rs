//! Requests about names.

use nearside::RenameMode;
use nearside::files::{Attr, Error as FsError, Ino, NewNode};

use super::{Caller, Errno, Mode, Served, Service, stale};
use crate::convert::kind_of_mode;

impl Service {
    /// What `name` in `parent` is; `None` when there is no such name.
    pub(crate) fn lookup(&self, parent: Ino, name: &[u8]) -> Served<Option<Attr>> {
        match self.fs.lookup(parent, name) {
            Ok(attr) => Ok(Some(attr)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory or symbolic link.
    pub(crate) fn make(
        &self,
        parent: Ino,
        name: &[u8],
        node: NewNode<'_>,
        mode: Mode,
        caller: Caller,
    ) -> Served<Attr> {
        Ok(self.fs.create(parent, name, node, caller.creates(mode))?)
    }

    /// Makes what the type bits of `mode` say.
    pub(crate) fn mknod(
        &self,
        parent: Ino,
        name: &[u8],
        mode: Mode,
        rdev: u32,
        caller: Caller,
    ) -> Served<Attr> {
        let node = match kind_of_mode(mode.asked) {
            Some(nearside::FileKind::File) => NewNode::File,
            Some(kind) => NewNode::Special(kind, rdev),
            None => return Err(Errno(libc::EINVAL)),
        };
        self.make(parent, name, node, mode, caller)
    }

    pub(crate) fn unlink(&self, parent: Ino, name: &[u8]) -> Served<()> {
        self.removed(self.fs.unlink(parent, name)?)
    }

    pub(crate) fn rmdir(&self, parent: Ino, name: &[u8]) -> Served<()> {
        self.removed(self.fs.rmdir(parent, name)?)
    }

    /// Remembers what is left of an inode that lost its last name. One that is open is there until
    /// it is closed; the kernel may hold it in another way beyond that.
    fn removed(&self, left: Option<Attr>) -> Served<()> {
        if let (Some(remains), Some(attr)) = (&self.remains, left) {
            remains.keep(&attr);
        }
        Ok(())
    }

    /// Renames, with the flags of renameat2(2).
    pub(crate) fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
        by: Caller,
    ) -> Served<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            // For the upper layer of an overlay.
            libc::RENAME_WHITEOUT => RenameMode::Whiteout { uid: by.uid, gid: by.gid },
            _ => return Err(Errno(libc::EINVAL)),
        };
        self.removed(self.fs.rename(from, to, mode)?)
    }

    pub(crate) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Served<Attr> {
        Ok(self.fs.link(ino, parent, name)?)
    }

    pub(crate) fn readlink(&self, ino: Ino) -> Served<Vec<u8>> {
        self.fs.readlink(ino).map_err(stale)
    }
}
