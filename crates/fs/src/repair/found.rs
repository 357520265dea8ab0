//! What the trees of a damaged pool hold, inode by inode; values that make no sense are dropped.

use crate::attr::Stored;
use crate::check::inode_place;
use crate::dir::{Dirent, cookie_base};
use crate::keys;
use crate::leaf::{self, LEAF_BLOCKS};
use crate::leaf_value::{self, Part};
use crate::patches::Patches;
use crate::references;
use crate::repair::{Changes, Repair};
use crate::request::RequestId;
use crate::tickets;
use crate::types::{FileKind, Ino};
use pool::tree::{Change, Key, Met};
use pool::{BLOCK_BYTES, BlockAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Values that are looked at in one go.
const VALUES: usize = 1 << 14;

/// An entry of a directory, and where it is.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The directory.
    pub dir: Ino,
    /// Its place in it.
    pub cookie: u64,
    /// What it says.
    pub dirent: Dirent,
}

/// What there is of one inode.
#[derive(Debug, Default)]
pub struct Inode {
    /// Its attributes.
    pub stored: Option<Stored>,
    /// Whether it is on the list of orphans.
    pub orphan: bool,
    /// Entries that it has.
    pub entries: u64,
    /// Leaves that it has.
    pub leaves: BTreeSet<u64>,
    /// Blocks of data.
    pub blocks: u64,
    /// The block behind its last one.
    pub end: u64,
    /// The byte behind the last one that is written.
    pub written: u64,
    /// Blocks with bytes over them; how many, where those are the block's first and no others.
    pub patched: BTreeMap<u64, Option<u64>>,
    /// Parts of a symbolic link's target.
    pub target: BTreeMap<u64, u64>,
    /// Parts of extended attributes.
    pub xattr_parts: BTreeMap<u64, Vec<u8>>,
}

/// What all trees hold.
#[derive(Debug, Default)]
pub struct Found {
    /// By number.
    pub inodes: BTreeMap<Ino, Inode>,
    /// Of all directories.
    pub entries: Vec<Entry>,
    /// Who has a block that has one place: the leaf.
    pub owners: HashMap<BlockAddr, (Ino, u64)>,
    /// Slots that name each block that may have several places.
    pub shared: BTreeMap<BlockAddr, u64>,
    /// Blocks that have several places, and whose slots do not say so.
    pub contested: HashSet<BlockAddr>,
    /// Leaves that are to be written anew.
    pub wrong_leaves: BTreeSet<(Ino, u64)>,
    /// What is counted of each block, by the value's index.
    pub counted: BTreeMap<u64, Vec<u8>>,
    requests: HashSet<RequestId>,
}

impl Repair {
    /// Reads all trees, which are readable by now.
    pub(super) fn find(&mut self, pages: &HashSet<BlockAddr>) -> Found {
        let mut found = Found::default();
        for slice in 0..self.core.pool.slices().len() {
            let mut from = Some(Key::MIN);
            while let Some(first) = from.take() {
                let values;
                (values, from) = self.some_values(slice, first);
                for (key, value) in values {
                    if !self.value(slice as u8, &key, &value, &mut found, pages) {
                        let what = format!("{key:?} holds what makes no sense: dropped");
                        self.say(format!("slice {slice}, tree"), what);
                        self.changes.insert((slice as u8, key), Change::Delete);
                    }
                }
            }
        }
        found
    }

    /// Values of a slice from a key on, and the key with which to go on.
    fn some_values(&self, slice: usize, from: Key) -> (Vec<(Key, Vec<u8>)>, Option<Key>) {
        let (mut values, mut next) = (Vec::new(), None);
        self.core.pool.readable(slice, from, &mut |met| {
            match met {
                Met::Entry(key, _) if values.len() >= VALUES => next = Some(key),
                Met::Entry(key, value) => values.push((key, value.to_vec())),
                _ => {}
            }
            next.is_none()
        });
        (values, next)
    }

    fn value(
        &mut self,
        slice: u8,
        key: &Key,
        value: &[u8],
        found: &mut Found,
        pages: &HashSet<BlockAddr>,
    ) -> bool {
        if key.object == 0 {
            return self.value_of_all(slice, key, value, found);
        }
        let ino = Ino(key.object);
        if keys::home(ino) != slice || ino.0 >= 1 << 62 {
            return false;
        }
        if key.kind == keys::PATCH {
            return self.patch((ino, key.index), value, found);
        }
        let inode = found.inodes.entry(ino).or_default();
        match key.kind {
            keys::INODE if key.index == 0 => {
                inode.stored = Stored::decode(value);
                inode.stored.is_some()
            }
            keys::MAP if key.index <= leaf::LEAF_INDEX_MAX => {
                inode.leaves.insert(key.index);
                self.leaf((ino, key.index), value, found, pages);
                true
            }
            keys::DIRENT => {
                let Some(dirent) = Dirent::decode(value) else { return false };
                let base = cookie_base(&self.core.hash_key, dirent.name.bytes());
                if base != key.index & !255 {
                    return false;
                }
                inode.entries += 1;
                found.entries.push(Entry { dir: ino, cookie: key.index, dirent });
                true
            }
            keys::XATTR => {
                inode.xattr_parts.insert(key.index, value.to_vec());
                true
            }
            keys::SYMLINK => {
                inode.target.insert(key.index, value.len() as u64);
                true
            }
            _ => false,
        }
    }

    /// Bytes over a block of its own, or over none: then they are all that there is.
    fn patch(&self, (ino, block): (Ino, u64), value: &[u8], found: &mut Found) -> bool {
        let index = block / LEAF_BLOCKS;
        let Some(patches) = Patches::decode(value).filter(|_| index <= leaf::LEAF_INDEX_MAX) else {
            return false;
        };
        let leaf = self.core.pool.get(keys::home(ino), &keys::key(ino, keys::MAP, index));
        let leaf = leaf.ok().flatten().map_or(Some(Vec::new()), |value| leaf_value::decode(&value));
        let slot = (block % LEAF_BLOCKS) as usize;
        let named = leaf.into_iter().flatten().find(|named| named.slot == slot);
        if named.is_some_and(|named| named.part != Part::Own) {
            return false;
        }
        let inode = found.inodes.entry(ino).or_default();
        let whole = match patches.parts().next() {
            Some((0, bytes)) if patches.parts().count() == 1 => Some(bytes.len() as u64),
            _ => None,
        };
        let last = patches.parts().last().map_or(0, |(at, bytes)| (at + bytes.len()) as u64);
        inode.written = inode.written.max(block * BLOCK_BYTES + last);
        inode.patched.insert(block, whole);
        true
    }

    fn value_of_all(&mut self, slice: u8, key: &Key, value: &[u8], found: &mut Found) -> bool {
        match key.kind {
            keys::TICKET => {
                let fine = slice == keys::TICKETS_SLICE && key.index < tickets::NUMBER_MAX;
                fine && tickets::decode_ticket(value)
                    .is_some_and(|(id, _)| found.requests.insert(id))
            }
            keys::REFERENCES => {
                found.counted.insert(key.index, value.to_vec());
                references::home(key.index, self.core.pool.slices().len()) == usize::from(slice)
            }
            keys::ORPHAN => {
                let known = tickets::decode_orphan(value).is_some();
                let fine = known && keys::home(Ino(key.index)) == slice;
                if fine {
                    found.inodes.entry(Ino(key.index)).or_default().orphan = true;
                }
                fine
            }
            _ => false,
        }
    }

    fn leaf(
        &mut self,
        (ino, index): (Ino, u64),
        value: &[u8],
        found: &mut Found,
        pages: &HashSet<BlockAddr>,
    ) {
        let inode = found.inodes.entry(ino).or_default();
        let Some(named) = leaf_value::decode(value) else {
            found.wrong_leaves.insert((ino, index));
            return;
        };
        for named in named {
            let addr = named.placed.addr;
            let block = index * LEAF_BLOCKS + named.slot as u64;
            inode.blocks += 1;
            inode.end = inode.end.max(block + 1);
            if named.part != Part::Reserved {
                inode.written = inode.written.max((block + 1) * BLOCK_BYTES);
            }
            if !self.core.pool.contains(addr) || pages.contains(&addr) {
                let what = "names a block that is not its own: reading there is an error now";
                self.said.push((file_place(ino, block), what.to_owned()));
                found.wrong_leaves.insert((ino, index));
                continue;
            }
            if named.part == Part::Shared {
                *found.shared.entry(addr).or_default() += 1;
            } else if let Some(other) = found.owners.insert(addr, (ino, index)) {
                found.wrong_leaves.extend([other, (ino, index)]);
                if found.contested.insert(addr) {
                    let (one, two) = (inode_place(other.0), inode_place(ino));
                    let what = format!("has two owners, {one} and {two}: they share it now");
                    self.said.push((addr.place(), what));
                }
            }
        }
    }
}

/// A block of a file, for who is told.
pub fn file_place(ino: Ino, block: u64) -> String {
    format!("{}, file offset {}", inode_place(ino), block * BLOCK_BYTES)
}

impl Inode {
    /// Bytes that it has, if all of it is a few that lie over no block.
    pub fn small(&self) -> Option<u64> {
        match self.patched.first_key_value() {
            Some((0, bytes)) if self.patched.len() == 1 && self.leaves.is_empty() => *bytes,
            _ => None,
        }
    }

    /// What it can be, if nothing says it.
    pub fn likely_kind(&self) -> FileKind {
        match (self.entries, self.target.is_empty()) {
            (0, true) => FileKind::File,
            (0, false) => FileKind::Symlink,
            _ => FileKind::Directory,
        }
    }
}

/// Adds changes to a batch for each slice.
pub fn batches(changes: Changes, slices: usize) -> Vec<pool::SliceBatch> {
    let mut batches: Vec<pool::SliceBatch> = Vec::new();
    batches.resize_with(slices, pool::SliceBatch::default);
    for ((slice, key), change) in changes {
        if let Some(batch) = batches.get_mut(usize::from(slice)) {
            batch.changes.push((key, change));
        }
    }
    batches
}
