//! Files in doubt: they keep their names and read as errors; what is known of them is put aside.
//!
//! The copy in `/lost+found/older` takes over the blocks and the bytes over blocks, so that nothing
//! is read, written or shared. In the file's place each block up to its end names one that cannot
//! be read. A file whose end is too far away to be marked so is moved aside itself.

use crate::attr::Stored;
use crate::check::inode_place;
use crate::dir::Dirent;
use crate::item::Placed;
use crate::keys;
use crate::leaf::LEAF_BLOCKS;
use crate::leaf_value::{self, Named, Part};
use crate::repair::Repair;
use crate::repair::doubts::{ChangeTime, Doubt};
use crate::repair::found::{Found, Inode};
use crate::repair::leaves::LEAVES_MAX;
use crate::repair::names::{Names, attributes};
use crate::types::{FileKind, Ino};
use pool::BLOCK_BYTES;
use pool::tree::{Change, Key};
use std::collections::{BTreeMap, HashMap};

/// The directory for copies of files in doubt, in `/lost+found`.
const OLDER: &[u8] = b"older";
/// Of the set-id and permission bits, those that a copy keeps.
const COPY_MODE: u16 = 0o700;
/// Directories above a file that its path names.
const DEPTH_MAX: usize = 4096;

const ROOTS_LOST: &str =
    "the last checkpoint is lost, and it may have changed since the one before";
const BLOCKS_LOST: &str = "blocks of it are lost";
const TARGET_LOST: &str = "its target is lost";
const TOO_LARGE: &str = "a part of its map is lost that is too large to be marked";

/// Why a file is in doubt whose attributes are made up.
pub const ATTRIBUTES_LOST: &str = "its attributes are lost, and with them how long it was";
/// Why a file's place in the tree is in doubt: it is that of the checkpoint before.
pub const OLDER_TREE: &str = "it may have changed since the checkpoint that its map is taken from";

impl Repair {
    /// Puts aside all files in doubt that have a name.
    pub(super) fn put_doubted_aside(&mut self, found: &mut Found, names: &mut Names) {
        self.doubt_what_is_missing(found);
        let named = first_names(names);
        let mut copies = Copies::new(found);
        for (ino, doubts) in self.doubts.take() {
            let Some(stored) = found.inodes.get(&ino).and_then(|inode| inode.stored) else {
                self.tell_doubts(&inode_place(ino), &doubts, "it is gone");
                continue;
            };
            let path = path_of(ino, &named, names);
            match (stored.kind, &path) {
                (FileKind::File, Some(path)) if !self.is_aside(path) => {
                    self.put_file_aside((ino, stored), found, names, &mut copies);
                    let outcome = match self.copy_names.get(&ino) {
                        Some(copy) => format!("what is known of it is {copy}"),
                        None => "what is known of it has no name".to_owned(),
                    };
                    self.tell_doubts(&place(ino, path), &doubts, &outcome);
                }
                (FileKind::Symlink, Some(path))
                    if doubts.iter().any(|it| it.what == TARGET_LOST) =>
                {
                    let aside = self.move_aside(ino, stored.kind, found, names);
                    self.tell_doubts(&place(ino, path), &doubts, &aside);
                }
                (FileKind::Directory, Some(path)) => {
                    let what = "names in it may be missing, or older";
                    self.tell_doubts(&place(ino, path), &doubts, what);
                }
                (_, Some(path)) => {
                    self.tell_doubts(&place(ino, path), &doubts, "it is as it is known");
                }
                (_, None) => {
                    self.tell_doubts(&inode_place(ino), &doubts, "it is as it is known");
                }
            }
        }
    }

    /// What an inode says that it has, and has not.
    fn doubt_what_is_missing(&mut self, found: &Found) {
        let doubt = |what| Doubt { what, offset: None, time: ChangeTime::default() };
        for (ino, inode) in &found.inodes {
            let Some(stored) = inode.stored else { continue };
            let known = inode.blocks + self.blocks_dropped.get(ino).copied().unwrap_or(0);
            match stored.kind {
                FileKind::File if self.roots_lost => self.doubts.add(*ino, doubt(ROOTS_LOST)),
                FileKind::File if stored.blocks > known => {
                    self.doubts.add(*ino, doubt(BLOCKS_LOST));
                }
                FileKind::Symlink if inode.target.values().sum::<u64>() != stored.size => {
                    self.doubts.add(*ino, doubt(TARGET_LOST));
                }
                _ => {}
            }
        }
        for ino in std::mem::take(&mut self.unmarked) {
            self.doubts.add(ino, doubt(TOO_LARGE));
        }
    }

    fn tell_doubts(&mut self, place: &str, doubts: &[Doubt], outcome: &str) {
        for doubt in doubts {
            let offset = doubt.offset.map_or_else(String::new, |at| format!(", file offset {at}"));
            let what = match doubt.time == ChangeTime::default() {
                true => doubt.what.to_owned(),
                false => format!("{} (change {})", doubt.what, doubt.time.text()),
            };
            self.say(format!("{place}{offset}"), format!("{what}; {outcome}"));
        }
    }

    /// Whether a path lies in `/lost+found` already: nobody takes it for the file's place.
    fn is_aside(&self, path: &str) -> bool {
        path.starts_with("/lost+found/")
    }

    fn put_file_aside(
        &mut self,
        (ino, stored): (Ino, Stored),
        found: &mut Found,
        names: &mut Names,
        copies: &mut Copies,
    ) {
        let size = stored.size.max(1);
        if size.div_ceil(LEAF_BLOCKS * BLOCK_BYTES) > LEAVES_MAX {
            self.move_aside(ino, stored.kind, found, names);
            return;
        }
        let copy = copies.next(&self.core.pool, keys::home(ino), found);
        let Some(own) = found.inodes.get_mut(&ino) else { return };
        let moved = Inode {
            stored: Some(Stored { links: 1, mode: stored.mode & COPY_MODE, ..stored }),
            leaves: std::mem::take(&mut own.leaves),
            blocks: std::mem::take(&mut own.blocks),
            patched: std::mem::take(&mut own.patched),
            end: own.end,
            written: own.written,
            ..Inode::default()
        };
        own.stored = Some(Stored { size, ..stored });
        for index in &moved.leaves {
            self.move_key(keys::key(ino, keys::MAP, *index), keys::key(copy, keys::MAP, *index));
        }
        for block in moved.patched.keys() {
            let to = keys::key(copy, keys::PATCH, *block);
            self.move_key(keys::key(ino, keys::PATCH, *block), to);
        }
        found.inodes.insert(copy, moved);
        self.mark_all_lost(ino, size, found);
        if let Some(dir) = self.older(found, names) {
            let name = format!("#{}", ino.0);
            if let Some(name) = self.add_free_name(dir, &name, (copy, stored.kind), names) {
                self.put_aside += 1;
                self.copy_names.insert(ino, format!("/lost+found/older/{name}"));
            }
        }
    }

    /// Moves a value of the trees, as it is by now, to another key.
    fn move_key(&mut self, from: Key, to: Key) {
        let home = |key: &Key| keys::home(Ino(key.object));
        let value = match self.changes.get(&(home(&from), from)) {
            Some(Change::Put(value)) => Some(value.clone()),
            Some(Change::Delete) => None,
            None => self.core.pool.get(home(&from), &from).ok().flatten(),
        };
        if let Some(value) = value {
            self.changes.insert((home(&to), to), Change::Put(value));
        }
        self.changes.insert((home(&from), from), Change::Delete);
    }

    /// Names a block that cannot be read in each slot of a file.
    fn mark_all_lost(&mut self, ino: Ino, size: u64, found: &mut Found) {
        let blocks = size.div_ceil(BLOCK_BYTES);
        for index in 0..blocks.div_ceil(LEAF_BLOCKS) {
            let count = (blocks - index * LEAF_BLOCKS).min(LEAF_BLOCKS) as usize;
            let slots = self.bad_slots(count);
            self.put_leaf((ino, index), 0, slots, found);
        }
    }

    /// Takes the names of an inode away, and gives it one in `/lost+found/older`; says where it is.
    fn move_aside(
        &mut self,
        ino: Ino,
        kind: FileKind,
        found: &mut Found,
        names: &mut Names,
    ) -> String {
        let own: Vec<(Ino, u64)> = names
            .entries
            .iter()
            .filter_map(|(place, entry)| (entry.ino == ino).then_some(*place))
            .collect();
        for (dir, cookie) in own {
            names.entries.remove(&(dir, cookie));
            let key = keys::key(dir, keys::DIRENT, cookie);
            self.changes.insert((keys::home(dir), key), Change::Delete);
        }
        names.counts.remove(&ino);
        let dir = self.older(found, names);
        let name =
            dir.and_then(|dir| self.add_free_name(dir, &format!("#{}", ino.0), (ino, kind), names));
        match name {
            Some(name) => {
                self.put_aside += 1;
                let name = format!("/lost+found/older/{name}");
                self.copy_names.insert(ino, name.clone());
                format!("it is {name} now")
            }
            None => "it has no name now".to_owned(),
        }
    }

    /// The directory for what is put aside, which is made if it is not there.
    fn older(&mut self, found: &mut Found, names: &mut Names) -> Option<Ino> {
        let above = self.lost_found(found, names)?;
        let is_it = |((dir, _), entry): (&(Ino, u64), &Dirent)| {
            (*dir == above && entry.name.bytes() == OLDER).then_some((entry.ino, entry.kind))
        };
        match names.entries.iter().find_map(is_it) {
            Some((ino, FileKind::Directory)) => Some(ino),
            Some(_) => Some(above),
            None => {
                let ino = Copies::new(found).next(&self.core.pool, 0, found);
                let inode = found.inodes.entry(ino).or_default();
                inode.stored = Some(attributes(FileKind::Directory, 0o700, 0));
                self.add_name(above, OLDER, (ino, FileKind::Directory), names).then_some(ino)
            }
        }
    }

    /// What a leaf names by now; blocks that cannot be read where it cannot.
    pub(super) fn slots_of(&mut self, ino: Ino, index: u64) -> Vec<Named> {
        let (home, key) = (keys::home(ino), keys::key(ino, keys::MAP, index));
        let value = match self.changes.get(&(home, key)) {
            Some(Change::Put(value)) => Some(value.clone()),
            Some(Change::Delete) => None,
            None => match self.core.pool.get(home, &key) {
                Ok(value) => value,
                Err(error) => {
                    let place = crate::repair::found::file_place(ino, index * LEAF_BLOCKS);
                    self.say(place, format!("its map is lost: {error}"));
                    return self.bad_slots(LEAF_BLOCKS as usize);
                }
            },
        };
        match value.map(|value| leaf_value::decode(&value)) {
            Some(None) => self.bad_slots(LEAF_BLOCKS as usize),
            named => named.flatten().unwrap_or_default(),
        }
    }

    /// The first slots of a leaf, with blocks that cannot be read.
    pub(super) fn bad_slots(&mut self, count: usize) -> Vec<Named> {
        (0..count).filter_map(|slot| self.bad_slot(slot)).collect()
    }

    /// A slot whose block cannot be read: its checksum never fits.
    pub(super) fn bad_slot(&mut self, slot: usize) -> Option<Named> {
        if self.bad.is_none() {
            let addr = self.core.pool.take_any()?;
            let zeros = [0; BLOCK_BYTES as usize];
            let (written, crc) = self.core.pool.write_block(addr, &zeros);
            let _ = pmem::fence(written);
            self.bad = Some(Placed { addr, crc: !crc });
        }
        let placed = self.bad?;
        Some(Named { slot, placed, part: Part::Shared })
    }
}

/// Numbers for new inodes.
struct Copies {
    highest: HashMap<u8, u64>,
}

impl Copies {
    fn new(found: &Found) -> Copies {
        let mut highest = HashMap::new();
        for ino in found.inodes.keys() {
            let counter = highest.entry(keys::home(*ino)).or_insert(0);
            *counter = keys::counter_of(*ino).max(*counter);
        }
        Copies { highest }
    }

    fn next(&mut self, pool: &pool::Pool, home: u8, found: &Found) -> Ino {
        let highest = self.highest.entry(home).or_insert(0);
        loop {
            *highest = pool.next_inode(home).max(*highest + 1);
            let ino = keys::ino_of(home, *highest);
            // directories get numbers meanwhile, too
            if !found.inodes.contains_key(&ino) {
                return ino;
            }
        }
    }
}

type FirstNames = BTreeMap<Ino, (Ino, Vec<u8>)>;

/// The first name of each inode: its directory, and the name.
fn first_names(names: &Names) -> FirstNames {
    let mut first = BTreeMap::new();
    for ((dir, _), entry) in &names.entries {
        first.entry(entry.ino).or_insert_with(|| (*dir, entry.name.bytes().to_vec()));
    }
    first
}

/// The path of an inode; none if it has no name, or none that leads up to the root.
fn path_of(ino: Ino, named: &FirstNames, names: &Names) -> Option<String> {
    let (mut path, mut at) = (String::new(), ino);
    for _ in 0..DEPTH_MAX {
        if at == Ino::ROOT {
            return Some(if path.is_empty() { "/".to_owned() } else { path });
        }
        let (dir, name) = named.get(&at)?;
        if !names.counts.contains_key(&at) {
            return None;
        }
        path = format!("/{}{path}", String::from_utf8_lossy(name));
        at = *dir;
    }
    None
}

fn place(ino: Ino, path: &str) -> String {
    format!("{} ({path})", inode_place(ino))
}
