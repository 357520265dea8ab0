//! What inodes say of themselves, made to agree with what is there.

use crate::acl::{ACCESS, DEFAULT};
use crate::attr::Stored;
use crate::check::inode_place;
use crate::keys;
use crate::repair::Repair;
use crate::repair::found::{Found, Inode};
use crate::repair::names::Names;
use crate::types::{FileKind, Ino};
use crate::xattr::Xattrs;
use pool::tree::Change;
use std::collections::{BTreeMap, HashMap};

impl Repair {
    /// Writes the attributes of each inode that are not what is there.
    pub(super) fn mend_counts(
        &mut self,
        found: &Found,
        names: &Names,
        before: &HashMap<Ino, Stored>,
    ) {
        let (mut entries, mut subdirectories) = (HashMap::new(), HashMap::new());
        for ((dir, _), dirent) in &names.entries {
            *entries.entry(*dir).or_insert(0u64) += 1;
            if dirent.kind == FileKind::Directory {
                *subdirectories.entry(*dir).or_insert(0u32) += 1;
            }
        }
        for (ino, inode) in &found.inodes {
            let Some(old) = inode.stored else { continue };
            let mut new = Stored { blocks: inode.blocks, ..old };
            new.links = names.counts.get(ino).copied().unwrap_or(0);
            if old.kind == FileKind::Directory {
                new.size = entries.get(ino).copied().unwrap_or(0);
                new.links = 2 + subdirectories.get(ino).copied().unwrap_or(0);
                new.parent = names.parents.get(ino).map_or(Ino::ROOT, |(parent, _)| *parent);
            }
            if inode.orphan {
                (new.links, new.parent) = (0, old.parent);
            }
            if old.kind == FileKind::Symlink {
                new.size = inode.target.values().sum();
            }
            self.mend_xattrs(*ino, inode, &mut new);
            self.core.pool.inode_seen(keys::home(*ino), keys::counter_of(*ino));
            if before.get(ino) != Some(&new) {
                let key = keys::key(*ino, keys::INODE, 0);
                self.changes.insert((keys::home(*ino), key), Change::Put(new.encode().to_vec()));
                if let Some(old) = before.get(ino) {
                    self.say(inode_place(*ino), difference(old, &new));
                }
            }
        }
    }

    /// Keeps the extended attributes that make sense.
    fn mend_xattrs(&mut self, ino: Ino, inode: &Inode, stored: &mut Stored) {
        let mut by_number: BTreeMap<u64, BTreeMap<u64, Vec<u8>>> = BTreeMap::new();
        for (index, part) in &inode.xattr_parts {
            by_number.entry(index >> 8).or_default().insert(*index, part.clone());
        }
        let mut whole = BTreeMap::new();
        let mut names = Vec::new();
        for parts in by_number.into_values() {
            let one = Xattrs::from_parts(&parts);
            let name = one.and_then(|one| one.values.into_keys().next());
            match name.filter(|name| !names.contains(name)) {
                Some(name) => {
                    names.push(name.clone());
                    whole.insert(name, parts);
                }
                None => self.drop_xattr(ino, &parts, "an extended attribute makes no sense"),
            }
        }
        let all: BTreeMap<u64, Vec<u8>> =
            whole.values().flatten().map(|(i, p)| (*i, p.clone())).collect();
        let lists = Xattrs::from_parts(&all).and_then(|all| crate::acls::wrong(&all, stored.mode));
        if let Some(why) = lists {
            for name in [ACCESS, DEFAULT] {
                if let Some(parts) = whole.get(name) {
                    self.drop_xattr(ino, parts, &why);
                }
            }
            // what the list kept from the group must not be open to it now
            stored.mode &= !0o070;
        }
    }

    fn drop_xattr(&mut self, ino: Ino, parts: &BTreeMap<u64, Vec<u8>>, why: &str) {
        for index in parts.keys() {
            let key = keys::key(ino, keys::XATTR, *index);
            self.changes.insert((keys::home(ino), key), Change::Delete);
        }
        self.say(inode_place(ino), format!("{why}: dropped"));
    }
}

fn difference(old: &Stored, new: &Stored) -> String {
    let counts = [
        ("links", u64::from(old.links), u64::from(new.links)),
        ("size", old.size, new.size),
        ("blocks", old.blocks, new.blocks),
        ("parent", old.parent.0, new.parent.0),
        ("mode", u64::from(old.mode), u64::from(new.mode)),
    ];
    let wrong = counts.iter().filter(|(_, old, new)| old != new);
    let said: Vec<String> =
        wrong.map(|(what, old, new)| format!("{what} {old}, now {new}")).collect();
    said.join("; ")
}
