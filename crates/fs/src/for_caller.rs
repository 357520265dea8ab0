//! The file system as one caller sees it: the calls that ask whether he may.
//!
//! What is not here needs no right but those that were asked for before: to go to an inode
//! ([`search`](ForCaller::search) of every directory on the way), or to open it.

use crate::error::Result;
use crate::handle::Handle;
use crate::rights::{self, Access, Caller, Owned};
use crate::system::FileSystem;
use crate::types::{Attr, Creation, Ino, NewNode, RenameMode, SetAttr, XattrMode};
use std::sync::Arc;

/// The calls of a [`FileSystem`] that need rights. Each is refused (EACCES, EPERM) where Linux
/// would refuse it to a process with the ids of the caller; without a caller none is.
///
/// What is an option of the kernel's is as if it was off: `fs.protected_hardlinks`,
/// `protected_symlinks`, `protected_regular` and `protected_fifos`.
#[derive(Clone, Copy, Debug)]
pub struct ForCaller<'f> {
    fs: &'f FileSystem,
    caller: Option<&'f Caller>,
}

impl FileSystem {
    /// Its calls for this caller, who has all rights if he is `None`.
    pub fn for_caller<'f>(&'f self, caller: Option<&'f Caller>) -> ForCaller<'f> {
        ForCaller { fs: self, caller }
    }
}

impl ForCaller<'_> {
    /// An error unless he may look up names in directory `dir`.
    pub fn search(&self, dir: Ino) -> Result<()> {
        self.permit(dir, Access::SEARCH)
    }

    /// Opens an inode of any kind for what is wanted: its data for reading or writing, or the names
    /// of a directory for reading. What is done with the handle then is not checked.
    pub fn open(&self, ino: Ino, want: Access) -> Result<Arc<Handle>> {
        self.permit(ino, want)?;
        self.fs.open(ino)
    }

    /// An error unless the caller owns the inode, and so may read it without a new time of the
    /// last read (O_NOATIME, see [`keeping_access_times`](crate::keeping_access_times)).
    pub fn may_keep_access_time(&self, ino: Ino) -> Result<()> {
        let Some(caller) = self.caller else { return Ok(()) };
        let inode = self.fs.core.inode(ino)?;
        let owned = Owned::of(&inode, &inode.meta.read());
        rights::check_access_time(caller, &owned)
    }

    /// Makes a new inode named `name` in `parent`: the caller's, if there is one.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        node: NewNode<'_>,
        by: Creation,
    ) -> Result<Attr> {
        self.fs.core.create(parent, name, node, by, self.caller)
    }

    /// Makes a file named `name` in `parent` and opens it, in one step: whoever makes a file may
    /// use it, whatever its permission bits say, and whoever takes its name away at once.
    pub fn create_open(
        &self,
        parent: Ino,
        name: &[u8],
        by: Creation,
    ) -> Result<(Attr, Arc<Handle>)> {
        let node = (NewNode::File, 1);
        let (attr, inode) = self.fs.core.create_opened(parent, name, node, by, self.caller)?;
        Ok((attr, self.fs.handle(inode)))
    }

    /// [`FileSystem::create_unnamed`].
    pub fn create_unnamed(&self, parent: Ino, by: Creation) -> Result<(Attr, Arc<Handle>)> {
        let (attr, inode) = self.fs.core.create_unnamed(parent, by, self.caller)?;
        Ok((attr, self.fs.handle(inode)))
    }

    /// [`FileSystem::unlink`].
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>> {
        self.fs.core.remove(parent, name, false, self.caller)
    }

    /// [`FileSystem::rmdir`].
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>> {
        self.fs.core.remove(parent, name, true, self.caller)
    }

    /// [`FileSystem::rename`]; a whiteout is the caller's, if there is one.
    pub fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Attr>> {
        let mode = match (mode, self.caller) {
            (RenameMode::Whiteout { .. }, Some(caller)) => {
                RenameMode::Whiteout { uid: caller.uid(), gid: caller.gid() }
            }
            (mode, _) => mode,
        };
        self.fs.core.rename(from, to, mode, self.caller)
    }

    /// [`FileSystem::link`].
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.fs.core.link(ino, parent, name, self.caller)
    }

    /// Gives what `from` names (not a directory) one more name, in one step.
    pub fn link_name(&self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<Attr> {
        self.fs.core.link_name(from, to, self.caller)
    }

    /// [`FileSystem::setattr`]. As Linux does it, a change of the owner, the group or the size may
    /// take set-id bits away, and who is not in the group cannot set set-group-id.
    pub fn setattr(&self, ino: Ino, change: &SetAttr) -> Result<Attr> {
        if change.size.is_some() || change.places() {
            self.permit(ino, Access::WRITE)?;
        }
        self.fs.core.setattr(ino, change, self.caller)
    }

    /// Sets the size of a file that he has open for writing.
    pub fn resize(&self, handle: &Handle, bytes: u64) -> Result<Attr> {
        let change = SetAttr { size: Some(bytes), ..SetAttr::default() };
        self.fs.core.setattr(handle.ino(), &change, self.caller)
    }

    /// [`FileSystem::getxattr`].
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.core.getxattr(ino, name, self.caller)
    }

    /// [`FileSystem::setxattr`].
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.fs.core.change_xattr(ino, (name, Some(value)), mode, true, self.caller)
    }

    /// [`FileSystem::removexattr`].
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.fs.core.change_xattr(ino, (name, None), XattrMode::Replace, true, self.caller)
    }

    /// [`FileSystem::listxattr`], without those that he cannot read the values of whatever the
    /// inode says.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = self.fs.listxattr(ino)?;
        if let Some(caller) = self.caller {
            names.retain(|name| rights::is_listed(caller, name));
        }
        Ok(names)
    }

    fn permit(&self, ino: Ino, want: Access) -> Result<()> {
        if self.caller.is_none() {
            return Ok(());
        }
        let inode = self.fs.core.inode(ino)?;
        self.fs.core.permit_unlocked(self.caller, &inode, want)
    }
}
