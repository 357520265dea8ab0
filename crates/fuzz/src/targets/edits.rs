//! Changes to the entries of the base's trees.
//!
//! ```text
//! what u8: 8 the tree of free space, 16 the key as it is, 32 twice
//!   0 an entry goes          entry u8
//!   1 bytes of a value       entry u8, at u16, length u8, bytes
//!   2 a number of a value    entry u8, at u16, u64
//!   3 a value's length       entry u8, length u16
//!   4 a name                 directory u8, inode u8, kind u8, hash u8, length u8, bytes
//!   5 an extended attribute  inode u8, number u8, name (length u8, bytes), value (likewise, u16)
//!   6 an entry of any kind   inode u8 or object u64, kind u8, index u64, value (length u16, bytes)
//!   7 another key            entry u8, object u64, kind u8, index u64
//! ```
//!
//! An entry is named by its number, an inode by that of its attributes' entry among those.

use super::arena::Arena;
use super::input::Input;
use super::pages::{self, FreeBlocks, VALUE_BYTES_MAX};
use crate::page::{Entry, KEY};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Entries of a tree at most.
const ENTRIES_MAX: usize = 400;
/// Bytes of a part of an extended attribute.
const PART_BYTES: usize = 1400;

const FREE_SPACE: u8 = 8;
const RAW_KEY: u8 = 16;
const TWICE: u8 = 32;

/// The kinds of entries of an inode that are made here.
const DIRENT: u8 = 4;
const XATTR: u8 = 5;

/// The entries of both trees, being changed.
pub struct Edits {
    trees: [Vec<Entry>; 2],
    hash_key: [u8; 16],
}

/// A key of these three.
pub fn key(object: u64, kind: u8, index: u64) -> [u8; KEY] {
    let mut key = [kind; KEY];
    key[..8].copy_from_slice(&object.to_be_bytes());
    key[9..].copy_from_slice(&index.to_be_bytes());
    key
}

fn object(key: &[u8; KEY]) -> u64 {
    key[..8].iter().fold(0, |object, byte| object << 8 | u64::from(*byte))
}

impl Edits {
    /// None so far.
    pub fn new(arena: &Arena) -> Edits {
        let trees = [0, 1].map(|tree| pages::entries(arena, tree));
        let uuid = arena.base().get(0, 16, 16).and_then(|uuid| uuid.try_into().ok());
        Edits { trees, hash_key: uuid.unwrap_or_default() }
    }

    /// Reads one more, and makes it.
    pub fn read(&mut self, input: &mut Input<'_>) {
        let what = input.byte();
        let tree = usize::from(what & FREE_SPACE != 0);
        match what & 7 {
            0 => {
                if let Some(at) = self.entry(tree, input) {
                    self.trees[tree].remove(at);
                }
            }
            1..=3 => self.change_value(tree, what & 7, input),
            4 => self.name(what, input),
            5 => self.attribute(input),
            6 => self.any(tree, what, input),
            _ => {
                let at = self.entry(tree, input);
                let key = key(input.number(8), input.byte(), input.number(8));
                if let Some(at) = at {
                    self.trees[tree][at].0 = key;
                }
            }
        }
    }

    fn entry(&self, tree: usize, input: &mut Input<'_>) -> Option<usize> {
        usize::from(input.byte()).checked_rem(self.trees[tree].len())
    }

    /// The number of an inode that is there; the root's where there is none.
    fn inode(&self, input: &mut Input<'_>) -> u64 {
        let stored = self.trees[0].iter().filter(|(key, _)| object(key) > 0 && key[8] == 1);
        let inodes: Vec<u64> = stored.map(|(key, _)| object(key)).collect();
        let at = usize::from(input.byte()).checked_rem(inodes.len());
        at.map_or(1, |at| inodes[at])
    }

    fn change_value(&mut self, tree: usize, what: u8, input: &mut Input<'_>) {
        let Some(entry) = self.entry(tree, input) else { return };
        let value = &mut self.trees[tree][entry].1;
        let number = input.number(2) as usize;
        if what == 3 {
            return value.resize(number % (VALUE_BYTES_MAX + 8), 0xA5);
        }
        let len = if what == 1 { usize::from(input.byte()) } else { 8 };
        let bytes = input.take(len);
        let at = number.checked_rem(value.len()).unwrap_or(0);
        for (place, byte) in value[at..].iter_mut().zip(bytes) {
            *place = *byte;
        }
    }

    fn name(&mut self, what: u8, input: &mut Input<'_>) {
        let (dir, ino) = (self.inode(input), self.inode(input));
        let (kind, hash, len) = (input.byte(), input.byte(), input.byte());
        let name = input.take(len.into());
        let mut hasher = SipHasher13::new_with_key(&self.hash_key);
        hasher.write(name);
        let cookie = (hasher.finish() >> 10).max(1) << 8 | u64::from(hash);
        let cookie = if what & RAW_KEY == 0 { cookie } else { hash.into() };
        let value = [&ino.to_le_bytes()[..], &[kind], name].concat();
        self.put(0, key(dir, DIRENT, cookie), value);
        if what & TWICE != 0 {
            self.count_name(dir, ino, kind);
        }
    }

    /// The counts that go with one more name.
    fn count_name(&mut self, dir: u64, ino: u64, kind: u8) {
        let mut add = |object: u64, at: usize| {
            let entry = self.trees[0].iter_mut().find(|(k, _)| *k == key(object, 1, 0));
            if let Some(byte) = entry.and_then(|(_, value)| value.get_mut(at)) {
                *byte = byte.wrapping_add(1);
            }
        };
        add(dir, 24);
        add(ino, 4);
        if kind == fs::FileKind::Directory as u8 {
            add(dir, 4);
        }
    }

    fn attribute(&mut self, input: &mut Input<'_>) {
        let (ino, number, len) = (self.inode(input), input.byte(), input.byte());
        let name = input.take(len.into());
        let len = input.number(2) as usize;
        self.put_attribute(ino, number.into(), name, input.take(len));
    }

    /// Puts an attribute, in parts.
    pub fn put_attribute(&mut self, ino: u64, number: u64, name: &[u8], value: &[u8]) {
        let len = (value.len() as u32).to_le_bytes();
        let whole = [&[name.len() as u8], name, &len, value].concat();
        for (part, bytes) in (0..).zip(whole.chunks(PART_BYTES)) {
            self.put(0, key(ino, XATTR, number << 8 | part), bytes.to_vec());
        }
    }

    fn any(&mut self, tree: usize, what: u8, input: &mut Input<'_>) {
        let object = if what & RAW_KEY == 0 { self.inode(input) } else { input.number(8) };
        let key = key(object, input.byte(), input.number(8));
        let len = input.number(2) as usize;
        let value = input.take(len.min(VALUE_BYTES_MAX + 8)).to_vec();
        self.put(tree, key, value);
    }

    fn put(&mut self, tree: usize, key: [u8; KEY], value: Vec<u8>) {
        let entries = &mut self.trees[tree];
        entries.retain(|(other, _)| *other != key);
        if entries.len() < ENTRIES_MAX {
            entries.push((key, value));
        }
    }

    /// Makes trees of what the entries are now, in their order unless `as_they_are`.
    pub fn put_trees(mut self, arena: &mut Arena, as_they_are: bool) {
        let (mut free, mut root) = (FreeBlocks::of(arena), pages::root(arena));
        for (tree, entries) in self.trees.iter_mut().enumerate() {
            if !as_they_are {
                entries.sort();
                entries.dedup_by_key(|(key, _)| *key);
            }
            pages::put_tree(arena, &mut free, (&mut root, tree), entries);
        }
        let at = arena.root_at();
        arena.put_root(at, &root);
    }
}
