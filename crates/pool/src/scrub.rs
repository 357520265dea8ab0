//! Scrub: all copies of what a pool keeps twice are read, and the bad ones written again from the
//! good ones, while the pool is in use.
//!
//! Pages are never changed where they lie, so that a copy may be written again as long as its tree
//! is pinned. Superblocks do not change either; the roots are held still for the moment it takes.

use crate::addr::BlockAddr;
use crate::copies::Which;
use crate::error::Result;
use crate::pool::Pool;
use crate::root::{self, SliceRoot};
use crate::superblock::{BLOCK_BYTES, SUPERBLOCK_BLOCK};
use crate::tree::{self, HEIGHT_MAX, Key, Met, PAGE_BYTES, PagePtr, PageRead, TreeError};
use pmem::Mapping;
use std::cell::RefCell;
use zerocopy::IntoBytes;

/// What a scrub saw.
#[derive(Clone, Debug, Default)]
pub struct Scrubbed {
    /// Pages of the trees that were looked at, in both copies.
    pub pages: u64,
    /// Pages that have no second copy: the pool was all but full when they were written.
    pub single: u64,
    /// Keys below these: the slice, whether its main tree or its free-space tree, the key. The
    /// pages get a second copy when they are written anew.
    pub single_keys: Vec<(usize, bool, Key)>,
    /// What was written again from its other copy.
    pub repaired: Vec<String>,
    /// What is bad and has no good copy: where, and why.
    pub lost: Vec<(String, String)>,
}

/// How far a scrub of the trees is.
#[derive(Clone, Copy, Debug)]
pub struct ScrubPlace {
    /// The main trees first, slice by slice, then the free-space trees.
    tree: usize,
    key: Key,
}

impl Default for ScrubPlace {
    /// Before everything.
    fn default() -> ScrubPlace {
        ScrubPlace { tree: 0, key: Key::MIN }
    }
}

/// Reads pages from the medium, both copies of each.
struct Both<'p> {
    pool: &'p Pool,
    seen: RefCell<&'p mut Scrubbed>,
}

impl PageRead for Both<'_> {
    fn read_page(
        &self,
        ptr: &PagePtr,
        page: &mut [u8; PAGE_BYTES],
    ) -> std::result::Result<(), TreeError> {
        let mut copies = Vec::new();
        for addr in ptr.blocks() {
            copies.push((addr, Which::First));
            if self.pool.is_mirrored(addr) {
                copies.push((addr, Which::Mirror));
            }
        }
        if self.pool.is_single(ptr) {
            self.seen.borrow_mut().single += 1;
        }
        let (mut bytes, mut whole, mut bad) = ([0; PAGE_BYTES], false, Vec::new());
        for (addr, which) in copies {
            match self.pool.read_page_copy(addr, which, ptr.crc, &mut bytes) {
                Ok(()) => {
                    page.copy_from_slice(&bytes);
                    whole = true;
                }
                Err(why) => bad.push((addr, which, why)),
            }
        }
        if whole {
            bad.into_iter().for_each(|(addr, which, why)| self.repair(addr, which, page, &why));
            return Ok(());
        }
        let none = TreeError::Damaged { addr: ptr.addr, what: "no block of this pool" };
        Err(bad.into_iter().next().map_or(none, |(.., why)| why))
    }
}

impl Both<'_> {
    fn repair(&self, addr: BlockAddr, which: Which, page: &[u8; PAGE_BYTES], why: &TreeError) {
        let mut seen = self.seen.borrow_mut();
        match self.pool.write_copy(addr, which, page) {
            true => seen.repaired.push(why.to_string()),
            false => seen.lost.push((addr.place(), format!("cannot be repaired: {why}"))),
        }
    }
}

impl Pool {
    /// Looks at about `most` pages of the trees from `at` on, with what is in them; false when all
    /// have been looked at. The pool is writable.
    pub fn scrub_pages(
        &self,
        at: &mut ScrubPlace,
        most: u64,
        seen: &mut Scrubbed,
        each: &mut dyn FnMut(Key, &[u8]),
    ) -> bool {
        // the pages are not used again before it ends
        let _pin = crossbeam_epoch::pin();
        let roots = self.roots();
        let Some(root) = roots.trees.iter().chain(&roots.spaces).nth(at.tree) else {
            return false;
        };
        let is_main = at.tree < roots.trees.len();
        let (from, mut next, mut pages, mut lost) = (at.key, None, 0, Vec::new());
        let both = Both { pool: self, seen: RefCell::new(seen) };
        let (mut single, mut single_keys) = (false, Vec::new());
        tree::walk_readable(&both, root, from, &mut |met| {
            match &met {
                Met::Page(ptr, _) => single |= self.is_single(ptr),
                Met::Entry(key, _) if std::mem::take(&mut single) => {
                    single_keys.push((at.tree % roots.trees.len(), is_main, *key));
                }
                _ => {}
            }
            match met {
                Met::Page(..) => pages += 1,
                Met::Entry(key, _) if pages > most.max(u64::from(HEIGHT_MAX)) => {
                    next = Some(key);
                    return false;
                }
                Met::Entry(key, value) if is_main => each(key, value),
                Met::Entry(..) => {}
                Met::Lost(page) => {
                    lost.push((page.ptr.addr.place(), page.why.to_string()));
                }
            }
            true
        });
        seen.pages += pages;
        seen.single_keys.extend(single_keys);
        for lost in lost {
            if !seen.lost.contains(&lost) {
                seen.lost.push(lost);
            }
        }
        *at = match next {
            Some(key) => ScrubPlace { key, ..*at },
            None => ScrubPlace { tree: at.tree + 1, key: Key::MIN },
        };
        true
    }

    /// Whether a page has no second copy.
    fn is_single(&self, ptr: &PagePtr) -> bool {
        ptr.copy.is_none() && !self.is_mirrored(ptr.addr)
    }

    /// Pages of all trees that have no second copy.
    pub fn single_pages(&self) -> Result<u64> {
        let _pin = crossbeam_epoch::pin();
        let (roots, mut single) = (self.roots(), 0);
        for root in roots.trees.iter().chain(&roots.spaces) {
            tree::walk_pointers(self, root, &mut |ptr, _level| {
                single += u64::from(self.is_single(ptr));
                Ok(())
            })?;
        }
        Ok(single)
    }

    /// Looks at all copies of each slice's superblock and root; those that are bad are written
    /// again, and durable after [`mended`](Pool::mended).
    pub fn scrub_heads(&self, seen: &mut Scrubbed) -> Result<()> {
        // nobody writes a root meanwhile
        let _still = self.generation_highest.lock();
        let roots = self.roots();
        for (index, slice) in self.slices.iter().enumerate() {
            let superblock = &slice.superblock;
            let blocks = [SUPERBLOCK_BLOCK, superblock.data_block_end()];
            let mut say = |block: u64, mended: bool, what: &str| {
                let place = BlockAddr::new(index as u8, block).place();
                match mended {
                    true => seen.repaired.push(format!("{what} at {place}")),
                    false => seen.lost.push((place, format!("{what} cannot be written again"))),
                }
            };
            let copies = || slice.mapping.copies();
            for (copy, block) in copies().flat_map(|copy| blocks.map(|block| (copy, block))) {
                if let Some(mended) = mend(copy, block, superblock.as_bytes()) {
                    say(block, mended, "a superblock");
                }
            }
            let blocks = root::blocks(roots.slots.get(index).copied().unwrap_or_default());
            let places = || copies().flat_map(|copy| blocks.map(|block| (copy, block)));
            let current = places().find_map(|(copy, block)| {
                SliceRoot::read(copy, block, &superblock.slice_uuid)
                    .filter(|root| root.generation.get() == roots.generation)
            });
            let Some(current) = current else {
                seen.lost.push((BlockAddr::new(index as u8, blocks[0]).place(), ROOT_LOST.into()));
                continue;
            };
            for (copy, block) in places() {
                if let Some(mended) = mend(copy, block, current.as_bytes()) {
                    say(block, mended, "a root");
                }
            }
        }
        Ok(())
    }
}

const ROOT_LOST: &str = "both copies of the root are damaged; the next checkpoint writes others";

/// Writes `bytes` into a block where they are not there; whether that helped, if it was needed.
fn mend(mapping: &Mapping, block: u64, bytes: &[u8]) -> Option<bool> {
    let mut found = vec![0; bytes.len()];
    let mut is_there =
        || mapping.read_own(block * BLOCK_BYTES, &mut found).is_ok() && found == bytes;
    if is_there() {
        return None;
    }
    let _ = mapping.write_own(block * BLOCK_BYTES, bytes);
    Some(is_there())
}
