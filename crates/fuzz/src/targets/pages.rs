//! Trees made of entries, in place of the base's.

use super::arena::Arena;
use crate::image::{BLOCK, ROOT, ROOT_TREES};
use crate::page::Entry;

/// Bytes of a page that entries may take.
const ENTRY_SPACE: usize = BLOCK - 32;
/// Bytes of an entry besides its value.
const SLOT: usize = 19;
/// Longest value.
pub const VALUE_BYTES_MAX: usize = 1600;

/// A page of these entries, which fit.
pub fn page(level: u8, entries: &[Entry]) -> [u8; BLOCK] {
    let mut page = [0; BLOCK];
    page[..4].copy_from_slice(b"NSTP");
    (page[4], page[5]) = (1, level);
    page[6..8].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    let mut end = 32 + SLOT * entries.len();
    for (i, (key, value)) in entries.iter().enumerate() {
        page[end..end + value.len()].copy_from_slice(value);
        end += value.len();
        let slot = &mut page[32 + SLOT * i..][..SLOT];
        slot[..17].copy_from_slice(key);
        slot[17..].copy_from_slice(&(end as u16).to_le_bytes());
    }
    page[8..10].copy_from_slice(&(end as u16).to_le_bytes());
    page
}

/// A pointer to the page in this block of slice 0.
pub fn pointer(block: u64, copy: u64, page: &[u8]) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&copy.to_le_bytes());
    bytes[16..].copy_from_slice(&pmem::crc32c(0, page).to_le_bytes());
    bytes
}

/// Entries divided among pages, each of which holds all that fit.
pub fn packed(entries: &[Entry]) -> Vec<&[Entry]> {
    let mut pages = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (i, (_, value)) in entries.iter().enumerate() {
        if used + SLOT + value.len() > ENTRY_SPACE {
            pages.push(&entries[start..i]);
            (start, used) = (i, 0);
        }
        used += SLOT + value.len();
    }
    pages.push(&entries[start..]);
    pages
}

/// Blocks that the base does not use, from its end on.
pub struct FreeBlocks(u64);

impl FreeBlocks {
    /// Those of the base.
    pub fn of(arena: &Arena) -> FreeBlocks {
        FreeBlocks(arena.base().number(0, 56, 8) - 1)
    }

    fn take(&mut self) -> u64 {
        self.0 -= 1;
        self.0
    }
}

/// Makes these entries, 100 pages of them at most, the base's tree of this number (0 what the file
/// system stores, 1 free space) in `root`, the bytes of one.
pub fn put_tree(
    arena: &mut Arena,
    free: &mut FreeBlocks,
    (root, tree): (&mut [u8], usize),
    entries: &[Entry],
) {
    let mut put = |page: &[u8; BLOCK]| {
        let (first, second) = (free.take(), free.take());
        arena.put(first as usize * BLOCK, page);
        arena.put(second as usize * BLOCK, page);
        pointer(first, second, page)
    };
    let (mut level, mut top) = (0, entries.to_vec());
    while let pages = packed(&top)
        && pages.len() > 1
    {
        let above = |entries: &&[Entry]| (entries[0].0, put(&page(level, entries)).to_vec());
        top = pages.iter().map(above).collect();
        level += 1;
    }
    let place = &mut root[ROOT_TREES[tree]..][..32];
    place.fill(0);
    if !top.is_empty() {
        place[..20].copy_from_slice(&put(&page(level, &top)));
        place[20] = level + 1;
        place[24..].copy_from_slice(&(entries.len() as u64).to_le_bytes());
    }
}

/// The bytes of the base's root.
pub fn root(arena: &Arena) -> Vec<u8> {
    arena.base().get(0, arena.root_at(), ROOT).unwrap_or_default().to_vec()
}

/// The entries of a tree of the base, which has one page.
pub fn entries(arena: &Arena, tree: usize) -> Vec<Entry> {
    let base = arena.base();
    let place = base.get(0, arena.root_at() + ROOT_TREES[tree], 20);
    let place = place.and_then(|pointer| base.page_place(pointer));
    place.map(|(slice, at)| crate::page::entries(base, slice, at)).unwrap_or_default()
}
