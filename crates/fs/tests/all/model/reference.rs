//! The reference: what the file system should hold, in ordinary maps.

use crate::model::acls;
use crate::model::content::Content;
use fs::{Creation, Fallocate, FileKind, Ino, Layout, NewNode, RenameMode, SetAttr, XattrMode};
use std::collections::BTreeMap;

/// Expected: some error, whichever.
pub const ANY_ERROR: i32 = 0;

/// An inode.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: FileKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub links: u32,
    pub opens: u32,
    /// Without a name from birth: may be given one.
    pub nameable: bool,
    pub parent: Ino,
    pub content: Content,
    pub target: Vec<u8>,
    pub entries: BTreeMap<Vec<u8>, Ino>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Known if it was set and nothing changed since.
    pub modified: Option<i64>,
    pub accessed: Option<i64>,
    pub layout: Layout,
}

/// The whole file system.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<Ino, Node>,
    /// Reads move times on: what they are is not known.
    pub reads_count: bool,
}

pub type Answer<T> = Result<T, i32>;

pub fn check_name(name: &[u8]) -> Answer<()> {
    if name.len() > 255 {
        return Err(libc::ENAMETOOLONG);
    }
    let special = name.is_empty() || name == b"." || name == b"..";
    if special || name.contains(&b'/') || name.contains(&0) { Err(libc::EINVAL) } else { Ok(()) }
}

pub fn new_node(kind: FileKind, by: Creation, parent: Ino) -> Node {
    let is_dir = kind == FileKind::Directory;
    let umask = if kind == FileKind::Symlink { 0 } else { by.umask };
    Node {
        kind,
        mode: by.mode & !umask & 0o7777,
        uid: by.uid,
        gid: by.gid,
        rdev: 0,
        links: if is_dir { 2 } else { 1 },
        opens: 0,
        nameable: false,
        parent,
        content: Content::default(),
        target: Vec::new(),
        entries: BTreeMap::new(),
        xattrs: BTreeMap::new(),
        modified: None,
        accessed: None,
        layout: Layout::Auto,
    }
}

impl Node {
    /// Size as `stat` shows it.
    pub fn size(&self) -> u64 {
        match self.kind {
            FileKind::Directory => self.entries.len() as u64 * 32,
            FileKind::Symlink => self.target.len() as u64,
            _ => self.content.size,
        }
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

impl Model {
    /// A file system with an empty root directory.
    pub fn new() -> Model {
        let by = Creation { mode: 0o755, umask: 0, uid: 0, gid: 0 };
        let root = new_node(FileKind::Directory, by, Ino::ROOT);
        Model { nodes: BTreeMap::from([(Ino::ROOT, root)]), reads_count: false }
    }

    pub fn node(&self, ino: Ino) -> Answer<&Node> {
        self.nodes.get(&ino).ok_or(libc::ENOENT)
    }

    pub fn node_mut(&mut self, ino: Ino) -> Answer<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(libc::ENOENT)
    }

    /// A directory in which names can be looked up and made.
    pub fn dir(&self, ino: Ino) -> Answer<&Node> {
        let node = self.node(ino)?;
        match (node.is_dir(), node.links) {
            (false, _) => Err(libc::ENOTDIR),
            (true, 0) => Err(libc::ENOENT),
            (true, _) => Ok(node),
        }
    }

    pub fn dir_mut(&mut self, ino: Ino) -> Answer<&mut Node> {
        self.dir(ino)?;
        let node = self.node_mut(ino)?;
        node.modified = None;
        Ok(node)
    }

    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Answer<Ino> {
        self.node(parent)?;
        if name.len() > 255 {
            return Err(libc::ENAMETOOLONG);
        }
        let dir = self.dir(parent)?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(dir.parent),
            name => dir.entries.get(name).copied().ok_or(libc::ENOENT),
        }
    }

    /// Whether `create` would work; the inode's number is the file system's to choose.
    pub fn may_create(&self, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Answer<()> {
        check_name(name)?;
        if let NewNode::Symlink(target) = node
            && (target.is_empty() || target.len() > 4095 || target.contains(&0))
        {
            return Err(libc::EINVAL);
        }
        match self.dir(parent)?.entries.contains_key(name) {
            true => Err(libc::EEXIST),
            false => Ok(()),
        }
    }

    pub fn create(&mut self, parent: Ino, name: &[u8], node: NewNode<'_>, by: Creation, ino: Ino) {
        let kind = match node {
            NewNode::File => FileKind::File,
            NewNode::Directory => FileKind::Directory,
            NewNode::Symlink(_) => FileKind::Symlink,
            NewNode::Special(kind, _) => kind,
        };
        let mut new = new_node(kind, by, parent);
        match node {
            NewNode::Symlink(target) => new.target = target.to_vec(),
            NewNode::Special(_, rdev) => new.rdev = rdev,
            _ => {}
        }
        self.inherit(parent, &mut new, by);
        let dir = self.dir_mut(parent).unwrap();
        new.inherit_layout(dir.layout);
        if dir.mode & 0o2000 != 0 {
            new.gid = dir.gid;
            new.mode |= if kind == FileKind::Directory { 0o2000 } else { 0 };
        }
        dir.entries.insert(name.to_vec(), ino);
        dir.links += u32::from(kind == FileKind::Directory);
        assert!(self.nodes.insert(ino, new).is_none(), "inode number {} was given twice", ino.0);
    }

    /// `ino` lost one name.
    fn lose_name(&mut self, ino: Ino) {
        let node = self.nodes.get_mut(&ino).unwrap();
        node.links = if node.is_dir() { 0 } else { node.links - 1 };
        self.drop_unused(ino);
    }

    fn drop_unused(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|node| node.links == 0 && node.opens == 0) {
            self.nodes.remove(&ino);
        }
    }

    pub fn open(&mut self, ino: Ino) -> Answer<()> {
        self.node_mut(ino)?.opens += 1;
        Ok(())
    }

    pub fn close(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.opens -= 1;
            self.drop_unused(ino);
        }
    }

    pub fn remove(&mut self, parent: Ino, name: &[u8], directory: bool) -> Answer<()> {
        match name {
            b"." => return Err(libc::EINVAL),
            b".." => return Err(libc::ENOTEMPTY),
            name => check_name(name)?,
        }
        let ino = *self.dir(parent)?.entries.get(name).ok_or(libc::ENOENT)?;
        self.check_removable(ino, directory)?;
        let dir = self.dir_mut(parent)?;
        dir.entries.remove(name);
        dir.links -= u32::from(directory);
        self.lose_name(ino);
        Ok(())
    }

    fn check_removable(&self, ino: Ino, directory: bool) -> Answer<()> {
        let node = self.node(ino)?;
        match (node.is_dir(), directory) {
            (true, false) => Err(libc::EISDIR),
            (false, true) => Err(libc::ENOTDIR),
            (true, true) if !node.entries.is_empty() => Err(libc::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn lies_in(&self, mut dir: Ino, ancestor: Ino) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            if dir == Ino::ROOT {
                return false;
            }
            dir = self.nodes[&dir].parent;
        }
    }

    pub fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Answer<()> {
        for name in [from.1, to.1] {
            check_name(name)?;
        }
        let moved = self.dir(from.0)?.entries.get(from.1).copied();
        let replaced = self.dir(to.0)?.entries.get(to.1).copied();
        let moved = moved.ok_or(libc::ENOENT)?;
        match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(libc::EEXIST),
            (RenameMode::Exchange, None) => return Err(libc::ENOENT),
            _ => {}
        }
        if replaced == Some(moved) {
            return Ok(());
        }
        let moved_is_dir = self.node(moved)?.is_dir();
        if moved_is_dir && self.lies_in(to.0, moved) {
            return Err(libc::EINVAL);
        }
        let Some(other) = replaced else {
            self.put(to, moved);
            self.take(from, moved);
            return Ok(());
        };
        let other_is_dir = self.node(other)?.is_dir();
        let circle = other_is_dir && self.lies_in(from.0, other);
        if mode == RenameMode::Exchange {
            if circle {
                return Err(libc::EINVAL);
            }
            self.take(from, moved);
            self.take(to, other);
            self.put(to, moved);
            self.put(from, other);
            return Ok(());
        }
        if circle {
            return Err(libc::ENOTEMPTY);
        }
        self.check_removable(other, moved_is_dir)?;
        self.take(from, moved);
        self.take(to, other);
        self.put(to, moved);
        self.lose_name(other);
        Ok(())
    }

    fn take(&mut self, (dir, name): (Ino, &[u8]), ino: Ino) {
        let is_dir = self.nodes[&ino].is_dir();
        let dir = self.dir_mut(dir).unwrap();
        dir.entries.remove(name);
        dir.links -= u32::from(is_dir);
    }

    fn put(&mut self, (parent, name): (Ino, &[u8]), ino: Ino) {
        let is_dir = self.nodes[&ino].is_dir();
        let dir = self.dir_mut(parent).unwrap();
        dir.entries.insert(name.to_vec(), ino);
        dir.links += u32::from(is_dir);
        if is_dir {
            self.nodes.get_mut(&ino).unwrap().parent = parent;
        }
    }

    pub fn setattr(&mut self, ino: Ino, change: &SetAttr) -> Answer<()> {
        let reads_count = self.reads_count;
        let node = self.node_mut(ino)?;
        match (change.size, node.kind) {
            (Some(_), FileKind::Directory) => return Err(libc::EISDIR),
            (Some(size), FileKind::File) if size > fs::FILE_BYTES_MAX => return Err(libc::EFBIG),
            (Some(_), FileKind::File) | (None, _) => {}
            (Some(_), _) => return Err(libc::EINVAL),
        }
        node.lay_out(change.layout)?;
        if let Some(size) = change.size {
            node.content.truncate(size);
            node.modified = None;
        }
        node.mode = change.mode.unwrap_or(node.mode) & 0o7777;
        if change.mode.is_some() {
            acls::follow(node);
        }
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        node.modified = change.modified.map(|time| time.0).or(node.modified);
        node.accessed = change.accessed.map(|time| time.0).or(node.accessed);
        node.accessed = node.accessed.filter(|_| !reads_count);
        Ok(())
    }

    pub fn may_write(&self, ino: Ino, offset: u64, len: usize) -> Answer<()> {
        if self.node(ino)?.kind != FileKind::File {
            return Err(ANY_ERROR);
        }
        match offset.checked_add(len as u64) {
            Some(end) if end <= fs::FILE_BYTES_MAX => Ok(()),
            _ => Err(libc::EFBIG),
        }
    }

    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Answer<()> {
        self.may_write(ino, offset, data.len())?;
        let node = self.node_mut(ino)?;
        if !data.is_empty() {
            node.content.write(offset, data);
            node.modified = None;
        }
        Ok(())
    }

    pub fn fallocate(&mut self, ino: Ino, mode: Fallocate, offset: u64, len: u64) -> Answer<()> {
        let node = self.node_mut(ino)?;
        if node.kind != FileKind::File {
            return Err(ANY_ERROR);
        }
        let end = offset.checked_add(len).filter(|end| *end <= fs::FILE_BYTES_MAX);
        let end = end.ok_or(libc::EFBIG)?;
        if len == 0 {
            return Err(libc::EINVAL);
        }
        node.modified = None;
        let keep_size = match mode {
            Fallocate::Allocate { keep_size } => keep_size,
            Fallocate::PunchHole => true,
            Fallocate::Zero { keep_size } => keep_size,
        };
        if !matches!(mode, Fallocate::Allocate { .. }) {
            node.content.punch(offset, end);
        }
        if !matches!(mode, Fallocate::PunchHole) {
            node.content.reserve(offset, end);
        }
        if !keep_size && end > node.content.size {
            node.content.truncate(end);
        }
        Ok(())
    }

    pub fn setxattr(&mut self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Answer<()> {
        if name.is_empty() || name.len() > 255 {
            return Err(ANY_ERROR);
        }
        let node = self.node_mut(ino)?;
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(libc::EEXIST),
            (XattrMode::Replace, false) => return Err(libc::ENODATA),
            _ => {}
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    pub fn removexattr(&mut self, ino: Ino, name: &[u8]) -> Answer<()> {
        self.node_mut(ino)?.xattrs.remove(name).map(|_| ()).ok_or(libc::ENODATA)
    }

    /// The process was killed, or the pool closed: nobody has anything open.
    pub fn end_of_process(&mut self) {
        self.nodes.retain(|_, node| {
            node.opens = 0;
            node.links > 0
        });
    }
}
