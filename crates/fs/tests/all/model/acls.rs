//! The reference: access control lists as rows of entries, by the rules of acl(5).

use crate::model::reference::{Answer, Model, Node};
use fs::{Creation, FileKind, Ino};

/// Tag, permissions, id.
pub type Entry = (u16, u16, u32);

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// As the kernel gives it.
pub fn value(entries: &[Entry]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&permissions.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

fn entries_of(value: &[u8]) -> Vec<Entry> {
    let entry = |e: &[u8]| {
        let tag = u16::from_le_bytes([e[0], e[1]]);
        let permissions = u16::from_le_bytes([e[2], e[3]]);
        (tag, permissions, u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
    };
    value[4..].chunks(8).map(entry).collect()
}

/// Owner, named users, group, named groups, mask, others: in this order, the mask where needed.
fn valid(entries: &[Entry]) -> bool {
    let mut rest = entries.iter().map(|entry| entry.0).collect::<Vec<_>>().into_iter().peekable();
    let mut many = |tag| {
        let mut count = 0;
        while rest.next_if_eq(&tag).is_some() {
            count += 1;
        }
        count
    };
    let (owner, users, group, groups) = (many(1), many(2), many(4), many(8));
    let (mask, other) = (many(0x10), many(0x20));
    let ids = entries.iter().all(|entry| !matches!(entry.0, 2 | 8) || entry.2 != u32::MAX);
    let permissions = entries.iter().all(|entry| entry.1 < 8);
    let mask_fits = mask == 1 || (mask == 0 && users + groups == 0);
    let one_each = owner == 1 && group == 1 && other == 1;
    rest.next().is_none() && one_each && mask_fits && ids && permissions
}

fn has_mask(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.0 == 0x10)
}

/// The entries that are permission bits, each with where in the mode.
fn classes(entries: &mut [Entry]) -> Vec<(&mut u16, u32)> {
    let group = if has_mask(entries) { 0x10 } else { 4 };
    let place = |tag| [(1, 6), (group, 3), (0x20, 0)].into_iter().find(|(own, _)| *own == tag);
    entries.iter_mut().filter_map(|e| Some((&mut e.1, place(e.0)?.1))).collect()
}

fn mode_of(entries: &[Entry]) -> u16 {
    classes(&mut entries.to_vec()).iter().map(|(bits, place)| **bits << place).sum()
}

/// The access list follows a new mode.
pub fn follow(node: &mut Node) {
    if node.kind == FileKind::Symlink {
        return;
    }
    let Some(list) = node.xattrs.get_mut(ACCESS) else { return };
    let mut entries = entries_of(list);
    for (bits, place) in classes(&mut entries) {
        *bits = node.mode >> place & 7;
    }
    *list = value(&entries);
}

impl Model {
    /// Sets a list; without entries: removes it.
    pub fn set_acl(
        &mut self,
        ino: Ino,
        name: &[u8],
        entries: &[Entry],
        in_group: bool,
    ) -> Answer<()> {
        let node = self.node_mut(ino)?;
        if !entries.is_empty() && !valid(entries) {
            return Err(libc::EINVAL);
        }
        match node.kind {
            FileKind::Symlink => return Err(libc::EOPNOTSUPP),
            FileKind::Directory => {}
            _ if name == DEFAULT && !entries.is_empty() => return Err(libc::EACCES),
            _ => {}
        }
        if entries.is_empty() {
            node.xattrs.remove(name);
            return Ok(());
        }
        node.xattrs.insert(name.to_vec(), value(entries));
        if name == ACCESS {
            node.mode = (node.mode & !0o777) | mode_of(entries);
            node.mode &= if in_group { 0o7777 } else { 0o5777 };
            if entries.len() == 3 {
                node.xattrs.remove(name);
            }
        }
        Ok(())
    }

    /// What an inode made in `parent` gets from there.
    pub fn inherit(&self, parent: Ino, new: &mut Node, by: Creation) {
        let Some(list) = self.nodes[&parent].xattrs.get(DEFAULT) else { return };
        if new.kind == FileKind::Symlink {
            return;
        }
        let mut entries = entries_of(list);
        let asked = by.mode & 0o7777;
        for (bits, place) in classes(&mut entries) {
            *bits &= asked >> place;
        }
        new.mode = (new.mode & !0o777) | (asked & 0o7000) | mode_of(&entries);
        if entries.len() > 3 {
            new.xattrs.insert(ACCESS.to_vec(), value(&entries));
        }
        if new.kind == FileKind::Directory {
            new.xattrs.insert(DEFAULT.to_vec(), list.clone());
        }
    }
}
