//! Names: every inode has one, every one has an inode, and every directory leads up to the root.
//! What has lost its name gets one in `/lost+found`.

use crate::attr::Stored;
use crate::check::inode_place;
use crate::clock::now;
use crate::dir::{Dirent, cookie_base};
use crate::keys;
use crate::repair::Repair;
use crate::repair::doubts::{ChangeTime, Doubt};
use crate::repair::found::{Entry, Found};
use crate::repair::put_aside::ATTRIBUTES_LOST;
use crate::short_name::ShortName;
use crate::types::{FileKind, Ino, Timestamp};
use pool::BLOCK_BYTES;
use pool::tree::Change;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Where things are put that have lost their place.
pub const LOST_FOUND: &[u8] = b"lost+found";

/// The entries that stay.
#[derive(Debug, Default)]
pub struct Names {
    /// By directory and cookie.
    pub entries: BTreeMap<(Ino, u64), Dirent>,
    taken: HashSet<(Ino, Vec<u8>)>,
    /// Entries that name each inode.
    pub counts: HashMap<Ino, u32>,
    /// Where each directory is named.
    pub parents: HashMap<Ino, (Ino, u64)>,
}

impl Names {
    fn add(&mut self, entry: Entry) {
        *self.counts.entry(entry.dirent.ino).or_default() += 1;
        if entry.dirent.kind == FileKind::Directory {
            self.parents.insert(entry.dirent.ino, (entry.dir, entry.cookie));
        }
        self.taken.insert((entry.dir, entry.dirent.name.bytes().to_vec()));
        self.entries.insert((entry.dir, entry.cookie), entry.dirent);
    }
}

impl Repair {
    /// Gives attributes to inodes that have lost theirs.
    pub(super) fn mend_inodes(&mut self, found: &mut Found) {
        let named: HashMap<Ino, FileKind> =
            found.entries.iter().map(|entry| (entry.dirent.ino, entry.dirent.kind)).collect();
        let root = found.inodes.entry(Ino::ROOT).or_default();
        let is_dir = root.stored.is_some_and(|stored| stored.kind == FileKind::Directory);
        if !is_dir {
            root.stored = Some(attributes(FileKind::Directory, 0o755, 0));
            self.say("root directory", "its attributes are lost: it has new ones");
        }
        let mut gone = Vec::new();
        for (ino, inode) in &mut found.inodes {
            let has_data = inode.entries > 0
                || !(inode.leaves.is_empty() && inode.target.is_empty())
                || !inode.xattr_parts.is_empty()
                || inode.small().is_some();
            if inode.stored.is_none() && !has_data {
                gone.push(*ino);
            } else if inode.stored.is_none() {
                let kind = match (inode.likely_kind(), named.get(ino)) {
                    (FileKind::File, Some(kind)) if inode.leaves.is_empty() => *kind,
                    (kind, _) => kind,
                };
                let mode = if kind == FileKind::Directory { 0o700 } else { 0o600 };
                let size = match kind {
                    FileKind::Symlink => inode.target.values().sum(),
                    _ => inode.small().unwrap_or(inode.end * BLOCK_BYTES),
                };
                inode.stored = Some(attributes(kind, mode, size));
                if kind == FileKind::File {
                    let (offset, time) = (None, ChangeTime::default());
                    self.doubts.add(*ino, Doubt { what: ATTRIBUTES_LOST, offset, time });
                }
                if !inode.leaves.is_empty() {
                    self.unsure.insert(*ino);
                }
                let what = "its attributes are lost: it is the owner's alone now, root's";
                self.said.push((inode_place(*ino), what.to_owned()));
            }
        }
        for ino in gone {
            let inode = found.inodes.remove(&ino).unwrap_or_default();
            self.changes.insert((keys::home(ino), keys::orphan(ino)), Change::Delete);
            for block in inode.patched.into_keys() {
                self.changes
                    .insert((keys::home(ino), keys::key(ino, keys::PATCH, block)), Change::Delete);
            }
            self.say(inode_place(ino), "is lost, but for what says nothing: forgotten");
        }
    }

    /// Of a file whose attributes are older than what it holds, more may be there than they say.
    pub(super) fn grow_older(&mut self, found: &mut Found) {
        for ino in &self.unsure {
            let Some(inode) = found.inodes.get_mut(ino) else { continue };
            let (written, blocks) = (inode.written, |bytes: u64| bytes.div_ceil(BLOCK_BYTES));
            if let Some(stored) = &mut inode.stored
                && stored.kind == FileKind::File
                && blocks(written) > blocks(stored.size)
            {
                stored.size = written;
            }
        }
    }

    /// The entries that make sense, and names for what has none.
    pub(super) fn mend_names(&mut self, found: &mut Found) -> Names {
        let mut names = Names::default();
        let mut entries = std::mem::take(&mut found.entries);
        // names of the checkpoint before come last; of two names of a directory, the one where it
        // says that it is comes first
        entries.sort_by_key(|entry| {
            let stored = found.inodes.get(&entry.dirent.ino).and_then(|inode| inode.stored);
            let is_older = self.older_entries.contains(&(entry.dir, entry.cookie));
            (is_older, stored.is_none_or(|stored| stored.parent != entry.dir))
        });
        for entry in entries {
            self.mend_entry(entry, found, &mut names);
        }
        self.cut_circles(found, &mut names);
        let nameless: Vec<Ino> = found
            .inodes
            .iter()
            .filter(|(ino, inode)| {
                let named = names.counts.get(ino).is_some_and(|count| *count > 0);
                !named && !inode.orphan && **ino != Ino::ROOT
            })
            .map(|(ino, _)| *ino)
            .collect();
        for (ino, inode) in &mut found.inodes {
            if inode.orphan && names.counts.get(ino).is_some_and(|count| *count > 0) {
                inode.orphan = false;
                self.changes.insert((keys::home(*ino), keys::orphan(*ino)), Change::Delete);
                let what = "is on the list of orphans, but has a name: taken off";
                self.said.push((inode_place(*ino), what.to_owned()));
            }
        }
        if !nameless.is_empty() {
            self.put_aside(&nameless, found, &mut names);
        }
        names
    }

    fn mend_entry(&mut self, mut entry: Entry, found: &Found, names: &mut Names) {
        let stored = |ino| found.inodes.get(&ino).and_then(|inode| inode.stored);
        let target = stored(entry.dirent.ino);
        let dir = stored(entry.dir).filter(|stored| stored.kind == FileKind::Directory);
        let name = String::from_utf8_lossy(entry.dirent.name.bytes()).into_owned();
        let mut wrong = match (dir, target) {
            (None, _) => Some("its directory is none"),
            (_, None) => Some("its inode is lost"),
            _ if entry.dirent.ino == Ino::ROOT => Some("it names the root directory"),
            _ => None,
        };
        let kind = target.map_or(entry.dirent.kind, |stored| stored.kind);
        let twice = kind == FileKind::Directory && names.parents.contains_key(&entry.dirent.ino);
        if names.taken.contains(&(entry.dir, entry.dirent.name.bytes().to_vec())) {
            wrong = wrong.or(Some("the name is there twice"));
        } else if twice {
            wrong = wrong.or(Some("its directory has another name, too"));
        } else if self.older_entries.contains(&(entry.dir, entry.cookie)) {
            wrong = wrong.or(Some("it is the checkpoint before's, and its inode changed since"));
        }
        let key = keys::key(entry.dir, keys::DIRENT, entry.cookie);
        if let Some(why) = wrong {
            self.changes.insert((keys::home(entry.dir), key), Change::Delete);
            return self
                .say(inode_place(entry.dir), format!("the entry {name:?} is dropped: {why}"));
        }
        if kind != entry.dirent.kind {
            entry.dirent.kind = kind;
            self.changes.insert((keys::home(entry.dir), key), Change::Put(entry.dirent.encode()));
            let what = format!("the entry {name:?} says what its inode is now");
            self.say(inode_place(entry.dir), what);
        }
        names.add(entry);
    }

    /// Takes the name from a directory in each circle of directories.
    fn cut_circles(&mut self, found: &Found, names: &mut Names) {
        let mut good: HashSet<Ino> = HashSet::from([Ino::ROOT]);
        for ino in found.inodes.keys() {
            let (mut path, mut at) = (BTreeSet::new(), *ino);
            while !good.contains(&at) {
                let Some((up, cookie)) = names.parents.get(&at).copied() else { break };
                if !path.insert(at) {
                    names.parents.remove(&at);
                    names.entries.remove(&(up, cookie));
                    names.counts.remove(&at);
                    let key = keys::key(up, keys::DIRENT, cookie);
                    self.changes.insert((keys::home(up), key), Change::Delete);
                    self.say(inode_place(at), "lay in a circle of directories: taken out");
                    break;
                }
                at = up;
            }
            good.extend(path);
        }
    }

    /// Names for inodes that have none, in a directory for such.
    fn put_aside(&mut self, nameless: &[Ino], found: &mut Found, names: &mut Names) {
        let Some(dir) = self.lost_found(found, names) else {
            let what = "has no name, and there is none to be had for /lost+found";
            return nameless
                .iter()
                .for_each(|ino| self.said.push((inode_place(*ino), what.into())));
        };
        for ino in nameless {
            let Some(stored) = found.inodes.get(ino).and_then(|inode| inode.stored) else {
                continue;
            };
            let name = format!("#{}", ino.0);
            if let Some(name) = self.add_free_name(dir, &name, (*ino, stored.kind), names) {
                self.put_aside += 1;
                let what = format!("had no name: it is /lost+found/{name} now");
                self.say(inode_place(*ino), what);
            }
        }
    }

    /// Adds this name, or one with a number behind it where a user has given it to another; gives
    /// the name.
    pub(super) fn add_free_name(
        &mut self,
        dir: Ino,
        wanted: &str,
        target: (Ino, FileKind),
        names: &mut Names,
    ) -> Option<String> {
        let mut name = wanted.to_owned();
        for number in 1.. {
            if !names.taken.contains(&(dir, name.clone().into_bytes())) {
                break;
            }
            name = format!("{wanted}.{number}");
        }
        self.add_name(dir, name.as_bytes(), target, names).then_some(name)
    }

    /// The directory, which is made if it is not there.
    pub(super) fn lost_found(&mut self, found: &mut Found, names: &mut Names) -> Option<Ino> {
        let is_it = |((dir, _), entry): (&(Ino, u64), &Dirent)| {
            (*dir == Ino::ROOT && entry.name.bytes() == LOST_FOUND)
                .then_some((entry.ino, entry.kind))
        };
        if let Some((ino, kind)) = names.entries.iter().find_map(is_it) {
            return (kind == FileKind::Directory).then_some(ino);
        }
        let counters = found.inodes.keys().filter(|ino| keys::home(**ino) == 0);
        let highest = counters.map(|ino| keys::counter_of(*ino)).max().unwrap_or(0);
        let ino = keys::ino_of(0, self.core.pool.next_inode(0).max(highest + 1));
        let inode = found.inodes.entry(ino).or_default();
        inode.stored = Some(attributes(FileKind::Directory, 0o700, 0));
        self.add_name(Ino::ROOT, LOST_FOUND, (ino, FileKind::Directory), names).then_some(ino)
    }

    pub(super) fn add_name(
        &mut self,
        dir: Ino,
        name: &[u8],
        (ino, kind): (Ino, FileKind),
        names: &mut Names,
    ) -> bool {
        let base = cookie_base(&self.core.hash_key, name);
        let free = (base..=base | 255).find(|cookie| !names.entries.contains_key(&(dir, *cookie)));
        let Some(cookie) = free.filter(|_| !names.taken.contains(&(dir, name.to_vec()))) else {
            return false;
        };
        let dirent = Dirent { ino, kind, name: ShortName::new(name) };
        let key = keys::key(dir, keys::DIRENT, cookie);
        self.changes.insert((keys::home(dir), key), Change::Put(dirent.encode()));
        names.add(Entry { dir, cookie, dirent });
        true
    }
}

/// Of an inode that has lost its own.
pub fn attributes(kind: FileKind, mode: u16, size: u64) -> Stored {
    Stored { size, ..Stored::new(kind, mode, Timestamp(now())) }
}
