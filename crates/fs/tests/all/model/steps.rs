//! Operations on names and attributes.

use crate::common::pattern;
use crate::model::acls;
use crate::model::compare;
use crate::model::harness::{Harness, Verdict, name, same, same_bytes};
use crate::model::ops::{Op, Pick};
use crate::model::reference::ANY_ERROR;
use fs::{Attr, Creation, FileKind, Ino, NewNode, RenameMode, SetAttr, Timestamp, XattrMode};

impl Harness {
    pub fn step_setattr(&mut self, op: &Op) -> Verdict {
        let Op::SetAttr { node, mode, uid, times, layout } = *op else { return Ok(()) };
        let ino = self.node(node);
        let change = SetAttr {
            mode,
            uid,
            gid: uid.map(|uid| uid + 100),
            size: None,
            accessed: times.map(|times| Timestamp(times.0)),
            modified: times.map(|times| Timestamp(times.1)),
            layout,
            ..SetAttr::default()
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

    pub fn step_acl(&mut self, op: &Op) -> Verdict {
        let Op::SetAcl { node, default, ref entries, in_group } = *op else { return Ok(()) };
        let ino = self.node(node);
        let name = if default { acls::DEFAULT } else { acls::ACCESS };
        let value = acls::value(entries);
        let done = self.fs().setxattr_by(ino, name, &value, XattrMode::Any, in_group);
        same("set a list", done, self.model.set_acl(ino, name, entries, in_group))?;
        match self.model.node(ino) {
            Ok(node) => compare::node(self.fs(), ino, node),
            Err(_) => Ok(()),
        }
    }

    pub fn step_unnamed(&mut self, dir: Pick, mode: u16, gid: u32) -> Verdict {
        if self.handles.len() > 20 {
            return Ok(());
        }
        let dir = self.dir(dir);
        let by = Creation { mode, umask: 0o22, uid: 1, gid };
        let made = self.fs().create_unnamed(dir, by);
        let expected = self.model.may_create_unnamed(dir);
        let (Ok((attr, handle)), Ok(())) = (&made, &expected) else {
            return same("create_unnamed", made.map(|_| ()), expected);
        };
        self.model.create_unnamed(dir, by, attr.ino);
        compare::attr(attr, &self.model.nodes[&attr.ino])?;
        self.handles.push((attr.ino, handle.clone()));
        Ok(())
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
                let lost = self.model.lookup(to.0, to.1).ok();
                let left = self.fs().rename(from, to, mode);
                let expected = self.model.rename(from, to, mode);
                let renamed = expected.is_ok();
                self.compare_left("rename", left, expected, lost)?;
                match mode {
                    RenameMode::Whiteout { uid, gid } if renamed => {
                        self.step_whiteout(from, Creation { mode: 0, umask: 0, uid, gid })
                    }
                    _ => Ok(()),
                }
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

    /// A whiteout is where the old name was, if the rename did anything.
    fn step_whiteout(&mut self, (dir, name): (Ino, &[u8]), by: Creation) -> Verdict {
        if self.model.lookup(dir, name).is_ok() {
            return Ok(());
        }
        let left = self.fs().lookup(dir, name).map_err(|error| error.to_string())?;
        self.model.whiteout(dir, name, by, left.ino);
        compare::attr(&left, &self.model.nodes[&left.ino])
    }

    pub fn remove(&mut self, dir: Ino, pick: Pick, directory: bool) -> Verdict {
        let name = name(pick);
        let lost = self.model.lookup(dir, &name).ok();
        let left = match directory {
            true => self.fs().rmdir(dir, &name),
            false => self.fs().unlink(dir, &name),
        };
        let expected = self.model.remove(dir, &name, directory);
        self.compare_left("remove", left, expected, lost)
    }

    /// What a call says that is left of the inode `lost`, if that lost its last name.
    fn compare_left(
        &mut self,
        what: &str,
        left: fs::Result<Option<Attr>>,
        expected: Result<(), i32>,
        lost: Option<Ino>,
    ) -> Verdict {
        let links = |ino: Ino| self.model.nodes.get(&ino).map_or(0, |node| node.links);
        let last = lost.filter(|ino| links(*ino) == 0);
        let gone = left.map(|left| left.map(|attr| (attr.ino, attr.links)));
        same(what, gone, expected.map(|()| last.map(|ino| (ino, 0))))?;
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
        let by = Creation { mode: 0o600, umask: 0, uid: 0, gid: 0 };
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
