//! Pages of a tree, in memory of their own: read in every way, and changed.
//!
//! ```text
//! how u8, pages u8, the pages, then changes: object u8, index u8, length u8 (255: a deletion)
//! a page   what u8, entries u8, the entries; if what & 8: at u16, u16: other bytes there
//! an entry what u8, then its key: object u8, index u8 (of an inner page: child u8, whose first key
//!          it is), or if what & 1: 17 bytes; its value: length u8, or if what & 2: length u16,
//!          bytes (of an inner page: a pointer to the child, whatever its key)
//! ```
//!
//! The lower two bits of a page's `what` are its level; with bit 4 its entries are in the order of
//! the bytes. Children come before parents; the last page is the topmost one. Bits of `how`: 1 the
//! root says `height u8, entries u64`, which follow the pages; 2 a range goes, with the first and
//! the last change's key as its ends.

use super::input::Input;
use super::pages;
use crate::image::BLOCK;
use crate::page::{Entry, KEY};
use pool::BlockAddr;
use pool::tree::{
    Change, Key, PAGE_BYTES, PagePtr, PageRead, PageStore, Root, TreeError, apply, get, scan, walk,
    walk_pointers,
};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of one run at most.
const PAGES_MAX: u8 = 32;
/// Keys that are looked up in one run at most.
const LOOKED_UP_MAX: usize = 40;

const OWN_ROOT: u8 = 1;
const RANGE: u8 = 2;
const UNSORTED: u8 = 4;
const OVERRIDE: u8 = 8;
const RAW_KEY: u8 = 1;
const RAW_VALUE: u8 = 2;
const DELETION: u8 = 255;

/// Pages, by their blocks' numbers from 1.
#[derive(Default)]
struct Store {
    pages: Vec<[u8; PAGE_BYTES]>,
    freed: BTreeSet<u64>,
}

/// What the parent of a page has to know.
struct Made {
    first: [u8; KEY],
    level: u8,
    /// Entries in the leaves below.
    entries: u64,
}

impl PageRead for Store {
    fn read_page(&self, ptr: &PagePtr, page: &mut [u8; PAGE_BYTES]) -> Result<(), TreeError> {
        let index = (ptr.addr.bits() as usize).wrapping_sub(1);
        let Some(stored) = self.pages.get(index) else {
            return Err(TreeError::Damaged { addr: ptr.addr, what: "no such block" });
        };
        if pmem::crc32c(0, stored) != ptr.crc {
            return Err(TreeError::Damaged { addr: ptr.addr, what: "checksum" });
        }
        page.copy_from_slice(stored);
        Ok(())
    }
}

impl PageStore for Store {
    fn write_page(&mut self, page: &[u8; PAGE_BYTES]) -> Result<PagePtr, TreeError> {
        self.pages.push(*page);
        let addr = BlockAddr::new(0, self.pages.len() as u64);
        Ok(PagePtr { addr, copy: BlockAddr::NONE, crc: pmem::crc32c(0, page) })
    }

    fn free_page(&mut self, ptr: &PagePtr) {
        self.freed.insert(ptr.addr.bits());
    }
}

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let (how, count) = (input.byte(), input.byte() % PAGES_MAX);
    let (mut store, mut made) = (Store::default(), Vec::new());
    for _ in 0..count {
        let page = read_page(&mut input, &store, &mut made);
        store.pages.push(page);
    }
    let Some(root) = read_root(&mut input, how, &store, &made) else { return false };
    let content = read(&store, &root);
    let sound = content.is_some();
    let changes = read_changes(&mut input, how);
    change(&mut store, &root, &changes, content);
    sound
}

fn read_page(input: &mut Input<'_>, store: &Store, made: &mut Vec<Made>) -> [u8; PAGE_BYTES] {
    let (what, count) = (input.byte(), input.byte());
    let level = what & 3;
    let mut list: Vec<Entry> = Vec::new();
    let mut entries = 0;
    for _ in 0..count {
        if input.is_empty() {
            break;
        }
        let (entry, below) = read_entry(input, level, store, made);
        let trial = [&list[..], std::slice::from_ref(&entry)].concat();
        if entry.1.len() <= BLOCK / 2 && pages::packed(&trial).len() == 1 {
            list = trial;
            entries += below;
        }
    }
    if what & UNSORTED == 0 {
        list.sort();
        list.dedup_by_key(|(key, _)| *key);
    }
    if level == 0 {
        entries = list.len() as u64;
    }
    let mut page = pages::page(level, &list);
    if what & OVERRIDE != 0 {
        let (at, bytes) = (input.number(2) as usize % (BLOCK - 1), input.take(2));
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let first = list.first().map_or([0; KEY], |(key, _)| *key);
    made.push(Made { first, level, entries });
    page
}

/// An entry, with the entries below it.
fn read_entry(input: &mut Input<'_>, level: u8, store: &Store, made: &[Made]) -> (Entry, u64) {
    let what = input.byte();
    let child = (level > 0).then(|| usize::from(input.byte()).checked_rem(made.len())).flatten();
    let key = if what & RAW_KEY != 0 {
        let mut key = [0; KEY];
        let bytes = input.take(KEY);
        key[..bytes.len()].copy_from_slice(bytes);
        key
    } else if let Some(child) = child {
        made[child].first
    } else {
        short_key(input).encode()
    };
    let value = match child {
        Some(child) if what & RAW_VALUE == 0 => {
            pages::pointer(child as u64 + 1, 0, &store.pages[child]).to_vec()
        }
        _ if what & RAW_VALUE != 0 => {
            let len = input.number(2) as usize;
            input.take(len).to_vec()
        }
        _ => vec![what; 6 * usize::from(input.byte())],
    };
    ((key, value), child.map_or(1, |child| made[child].entries))
}

fn short_key(input: &mut Input<'_>) -> Key {
    Key::new(input.byte().into(), 1, input.byte().into())
}

fn read_root(input: &mut Input<'_>, how: u8, store: &Store, made: &[Made]) -> Option<Root> {
    let (page, top) = (store.pages.last()?, made.last()?);
    let mut bytes = [0; 32];
    bytes[..20].copy_from_slice(&pages::pointer(store.pages.len() as u64, 0, page));
    bytes[20] = top.level + 1;
    bytes[24..].copy_from_slice(&top.entries.to_le_bytes());
    if how & OWN_ROOT != 0 {
        bytes[20] = input.byte();
        bytes[24..].copy_from_slice(&input.number(8).to_le_bytes());
    }
    let root = Root::decode(&bytes).ok()?;
    assert_eq!(root.encode(), bytes, "a root is not what it was decoded from");
    Some(root)
}

type Content = BTreeMap<Key, Vec<u8>>;

/// Reads the tree in every way; gives what a sound one holds.
fn read(store: &Store, root: &Root) -> Option<Content> {
    let mut pages = BTreeSet::new();
    let sound = walk(store, root, &mut |ptr, _| {
        assert!(pages.insert(ptr.addr.bits()), "a page is met twice");
        Ok(())
    });
    let mut pointed = BTreeSet::new();
    let by_pointers = walk_pointers(store, root, &mut |ptr, _| {
        pointed.insert(ptr.addr.bits());
        Ok(())
    });
    let mut content = Content::new();
    let scanned = scan(store, root, Key::MIN, Key::MAX, |key, value| {
        let last = content.last_key_value().map(|(key, _)| *key);
        assert!(last.is_none_or(|last| last < key), "keys do not ascend: {last:?}, {key:?}");
        content.insert(key, value.to_vec());
        Ok(true)
    });
    let in_sound = sound.is_ok();
    for (key, value) in content.iter().take(LOOKED_UP_MAX) {
        let near = Key { index: key.index ^ 1, ..*key };
        let [found, other] = [key, &near].map(|key| get(store, root, key));
        if in_sound {
            assert_eq!(found.ok().flatten().as_ref(), Some(value), "{key:?}");
            assert_eq!(other.ok().flatten().as_ref(), content.get(&near), "{near:?}");
        }
    }
    if let Err(error) = sound {
        assert!(error.to_string().len() > 8 && error.errno() == libc::EIO, "{error}");
        return None;
    }
    assert!(by_pointers.is_ok() && scanned.is_ok(), "{by_pointers:?}, {scanned:?}");
    assert_eq!(pages, pointed);
    // no range covers the highest key
    let highest = get(store, root, &Key::MAX).ok().flatten();
    content.extend(highest.map(|value| (Key::MAX, value)));
    assert_eq!(content.len() as u64, root.entries);
    Some(content)
}

/// Changes of keys, and ranges of keys that go.
type Changes = (Vec<(Key, Change)>, Vec<(Key, Key)>);

fn read_changes(input: &mut Input<'_>, how: u8) -> Changes {
    let mut changes = BTreeMap::new();
    while !input.is_empty() {
        let (key, len) = (short_key(input), input.byte());
        let put = Change::Put(vec![len; 6 * usize::from(len)]);
        changes.insert(key, if len == DELETION { Change::Delete } else { put });
    }
    let changes: Vec<(Key, Change)> = changes.into_iter().collect();
    let ends = (changes.first(), changes.last());
    match ends {
        (Some((from, _)), Some((to, _))) if how & RANGE != 0 => {
            let range = (*from, *to);
            (changes[..1].to_vec(), vec![range])
        }
        _ => (changes, Vec::new()),
    }
}

/// Changes the tree, and compares a sound one with `content`, changed alike.
fn change(store: &mut Store, root: &Root, (changes, ranges): &Changes, content: Option<Content>) {
    let before = store.pages.len() as u64;
    let mut removed = Vec::new();
    let done = apply(store, root, changes, ranges, &mut |key, old, _| {
        removed.push((key, old.to_vec()));
    });
    let written: BTreeSet<u64> = (before + 1..=store.pages.len() as u64).collect();
    let Ok(after) = done else {
        assert!(content.is_none(), "a sound tree cannot be changed: {done:?}");
        assert_eq!(store.freed, written, "a change that failed leaves pages behind");
        return;
    };
    let Some(mut content) = content else { return };
    let gone = |key: &Key| {
        let changed = changes.iter().any(|(changed, _)| changed == key);
        changed || ranges.iter().any(|(from, to)| from <= key && key < to)
    };
    let dropped = content.iter().filter(|(key, _)| gone(key));
    assert!(dropped.eq(removed.iter().map(|(key, value)| (key, value))), "{removed:?}");
    content.retain(|key, _| !gone(key));
    for (key, change) in changes {
        if let Change::Put(value) = change {
            content.insert(*key, value.clone());
        }
    }
    assert_eq!(read(store, &after), Some(content), "a change did something else");
    let reached = |root: &Root| {
        let mut pages = BTreeSet::new();
        let walked = walk_pointers(store, root, &mut |ptr, _| {
            pages.insert(ptr.addr.bits());
            Ok(())
        });
        walked.map(|()| pages).unwrap_or_default()
    };
    let (old, new) = (reached(root), reached(&after));
    assert!(old.difference(&new).eq(&store.freed), "not what the old tree alone had is free");
}

/// Trees of one page, and of several on up to three levels.
pub fn seeds() -> Vec<Vec<u8>> {
    let leaf = |object: u8, count: u8, len: u8| -> Vec<u8> {
        let entries = (0..count).flat_map(|index| [0, object, index, len]);
        [0, count].into_iter().chain(entries).collect()
    };
    let inner = |level: u8, children: std::ops::Range<u8>| -> Vec<u8> {
        let entries = children.clone().flat_map(|child| [0, child]);
        [level, children.len() as u8].into_iter().chain(entries).collect()
    };
    let changes = [0, 1, 3, 1, 200, 40, 2, 0, DELETION, 3, 1, 255];
    let mut seeds = Vec::new();
    for how in [0, RANGE] {
        let small = leaf(1, 6, 2);
        let wide: Vec<u8> =
            (0..5).flat_map(|object| leaf(object, 20, 30)).chain(inner(1, 0..5)).collect();
        let high: Vec<u8> = (0..4)
            .flat_map(|object| leaf(object, 9, 60))
            .chain(inner(1, 0..2))
            .chain(inner(1, 2..4))
            .chain(inner(2, 4..6))
            .collect();
        for (count, tree) in [(1, &small), (6, &wide), (7, &high)] {
            seeds.push([&[how, count][..], tree].concat());
            seeds.push([&[how, count][..], tree, &changes].concat());
        }
        let own_root = [1, 6, 0, 0, 0, 0, 0, 0, 0];
        seeds.push([&[how | OWN_ROOT, 1][..], &small, &own_root, &changes].concat());
    }
    // other bytes in a header, children in another order, of another level, of another address
    seeds.push([&[0, 1, OVERRIDE, 2, 0, 1, 1, 1, 0, 1, 2, 1][..], &[8, 0, 60, 0]].concat());
    let two = [&[0, 3][..], &leaf(1, 6, 2), &leaf(2, 6, 2)].concat();
    let raw = [&[RAW_VALUE, 0, 20, 0][..], &[1; 20]].concat();
    for top in [&[1 | UNSORTED, 2, 0, 1, 0, 0][..], &[2, 2, 0, 0, 0, 1], &[1, 1], &[0; 2]] {
        seeds.push([&two[..], top, &raw[..if top == [1, 1] { 24 } else { 0 }]].concat());
    }
    seeds
}
