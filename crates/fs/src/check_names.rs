//! Check, second part: what inodes say about themselves, and what directories say about them.

use crate::check::{Checker, Seen, inode_place};
use crate::keys;
use crate::types::{FileKind, Ino};
use crate::xattr::Xattrs;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

impl Checker<'_> {
    pub fn names(&mut self) {
        for (dir, entry) in std::mem::take(&mut self.state.entries) {
            let what = |what: &str| {
                format!("entry {:?}: {what}", String::from_utf8_lossy(entry.name.bytes()))
            };
            self.state.first_names.add(entry.ino, dir, entry.name.bytes());
            let why = self.lost_inode(entry.ino);
            let Some(seen) = self.state.inodes.get_mut(&entry.ino) else {
                let why = why.unwrap_or("names an inode that does not exist");
                self.report.add(inode_place(dir), what(why));
                continue;
            };
            seen.names += 1;
            if let Some(why) = why.filter(|_| seen.stored.is_none()) {
                self.report.add(inode_place(dir), what(why));
            }
            let is_dir = entry.kind == FileKind::Directory;
            if seen.stored.is_some_and(|stored| stored.kind != entry.kind) {
                self.report.add(inode_place(dir), what("its kind is not the inode's"));
            }
            if is_dir && seen.named_by.replace(dir).is_some() {
                self.report.add(inode_place(dir), what("a directory with two names"));
            }
        }
        let inodes = std::mem::take(&mut self.state.inodes);
        let is_lost = |ino: &Ino| self.state.lost.cover(*ino, keys::INODE);
        let missing = self.state.orphans.iter().filter(|ino| !inodes.contains_key(*ino));
        for ino in missing.filter(|ino| !is_lost(ino)) {
            let what = "is on the list of orphans, but does not exist";
            self.report.add(inode_place(*ino), what);
        }
        for (ino, seen) in &inodes {
            self.report.inodes += 1;
            self.inode(*ino, seen);
        }
        self.reachable(&inodes);
    }

    fn inode(&mut self, ino: Ino, seen: &Seen) {
        let Some(stored) = seen.stored else {
            return self.no_attributes(ino, seen.names);
        };
        let lost = &self.state.lost;
        let lacks = |kind| lost.cover(ino, kind);
        let is_dir = stored.kind == FileKind::Directory;
        let links = if is_dir { 2 + seen.subdirectories } else { seen.names };
        let orphan = self.state.orphans.contains(&ino);
        let links = if orphan { 0 } else { u64::from(links) };
        let mut counts = vec![
            ("the link count", u64::from(stored.links), links, lost.any()),
            ("the block count", stored.blocks, seen.blocks, lacks(keys::MAP)),
        ];
        if is_dir {
            counts.push(("the entry count", stored.size, seen.entries, lacks(keys::DIRENT)));
        }
        if stored.kind == FileKind::Symlink {
            let lacks = lacks(keys::SYMLINK);
            counts.push(("the target's length", stored.size, seen.symlink_bytes, lacks));
        }
        // what lay in a lost page is missing, and was told
        let differs = |(name, stored, found, lacks): (&str, u64, u64, bool)| {
            let differ = stored != found && !(lacks && found < stored);
            differ.then(|| format!("{name} is {stored}, but {found} are there"))
        };
        let mut wrong: Vec<String> = counts.into_iter().filter_map(differs).collect();
        if !is_dir && seen.entries > 0 {
            wrong.push("has entries, but is no directory".to_owned());
        }
        let home = self.core.pool.slices().get(usize::from(keys::home(ino)));
        let next = home.map_or(0, |slice| slice.inode_next.load(Ordering::Relaxed));
        if keys::counter_of(ino) >= next {
            wrong.push(format!("a new inode would get its number: they go on from {next}"));
        }
        if !orphan && ino != Ino::ROOT && seen.names == 0 && !lost.any() {
            wrong.push("has no name".to_owned());
        }
        match Xattrs::from_parts(&seen.xattr_parts) {
            Some(xattrs) => wrong.extend(crate::acls::wrong(&xattrs, stored.mode)),
            None if lacks(keys::XATTR) => {}
            None => wrong.push("its extended attributes make no sense".to_owned()),
        }
        let is_misplaced = seen.named_by != Some(stored.parent);
        let is_nameless = seen.named_by.is_none() && lost.any();
        if is_dir && ino != Ino::ROOT && !orphan && is_misplaced && !is_nameless {
            wrong.push(format!("its parent is said to be inode {}", stored.parent.0));
        }
        wrong.into_iter().for_each(|what| self.report.add(inode_place(ino), what));
    }

    /// Every directory leads up to the root.
    fn reachable(&mut self, inodes: &BTreeMap<Ino, Seen>) {
        let root = inodes.get(&Ino::ROOT);
        let kind = root.and_then(|root| root.stored).map(|stored| stored.kind);
        if root.is_none() && self.lost_inode(Ino::ROOT).is_none() {
            self.report.add("root directory", "is not there");
        } else if kind.is_some_and(|kind| kind != FileKind::Directory) {
            self.report.add("root directory", "is no directory");
        }
        let mut good: HashSet<Ino> = HashSet::from([Ino::ROOT]);
        for (ino, seen) in inodes {
            let mut path = Vec::new();
            let mut at = (*ino, seen);
            while at.1.named_by.is_some() && !good.contains(&at.0) && path.len() <= inodes.len() {
                path.push(at.0);
                let up = at.1.named_by.unwrap_or(Ino::ROOT);
                match inodes.get(&up) {
                    Some(seen) => at = (up, seen),
                    None => break,
                }
            }
            if path.len() > inodes.len() {
                self.report.add(inode_place(*ino), "lies in a circle of directories");
            } else {
                good.extend(path);
            }
        }
    }
}
