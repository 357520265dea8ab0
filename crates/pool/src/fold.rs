//! Folding changes into the trees: the new pages of one generation, not yet its roots.
//!
//! Two trees a slice: the main one, and the free-space one that says which *data* blocks are used.
//! Which data blocks a fold takes and frees is read off the values themselves: what an old value
//! named is freed, what a new one names is used. Tree pages are in no bitmap (a walk over the inner
//! pages finds them at open), so that writing bitmaps changes no bitmap.

use crate::addr::BlockAddr;
use crate::bitmap::{GROUP_BLOCKS, GROUP_BYTES, GroupBits, bits_from_bytes, bits_to_bytes};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::space::Purpose;
use crate::tree::{
    self, Change, Key, PAGE_BYTES, PagePtr, PageRead, PageStore, Root, TreeError, Work,
};
use pmem::InFlight;
use std::collections::HashMap;

/// The kind of the free-space tree's keys.
const KIND_GROUP: u8 = 1;

/// Key of a group's bitmap in the free-space tree: of a group of the slice itself, or of a device.
pub(crate) fn group_key(addr: BlockAddr) -> Key {
    let object = addr.device().map_or(0, |_| u64::from(addr.slice()));
    Key::new(object, KIND_GROUP, addr.block() / GROUP_BLOCKS)
}

/// The first block of the group whose bitmap the free-space tree of slice `index` has under a key;
/// `None` if it has no such key.
pub fn group_of(pool: &Pool, index: usize, key: &Key) -> Option<BlockAddr> {
    let first = key.index.checked_mul(GROUP_BLOCKS).filter(|it| *it < BlockAddr::BLOCKS_MAX)?;
    let holder = match key.object {
        0 => index as u64,
        number => number,
    };
    let addr = BlockAddr::new(u8::try_from(holder).ok()?, first);
    let is_here = pool.space_of(addr).is_some() && pool.home_of(addr) == index;
    (is_here && *key == group_key(addr)).then_some(addr)
}

/// Changes to the main tree of one slice, in key order.
#[derive(Debug, Default)]
pub struct SliceBatch {
    /// Values put or deleted, keys strictly ascending.
    pub changes: Vec<(Key, Change)>,
    /// Ranges `[from, to)` deleted before that, ascending and disjoint.
    pub ranges: Vec<(Key, Key)>,
    /// Keys of the main tree, and of the free-space tree, whose pages are written anew; ascending.
    pub touched: [Vec<Key>; 2],
}

/// Tells which data blocks a value of the main tree names.
pub trait DataBlocks {
    /// Calls `each` for every data block that `value`, stored under `key`, names.
    fn data_blocks(&self, key: &Key, value: &[u8], each: &mut dyn FnMut(BlockAddr));
}

/// Where the pages of a fold go.
#[derive(Debug, Default)]
pub struct Pages {
    /// A fold that is only looked at keeps its pages here; `None` writes them to the slices.
    pub(crate) memory: Option<HashMap<u64, Box<[u8; PAGE_BYTES]>>>,
    /// Blocks of new pages and of their second copies.
    pub(crate) new: Vec<BlockAddr>,
    /// The same of pages that go.
    pub(crate) freed: Vec<BlockAddr>,
    /// Pages made and pages that go, whatever copies they have.
    pub(crate) more: u64,
    pub(crate) less: u64,
    pub(crate) in_flight: Option<InFlight>,
}

impl Pages {
    /// Pages of a fold that is only looked at.
    pub fn in_memory() -> Pages {
        Pages { memory: Some(HashMap::new()), ..Pages::default() }
    }
}

/// The pages of one slice's fold.
pub(crate) struct FoldPages<'f> {
    pub(crate) pool: &'f Pool,
    pub(crate) slice: u8,
    pub(crate) pages: &'f mut Pages,
}

impl PageRead for FoldPages<'_> {
    fn read_page(
        &self,
        ptr: &PagePtr,
        page: &mut [u8; PAGE_BYTES],
    ) -> std::result::Result<(), TreeError> {
        FoldView::new(self.pool, self.pages).read_page(ptr, page)
    }
}

impl FoldPages<'_> {
    fn allocate(&self) -> Option<BlockAddr> {
        self.allocate_from(usize::from(self.slice), Purpose::Checkpoint)
    }

    /// A block for a second copy: on another slice, where there is one. It takes nothing of what
    /// checkpoints are promised: in a pool that is all but full pages have no second copy.
    fn allocate_copy(&self, addr: BlockAddr) -> Option<BlockAddr> {
        self.allocate_from(usize::from(addr.slice()) + 1, Purpose::Data)
    }

    fn allocate_from(&self, first: usize, purpose: Purpose) -> Option<BlockAddr> {
        let slices = self.pool.slices.len();
        (0..slices).map(|step| (first + step) % slices).find_map(|slice| {
            let mut runs = Vec::with_capacity(1);
            self.pool.slices[slice].space.take(1, purpose, &mut runs);
            runs.first().map(|run| BlockAddr::new(slice as u8, run.first))
        })
    }

    /// Writes a page to a block that is new; gives its checksum.
    fn put(&mut self, addr: BlockAddr, page: &[u8; PAGE_BYTES]) -> u32 {
        self.pages.new.push(addr);
        self.pool.page_cache.forget(addr);
        let (written, crc) = self.pool.write_block(addr, page);
        let before = self.pages.in_flight.take().unwrap_or_else(InFlight::none);
        self.pages.in_flight = Some(before.and(written));
        crc
    }
}

impl PageStore for FoldPages<'_> {
    fn write_page(&mut self, page: &[u8; PAGE_BYTES]) -> std::result::Result<PagePtr, TreeError> {
        let addr = self.allocate().ok_or(TreeError::NoSpace)?;
        self.pages.more += 1;
        if let Some(memory) = &mut self.pages.memory {
            self.pages.new.push(addr);
            memory.insert(addr.bits(), Box::new(*page));
            return Ok(PagePtr { addr, copy: BlockAddr::NONE, crc: pmem::crc32c(0, page) });
        }
        let crc = self.put(addr, page);
        let copy = match self.pool.options().single_pages {
            true => BlockAddr::NONE,
            false => self.allocate_copy(addr).unwrap_or(BlockAddr::NONE),
        };
        if !copy.is_none() {
            self.put(copy, page);
        }
        Ok(PagePtr { addr, copy, crc })
    }

    fn free_page(&mut self, ptr: &PagePtr) {
        self.pages.less += 1;
        self.pages.freed.extend(ptr.blocks());
    }
}

/// Bits of one group: what is freed, what is taken.
type GroupMarks = Box<(GroupBits, GroupBits)>;

/// What a fold takes and frees, by slice and group.
struct Marks {
    groups: Vec<Vec<Option<GroupMarks>>>,
    foreign: Option<BlockAddr>,
    twice: Option<BlockAddr>,
}

impl Marks {
    fn new(pool: &Pool) -> Marks {
        let holders = pool.slices.len() + pool.devices.len();
        Marks { groups: vec![Vec::new(); holders], foreign: None, twice: None }
    }

    fn mark(&mut self, pool: &Pool, addr: BlockAddr, used: bool) {
        if !pool.contains(addr) {
            // a value that goes may have named anything: there is nothing to free
            self.foreign = self.foreign.or(used.then_some(addr));
            return;
        }
        let group = (addr.block() / GROUP_BLOCKS) as usize;
        let holder = match addr.device() {
            Some(device) => pool.slices.len() + device,
            None => usize::from(addr.slice()),
        };
        let groups = &mut self.groups[holder];
        if groups.len() <= group {
            groups.resize(group + 1, None);
        }
        let bits = groups[group]
            .get_or_insert_with(|| Box::new(([0; GROUP_BYTES / 8], [0; GROUP_BYTES / 8])));
        let bits = if used { &mut bits.1 } else { &mut bits.0 };
        let bit = (addr.block() % GROUP_BLOCKS) as usize;
        if bits[bit / 64] & (1 << (bit % 64)) != 0 {
            self.twice = Some(addr);
        }
        bits[bit / 64] |= 1 << (bit % 64);
    }

    /// The groups whose bitmaps are in the free-space tree of a slice, in the order of their keys:
    /// the first block of each.
    fn of(&self, pool: &Pool, slice: usize) -> impl Iterator<Item = (BlockAddr, &GroupMarks)> {
        let devices = (0..pool.devices.len()).map(|device| BlockAddr::on_device(device, 0));
        let own = std::iter::once(BlockAddr::new(slice as u8, 0));
        let holders = own.chain(devices.filter(move |first| pool.home_of(*first) == slice));
        holders.flat_map(move |first| {
            let holder = first.device().map_or(slice, |device| pool.slices.len() + device);
            let groups = (0u64..).zip(&self.groups[holder]);
            groups.filter_map(move |(group, bits)| {
                let addr = BlockAddr::new(first.slice(), group * GROUP_BLOCKS);
                bits.as_ref().map(|bits| (addr, bits))
            })
        })
    }

    fn check(&self) -> Result<()> {
        let wrong = self.foreign.map(|addr| (addr, "named, but no block of this pool"));
        match wrong.or(self.twice.map(|addr| (addr, "two owners name one block"))) {
            Some((addr, what)) => Err(damaged(addr, what)),
            None => Ok(()),
        }
    }
}

fn damaged(addr: BlockAddr, what: &str) -> Error {
    Error::Damaged {
        slice: u32::from(addr.slice()),
        offset: addr.block() * PAGE_BYTES as u64,
        what: what.to_owned(),
    }
}

/// The trees after a fold.
#[derive(Clone, Debug)]
pub struct Folded {
    /// Main tree of each slice.
    pub trees: Vec<Root>,
    /// Free-space tree of each slice.
    pub spaces: Vec<Root>,
}

impl Pool {
    /// Folds `batch` (one entry a slice) into new pages. The old trees stay as they are.
    pub fn fold(
        &self,
        batch: &[SliceBatch],
        blocks: &dyn DataBlocks,
        pages: &mut Pages,
    ) -> Result<Folded> {
        let roots = self.roots();
        let mut folded = Folded { trees: roots.trees.clone(), spaces: roots.spaces.clone() };
        let mut marks = Marks::new(self);
        for (slice, batch) in batch.iter().enumerate() {
            for (key, change) in &batch.changes {
                if let Change::Put(value) = change {
                    blocks.data_blocks(key, value, &mut |addr| marks.mark(self, addr, true));
                }
            }
            let mut dropped = |key: Key, old: &[u8], _: Option<&[u8]>| {
                blocks.data_blocks(&key, old, &mut |addr| marks.mark(self, addr, false));
            };
            let mut store = FoldPages { pool: self, slice: slice as u8, pages };
            let tree = &roots.trees[slice];
            let SliceBatch { changes, ranges, touched } = batch;
            let work = Work { changes, ranges, touched: &touched[0] };
            folded.trees[slice] = tree::apply_touching(&mut store, tree, work, &mut dropped)?;
        }
        marks.check()?;
        self.fold_space(&marks, batch, &mut folded, pages)?;
        Ok(folded)
    }

    fn fold_space(
        &self,
        marks: &Marks,
        batch: &[SliceBatch],
        folded: &mut Folded,
        pages: &mut Pages,
    ) -> Result<()> {
        for slice in 0..self.slices.len() {
            let mut changes = Vec::new();
            for (first, bits) in marks.of(self, slice) {
                let store = FoldPages { pool: self, slice: slice as u8, pages };
                let old = tree::get(&store, &folded.spaces[slice], &group_key(first))?;
                let old = match &old {
                    Some(bytes) => bits_from_bytes(bytes)
                        .ok_or_else(|| damaged(BlockAddr::NONE, "a free-space bitmap is cut"))?,
                    None => [0; GROUP_BYTES / 8],
                };
                let new = merge(&old, &bits.0, &bits.1).map_err(|bit| {
                    let addr = BlockAddr::new(first.slice(), first.block() + bit);
                    damaged(addr, "the free-space bitmap and the owners of the block disagree")
                })?;
                let empty = new.iter().all(|word| *word == 0);
                let change = if empty { Change::Delete } else { Change::Put(bits_to_bytes(&new)) };
                changes.push((group_key(first), change));
            }
            let mut store = FoldPages { pool: self, slice: slice as u8, pages };
            let space = folded.spaces[slice];
            let touched = batch.get(slice).map_or(&[][..], |batch| &batch.touched[1]);
            let work = Work { changes: &changes, ranges: &[], touched };
            folded.spaces[slice] =
                tree::apply_touching(&mut store, &space, work, &mut |_, _, _| {})?;
        }
        Ok(())
    }
}

/// `old` without what is freed, with what is taken; a bit on which they disagree is an error.
fn merge(
    old: &GroupBits,
    freed: &GroupBits,
    taken: &GroupBits,
) -> std::result::Result<GroupBits, u64> {
    let mut new = *old;
    for (index, word) in new.iter_mut().enumerate() {
        let wrong = (freed[index] & !*word) | (taken[index] & *word & !freed[index]);
        if wrong != 0 {
            return Err(index as u64 * 64 + u64::from(wrong.trailing_zeros()));
        }
        *word = (*word & !freed[index]) | taken[index];
    }
    Ok(new)
}

/// The trees of a fold that was only looked at.
#[derive(Debug)]
pub struct FoldView<'f> {
    pool: &'f Pool,
    pages: &'f Pages,
}

impl<'f> FoldView<'f> {
    /// The pages of `pool`, with those of the fold.
    pub fn new(pool: &'f Pool, pages: &'f Pages) -> FoldView<'f> {
        FoldView { pool, pages }
    }
}

impl PageRead for FoldView<'_> {
    fn read_page(
        &self,
        ptr: &PagePtr,
        page: &mut [u8; PAGE_BYTES],
    ) -> std::result::Result<(), TreeError> {
        match self.pages.memory.as_ref().and_then(|memory| memory.get(&ptr.addr.bits())) {
            Some(bytes) => {
                page.copy_from_slice(bytes.as_slice());
                Ok(())
            }
            None => self.pool.read_page(ptr, page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freeing_a_free_block_and_taking_a_used_one_are_damage() {
        let mut old = [0u64; GROUP_BYTES / 8];
        old[1] = 0b0110;
        let with = |bits: u64| {
            let mut all = [0u64; GROUP_BYTES / 8];
            all[1] = bits;
            all
        };
        assert_eq!(merge(&old, &with(0b0010), &with(0b1000)).map(|b| b[1]), Ok(0b1100));
        assert_eq!(merge(&old, &with(0b0010), &with(0b0010)).map(|b| b[1]), Ok(0b0110));
        assert_eq!(merge(&old, &with(0b1000), &with(0)), Err(67));
        assert_eq!(merge(&old, &with(0), &with(0b0100)), Err(66));
    }
}
