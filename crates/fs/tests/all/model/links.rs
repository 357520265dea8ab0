//! The reference: links, and files without a name.

use crate::model::reference::{Answer, Model, Node, check_name, new_node};
use fs::{Creation, FileKind, Ino, Layout, NewNode};

impl Model {
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Answer<()> {
        check_name(name)?;
        self.node(parent)?;
        if self.node(ino)?.is_dir() {
            return Err(libc::EPERM);
        }
        let exists = self.dir(parent)?.entries.contains_key(name);
        let node = self.node(ino)?;
        if node.links == 0 && !node.nameable {
            return Err(libc::ENOENT);
        }
        if exists {
            return Err(libc::EEXIST);
        }
        let node = self.node_mut(ino)?;
        node.links += 1;
        node.nameable = false;
        self.dir_mut(parent)?.entries.insert(name.to_vec(), ino);
        Ok(())
    }

    /// A rename left a whiteout under the old name.
    pub fn whiteout(&mut self, parent: Ino, name: &[u8], by: Creation, ino: Ino) {
        let node = NewNode::Special(FileKind::CharDevice, 0);
        self.create(parent, name, node, by, ino);
    }

    /// Whether `create_unnamed` would work.
    pub fn may_create_unnamed(&self, parent: Ino) -> Answer<()> {
        self.dir(parent).map(|_| ())
    }

    pub fn create_unnamed(&mut self, parent: Ino, by: Creation, ino: Ino) {
        let mut new = new_node(FileKind::File, by, parent);
        new.inherit_layout(self.nodes[&parent].layout);
        self.inherit(parent, &mut new, by);
        let dir = self.dir(parent).unwrap();
        if dir.mode & 0o2000 != 0 {
            new.gid = dir.gid;
        }
        (new.links, new.opens, new.nameable) = (0, 1, true);
        assert!(self.nodes.insert(ino, new).is_none(), "inode number {} was given twice", ino.0);
    }
}

impl Model {
    /// Blocks of data.
    pub fn blocks(&self) -> u64 {
        self.nodes.values().map(|node| node.content.takes().1).sum()
    }
}

impl Node {
    fn has_layout(&self) -> bool {
        matches!(self.kind, FileKind::File | FileKind::Directory)
    }

    pub fn inherit_layout(&mut self, layout: Layout) {
        if self.has_layout() {
            self.layout = layout;
        }
    }

    pub fn lay_out(&mut self, layout: Option<Layout>) -> Answer<()> {
        match layout {
            // there is no such node
            Some(Layout::Node(9999)) => Err(libc::EINVAL),
            Some(_) if !self.has_layout() => Err(libc::EINVAL),
            layout => {
                self.layout = layout.unwrap_or(self.layout);
                Ok(())
            }
        }
    }
}
