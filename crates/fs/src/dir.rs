//! Entries of a directory.
//!
//! An entry's key in the tree is its cookie: 54 bits of a keyed hash of the name, then 8 bits that
//! tell names with the same hash apart. So a cookie never changes while the name is there, and
//! `readdir` can go on from it whatever was inserted or folded.
//!
//! In DRAM: entries that were looked at or changed. An entry that was deleted stays as absent until
//! the checkpoint that deletes it from the tree is complete.

use crate::bytes::Bytes;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::keys;
use crate::types::{DirEntry, FileKind, Ino};
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;

/// Entries read from the tree at once.
const BATCH: usize = 256;

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dirent {
    /// The inode.
    pub ino: Ino,
    /// What the inode is.
    pub kind: FileKind,
    /// The name.
    pub name: Box<[u8]>,
}

impl Dirent {
    /// As a value of the tree: `ino u64, kind u8, name`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(9 + self.name.len());
        out.extend_from_slice(&self.ino.0.to_le_bytes());
        out.push(self.kind as u8);
        out.extend_from_slice(&self.name);
        out
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
            name: name.into(),
        })
    }
}

/// Entries of one directory in DRAM.
#[derive(Debug)]
pub struct Dir {
    /// By cookie; `None`: deleted, but perhaps still in the tree.
    pub entries: BTreeMap<u64, Option<Dirent>>,
    /// The tree has no entry that is not here.
    pub complete: bool,
    /// Cookies that changed since the last cut.
    pub changed: Vec<u64>,
}

impl Dir {
    /// An empty directory, or one whose entries are in the tree.
    pub fn new(complete: bool) -> Dir {
        Dir { entries: BTreeMap::new(), complete, changed: Vec::new() }
    }

    /// The entry is now this.
    pub fn set(&mut self, cookie: u64, entry: Option<Dirent>) {
        self.entries.insert(cookie, entry);
        self.changed.push(cookie);
    }

    fn find(&self, base: u64, name: &[u8]) -> Option<(u64, Dirent)> {
        self.entries.range(base..=base | 255).find_map(|(cookie, entry)| {
            let entry = entry.as_ref().filter(|entry| &*entry.name == name)?;
            Some((*cookie, entry.clone()))
        })
    }
}

/// First cookie of names with this name's hash; never 0 to 255.
pub fn cookie_base(hash_key: &[u8; 16], name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(hash_key);
    hasher.write(name);
    let hash = hasher.finish() >> 10;
    hash.max(1) << 8
}

impl Core {
    /// The entry `name`, if it is in DRAM or known not to be: `Some(found)`.
    pub fn find_cached(&self, meta: &Meta, name: &[u8]) -> Option<Option<(u64, Dirent)>> {
        let found = meta.dir.find(cookie_base(&self.hash_key, name), name);
        if found.is_some() || meta.dir.complete { Some(found) } else { None }
    }

    /// The entry `name` with its cookie, loaded if need be.
    pub fn find(&self, dir: &Inode, meta: &mut Meta, name: &[u8]) -> Result<Option<(u64, Dirent)>> {
        if let Some(found) = self.find_cached(meta, name) {
            return Ok(found);
        }
        let base = cookie_base(&self.hash_key, name);
        self.load_range(dir, meta, base, base | 255)?;
        Ok(meta.dir.find(base, name))
    }

    /// A cookie for a new entry `name`, which `find` did not find under this lock: it has loaded
    /// all entries with the same hash.
    pub fn free_cookie(&self, meta: &Meta, name: &[u8]) -> Result<u64> {
        let base = cookie_base(&self.hash_key, name);
        (base..=base | 255)
            .find(|cookie| !matches!(meta.dir.entries.get(cookie), Some(Some(_))))
            .ok_or(Error::NoSpace)
    }

    /// Takes the tree's entries from `first` to `last` into DRAM, where they are not already.
    fn load_range(&self, dir: &Inode, meta: &mut Meta, first: u64, last: u64) -> Result<()> {
        let from = keys::key(dir.ino, keys::DIRENT, first);
        let to = keys::key(dir.ino, keys::DIRENT, last + 1);
        let mut damaged = None;
        self.pool.scan(keys::home(dir.ino), from, to, &mut |key, value| {
            match Dirent::decode(value) {
                Some(entry) => {
                    meta.dir.entries.entry(key.index).or_insert(Some(entry));
                }
                None => damaged = Some(key),
            }
            damaged.is_none()
        })?;
        damaged.map_or(Ok(()), |key| Err(crate::core::damaged_value(&key)))
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
        if !meta.dir.complete {
            let (from, to) = keys::from_index(dir.ino, keys::DIRENT, cookie + 1);
            let mut damaged = None;
            self.pool.scan(keys::home(dir.ino), from, to, &mut |key, value| {
                match Dirent::decode(value) {
                    Some(entry) => {
                        found.insert(key.index, entry);
                    }
                    None => damaged = Some(key),
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
        let cached = meta.dir.entries.range(cookie + 1..=upper);
        for (taken, (own, entry)) in cached.enumerate() {
            if taken == BATCH {
                upper = own - 1;
                found.split_off(own);
                break;
            }
            match entry {
                Some(entry) => found.insert(*own, entry.clone()),
                None => found.remove(own),
            };
        }
        let entry = |(cookie, entry): (u64, Dirent)| DirEntry {
            name: entry.name.into_vec(),
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
        let entry = Dirent { ino: Ino(512), kind: FileKind::File, name: (*b"name").into() };
        assert_eq!(Dirent::decode(&entry.encode()), Some(entry.clone()));
        for name in [&b"a/b"[..], b"", b"a\0"] {
            let entry = Dirent { name: name.into(), ..entry.clone() };
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
