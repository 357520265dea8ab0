//! Entries of a directory.
//!
//! An entry's key in the tree is its cookie: 54 bits of a keyed hash of the name, then 8 bits that
//! tell names with the same hash apart. So a cookie never changes while the name is there, and
//! `readdir` can go on from it whatever was inserted or folded.
//!
//! What DRAM has of them is in `entries.rs`; here it is looked up, and loaded from the tree.

use crate::bytes::Bytes;
use crate::core::Core;
use crate::entries::Dir;
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::keys;
use crate::short_name::ShortName;
use crate::types::{DirEntry, FileKind, Ino};
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::RangeInclusive;

/// Entries read from the tree at once.
const BATCH: usize = 256;

/// A cookie above all others: they have 62 bits.
const COOKIE_MAX: u64 = 1 << 62;

/// Entries that are loaded, all at once, in the time of one look-up in the tree.
const MISS_ENTRIES: u64 = 8;

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dirent {
    /// The inode.
    pub ino: Ino,
    /// What the inode is.
    pub kind: FileKind,
    /// The name.
    pub name: ShortName,
}

impl Dirent {
    /// As a value of the tree: `ino u64, kind u8, name`.
    pub fn encode(&self) -> Vec<u8> {
        [&self.encode_head()[..], self.name.bytes()].concat()
    }

    /// What comes before the name in a value of the tree.
    pub fn encode_head(&self) -> [u8; 9] {
        let [a, b, c, d, e, f, g, h] = self.ino.0.to_le_bytes();
        [a, b, c, d, e, f, g, h, self.kind as u8]
    }

    /// The entry that a value says, if it makes sense.
    pub fn decode(value: &[u8]) -> Option<Dirent> {
        let mut bytes = Bytes(value);
        let ino = Ino(bytes.u64()?);
        let kind = FileKind::from_code(bytes.u8()?)?;
        let name = bytes.0;
        let fine = !name.is_empty() && name.len() <= crate::types::NAME_BYTES_MAX;
        (fine && !name.contains(&b'/') && !name.contains(&0)).then(|| Dirent {
            ino,
            kind,
            name: ShortName::new(name),
        })
    }
}

/// A name, with the first cookie of its hash.
#[derive(Clone, Copy, Debug)]
pub struct Name<'n> {
    /// The name.
    pub bytes: &'n [u8],
    base: u64,
}

/// First cookie of names with this name's hash; never 0 to 255.
pub fn cookie_base(hash_key: &[u8; 16], name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(hash_key);
    hasher.write(name);
    let hash = hasher.finish() >> 10;
    hash.max(1) << 8
}

impl Core {
    /// The name, hashed: once in an operation.
    #[inline]
    pub fn name<'n>(&self, bytes: &'n [u8]) -> Name<'n> {
        Name { bytes, base: cookie_base(&self.hash_key, bytes) }
    }

    /// Cookie and inode of the entry `name`, if DRAM has it or knows that there is none:
    /// `Some(found)`.
    #[inline]
    pub fn find_cached(&self, meta: &Meta, name: Name<'_>) -> Option<Option<(u64, Ino)>> {
        let Some(dir) = &meta.dir else { return Some(None) };
        let found = dir.find(name.base, name.bytes);
        if found.is_some() || dir.complete() { Some(found) } else { None }
    }

    /// Cookie and inode of the entry `name`, loaded if need be.
    #[inline]
    pub fn find(&self, dir: &Inode, meta: &mut Meta, name: Name<'_>) -> Result<Option<(u64, Ino)>> {
        match self.find_cached(meta, name) {
            Some(found) => Ok(found),
            None => self.find_stored(dir, meta, name),
        }
    }

    #[cold]
    fn find_stored(
        &self,
        dir: &Inode,
        meta: &mut Meta,
        name: Name<'_>,
    ) -> Result<Option<(u64, Ino)>> {
        let Meta { dir: Some(own), .. } = meta else { return Ok(None) };
        let entries = Self::entries(dir);
        let room = self.dirents.sum().saturating_add(entries) <= self.dirents_max;
        let often = u64::from(own.missed()).saturating_mul(MISS_ENTRIES) >= entries;
        // who looked up a part of the names one by one is likely to want the others, too: then
        // all of them come at once, at a cost that is no more than what those look-ups took
        if room && often {
            // what fails here, fails below for the names that it concerns
            let whole = self.load_range(dir, own, 0..=COOKIE_MAX, entries).unwrap_or(false);
            own.loaded_all(whole);
            if whole {
                return Ok(own.find(name.base, name.bytes));
            }
        }
        self.load_range(dir, own, name.base..=name.base | 255, 256)?;
        Ok(own.find(name.base, name.bytes))
    }

    /// A cookie for a new entry `name`, which `find` did not find under this lock: it has loaded
    /// all entries with the same hash.
    #[inline]
    pub fn free_cookie(&self, meta: &Meta, name: Name<'_>) -> Result<u64> {
        let free = meta.dir.as_ref().and_then(|dir| dir.free_cookie(name.base));
        free.ok_or(Error::NoSpace)
    }

    /// Takes the tree's entries with these cookies into DRAM, where they are not already. False
    /// if there are more than `entries_max`: the rest is left.
    fn load_range(
        &self,
        dir: &Inode,
        own: &mut Dir,
        cookies: RangeInclusive<u64>,
        entries_max: u64,
    ) -> Result<bool> {
        let from = keys::key(dir.ino, keys::DIRENT, *cookies.start());
        let to = keys::key(dir.ino, keys::DIRENT, cookies.end() + 1);
        let slots_max = own.slots().saturating_add(entries_max);
        let (mut damaged, mut whole) = (None, true);
        let scanned = self.pool.scan(keys::home(dir.ino), from, to, &mut |key, value| {
            match Dirent::decode(value) {
                Some(entry) => own.load(key.index, entry),
                // what DRAM knows of it is newer
                None => damaged = (!own.knows(key.index)).then_some(key),
            }
            whole = own.slots() <= slots_max;
            damaged.is_none() && whole
        });
        self.count_entries(dir.ino, own);
        scanned?;
        damaged.map_or(Ok(whole), |key| Err(crate::core::damaged_value(&key)))
    }

    /// Takes the entries of a directory into the account of DRAM.
    pub fn count_entries(&self, dir: Ino, own: &mut Dir) {
        let now = own.slots();
        let before = std::mem::replace(&mut own.counted, now);
        self.dirents.add(keys::home(dir), now.wrapping_sub(before));
    }

    /// Lets go of all entries that are as the tree has them. The gate is closed, and what the last
    /// complete checkpoint folded is taken note of.
    pub fn evict_entries(&self) {
        self.retain_inodes(&mut |inode| {
            if inode.kind == FileKind::Directory
                && let Some(dir) = &mut inode.meta.write().dir
            {
                dir.let_go();
                self.count_entries(inode.ino, dir);
            }
            true
        });
    }

    /// Calls `each` for the entries after `cookie` until it returns false.
    pub fn list(
        &self,
        dir: &Inode,
        mut cookie: u64,
        each: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        // cookies have 62 bits
        while cookie < u64::MAX {
            let (batch, more) = self.list_batch(dir, cookie)?;
            for entry in &batch {
                if !each(entry) {
                    return Ok(());
                }
            }
            match more {
                Some(last) => cookie = last,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Some entries after `cookie`, and the cookie to go on after, if there may be more.
    fn list_batch(&self, dir: &Inode, cookie: u64) -> Result<(Vec<DirEntry>, Option<u64>)> {
        let meta = dir.meta.read();
        let mut found: BTreeMap<u64, Dirent> = BTreeMap::new();
        let mut upper = u64::MAX;
        let Some(dir_entries) = &meta.dir else { return Ok((Vec::new(), None)) };
        if !dir_entries.complete() {
            let (from, to) = keys::from_index(dir.ino, keys::DIRENT, cookie + 1);
            let mut damaged = None;
            self.pool.scan(keys::home(dir.ino), from, to, &mut |key, value| {
                match Dirent::decode(value) {
                    Some(entry) => {
                        found.insert(key.index, entry);
                    }
                    None => damaged = (!dir_entries.knows(key.index)).then_some(key),
                }
                let full = found.len() >= BATCH;
                if full {
                    upper = key.index;
                }
                damaged.is_none() && !full
            })?;
            if let Some(key) = damaged {
                return Err(crate::core::damaged_value(&key));
            }
        }
        for (taken, (own, entry)) in dir_entries.range(cookie, upper).enumerate() {
            if taken == BATCH {
                upper = own - 1;
                found.split_off(&own);
                break;
            }
            match entry {
                Some(entry) => found.insert(own, entry.clone()),
                None => found.remove(&own),
            };
        }
        let entry = |(cookie, entry): (u64, Dirent)| DirEntry {
            name: entry.name.bytes().to_vec(),
            ino: entry.ino,
            kind: entry.kind,
            cookie,
        };
        let more = (upper != u64::MAX).then_some(upper);
        Ok((found.into_iter().map(entry).collect(), more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_round_trips_and_impossible_names_are_refused() {
        let entry = Dirent { ino: Ino(512), kind: FileKind::File, name: ShortName::new(b"name") };
        assert_eq!(Dirent::decode(&entry.encode()), Some(entry.clone()));
        for name in [&b"a/b"[..], b"", b"a\0"] {
            let entry = Dirent { name: ShortName::new(name), ..entry.clone() };
            assert_eq!(Dirent::decode(&entry.encode()), None);
        }
    }

    #[test]
    fn cookies_leave_room_for_the_kernel_and_for_dot_and_dotdot() {
        for i in 0..1000u32 {
            let cookie = cookie_base(&[7; 16], &i.to_le_bytes());
            assert!((256..1 << 62).contains(&cookie) && cookie.is_multiple_of(256));
        }
    }
}
