//! Operations on names and attributes.

use crate::common::pattern;
use crate::compare;
use crate::harness::{Harness, Verdict, name, same, same_bytes};
use crate::ops::{Op, Pick};
use crate::reference::ANY_ERROR;
use fs::{Creation, FileKind, Ino, NewNode, SetAttr, Timestamp};

impl Harness {
    pub fn step_setattr(&mut self, op: &Op) -> Verdict {
        let Op::SetAttr { node, mode, uid, times } = *op else { return Ok(()) };
        let ino = self.node(node);
        let change = SetAttr {
            mode,
            uid,
            gid: uid.map(|uid| uid + 100),
            size: None,
            accessed: times.map(|times| Timestamp(times.0)),
            modified: times.map(|times| Timestamp(times.1)),
        };
        let done = self.fs().setattr(ino, &change);
        match (done, self.model.setattr(ino, &change)) {
            (Ok(attr), Ok(())) => compare::attr(&attr, &self.model.nodes[&ino]),
            (done, expected) => same("setattr", done.map(|_| ()), expected),
        }
    }

    pub fn step_xattr(&mut self, op: &Op) -> Verdict {
        let xattr_name = |name: u8| match name {
            0 => Vec::new(),
            1 => vec![b'u'; 256],
            2..20 => vec![b'u'; 255],
            name => format!("user.{}", name % 5).into_bytes(),
        };
        match *op {
            Op::SetXattr { node, name, len, seed, mode } => {
                let (ino, name, value) = (self.node(node), xattr_name(name), pattern(seed, len));
                let done = self.fs().setxattr(ino, &name, &value, mode);
                same("setxattr", done, self.model.setxattr(ino, &name, &value, mode))?;
                let expected = self
                    .model
                    .node(ino)
                    .and_then(|node| node.xattrs.get(&name).cloned().ok_or(libc::ENODATA));
                same_bytes("getxattr", self.fs().getxattr(ino, &name), expected)
            }
            Op::RemoveXattr { node, name } => {
                let (ino, name) = (self.node(node), xattr_name(name));
                let done = self.fs().removexattr(ino, &name);
                let expected = self.model.removexattr(ino, &name);
                let bad = name.is_empty() || name.len() > 255;
                same("removexattr", done, if bad { Err(ANY_ERROR) } else { expected })
            }
            Op::ListXattr { node } => {
                let ino = self.node(node);
                let expected = self
                    .model
                    .node(ino)
                    .map(|node| node.xattrs.keys().cloned().collect::<Vec<_>>());
                same("listxattr", self.fs().listxattr(ino), expected)
            }
            _ => Ok(()),
        }
    }

    pub fn step_names(&mut self, op: &Op) -> Verdict {
        match *op {
            Op::Unlink { dir, name } => self.remove(self.dir(dir), name, false),
            Op::Rmdir { dir, name } => self.remove(self.dir(dir), name, true),
            Op::Link { node, dir, name: pick } => {
                let (ino, dir, name) = (self.node(node), self.dir(dir), name(pick));
                let done = self.fs().link(ino, dir, &name).map(|attr| attr.links);
                let expected = self.model.link(ino, dir, &name);
                same("link", done, expected.map(|()| self.model.nodes[&ino].links))
            }
            Op::Rename { from, to, mode } => {
                let (from_name, to_name) = (name(from.1), name(to.1));
                let from = (self.dir(from.0), &from_name[..]);
                let to = (self.dir(to.0), &to_name[..]);
                let lost = self.model.lookup(to.0, to.1);
                let done = self.fs().rename(from, to, mode);
                same("rename", done, self.model.rename(from, to, mode))?;
                lost.into_iter().for_each(|ino| self.forget(ino));
                Ok(())
            }
            Op::Readlink { node } => {
                let ino = self.node(node);
                let expected = self.model.node(ino).and_then(|node| match node.kind {
                    FileKind::Symlink => Ok(node.target.clone()),
                    _ => Err(libc::EINVAL),
                });
                same_bytes("readlink", self.fs().readlink(ino), expected)
            }
            _ => Ok(()),
        }
    }

    pub fn remove(&mut self, dir: Ino, pick: Pick, directory: bool) -> Verdict {
        let name = name(pick);
        let lost = self.model.lookup(dir, &name);
        let done = match directory {
            true => self.fs().rmdir(dir, &name),
            false => self.fs().unlink(dir, &name),
        };
        same("remove", done, self.model.remove(dir, &name, directory))?;
        lost.into_iter().for_each(|ino| self.forget(ino));
        Ok(())
    }

    pub fn step_readdir(&mut self, dir: Pick, first: u8, create: Pick, remove: Pick) -> Verdict {
        let ino = self.dir(dir);
        let mut seen = Vec::new();
        let mut cookie = 0;
        let mut left = usize::from(first);
        let listed = self.fs().readdir(ino, 0, &mut |entry| {
            if left == 0 {
                return false;
            }
            left -= 1;
            cookie = entry.cookie;
            seen.push((entry.name.clone(), entry.ino));
            true
        });
        let before = match self.model.node(ino) {
            Ok(node) if node.kind == FileKind::Directory => node.entries.clone(),
            Ok(_) => return same("readdir", listed, Err(libc::ENOTDIR)),
            Err(errno) => return same("readdir", listed, Err(errno)),
        };
        same("readdir", listed, Ok(()))?;
        let by = Creation { mode: 0o600, uid: 0, gid: 0 };
        self.create(ino, &name(create), NewNode::File, by)?;
        self.remove(ino, remove, false)?;
        if create.is_multiple_of(3) {
            same("checkpoint", self.fs().checkpoint(), Ok(()))?;
        }
        let listed = self.fs().readdir(ino, cookie, &mut |entry| {
            seen.push((entry.name.clone(), entry.ino));
            true
        });
        same("readdir", listed, Ok(()))?;
        let after = self.model.node(ino).map(|node| node.entries.clone()).unwrap_or_default();
        compare::listing(seen, &before, &after)
    }
}
