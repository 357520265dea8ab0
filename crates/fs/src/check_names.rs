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
            let Some(seen) = self.state.inodes.get_mut(&entry.ino) else {
                self.report.add(inode_place(dir), what("names an inode that does not exist"));
                continue;
            };
            seen.names += 1;
            let is_dir = entry.kind == FileKind::Directory;
            if seen.stored.is_some_and(|stored| stored.kind != entry.kind) {
                self.report.add(inode_place(dir), what("its kind is not the inode's"));
            }
            if is_dir && seen.named_by.replace(dir).is_some() {
                self.report.add(inode_place(dir), what("a directory with two names"));
            }
        }
        let inodes = std::mem::take(&mut self.state.inodes);
        for ino in self.state.orphans.iter().filter(|ino| !inodes.contains_key(*ino)) {
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
            return self.report.add(inode_place(ino), "has data but no attributes");
        };
        let is_dir = stored.kind == FileKind::Directory;
        let links = if is_dir { 2 + seen.subdirectories } else { seen.names };
        let orphan = self.state.orphans.contains(&ino);
        let links = if orphan { 0 } else { u64::from(links) };
        let mut counts = vec![
            ("the link count", u64::from(stored.links), links),
            ("the block count", stored.blocks, seen.blocks),
        ];
        if is_dir {
            counts.push(("the entry count", stored.size, seen.entries));
        }
        if stored.kind == FileKind::Symlink {
            counts.push(("the target's length", stored.size, seen.symlink_bytes));
        }
        let differs = |(name, stored, found): (&str, u64, u64)| {
            (stored != found).then(|| format!("{name} is {stored}, but {found} are there"))
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
        if !orphan && ino != Ino::ROOT && seen.names == 0 {
            wrong.push("has no name".to_owned());
        }
        match Xattrs::from_parts(&seen.xattr_parts) {
            Some(xattrs) => wrong.extend(crate::acls::wrong(&xattrs, stored.mode)),
            None => wrong.push("its extended attributes make no sense".to_owned()),
        }
        if is_dir && ino != Ino::ROOT && !orphan && seen.named_by != Some(stored.parent) {
            wrong.push(format!("its parent is said to be inode {}", stored.parent.0));
        }
        wrong.into_iter().for_each(|what| self.report.add(inode_place(ino), what));
    }

    /// Every directory leads up to the root.
    fn reachable(&mut self, inodes: &BTreeMap<Ino, Seen>) {
        let root = inodes.get(&Ino::ROOT);
        let kind = root.and_then(|root| root.stored).map(|stored| stored.kind);
        if root.is_none() {
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
