//! Requests about names.

use nearside::RenameMode;
use nearside::files::{Attr, Error as FsError, Ino, NewNode};

use super::{Caller, Errno, Mode, Served, Service, stale};
use crate::convert::kind_of_mode;

impl Service {
    /// What `name` in `parent` is; `None` when there is no such name.
    pub(crate) fn lookup(&self, parent: Ino, name: &[u8], by: Caller) -> Served<Option<Attr>> {
        self.permit_search(parent)?;
        loop {
            let attr = match self.fs.lookup(parent, name) {
                Ok(attr) => attr,
                Err(FsError::NotFound) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if !self.retries.expects(by.thread) {
                return Ok(Some(attr));
            }
            match self.fs.open(attr.ino) {
                Ok(handle) => self.retries.hold(by.thread, handle),
                // Replaced since.
                Err(FsError::NotFound) => continue,
                Err(error) => return Err(error.into()),
            }
            return Ok(Some(attr));
        }
    }

    /// Lets go of what was held too long for those who were to look again.
    pub(crate) fn lets_go(&self) {
        self.retries.expire();
    }

    /// `by` is about to be told that what it found is gone, and will look again.
    pub(crate) fn tells_stale(&self, by: Caller) {
        self.retries.expect(by.thread);
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
        Ok(self.checked(|fs| fs.create(parent, name, node, caller.creates(mode)))?)
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
        self.removed(self.checked(|fs| fs.unlink(parent, name))?)
    }

    pub(crate) fn rmdir(&self, parent: Ino, name: &[u8]) -> Served<()> {
        self.removed(self.checked(|fs| fs.rmdir(parent, name))?)
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
        self.removed(self.checked(|fs| fs.rename(from, to, mode))?)
    }

    pub(crate) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Served<Attr> {
        Ok(self.checked(|fs| fs.link(ino, parent, name))?)
    }

    pub(crate) fn readlink(&self, ino: Ino) -> Served<Vec<u8>> {
        self.fs.readlink(ino).map_err(stale)
    }
}
