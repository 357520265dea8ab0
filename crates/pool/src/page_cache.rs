//! Tree pages in DRAM: each is verified when it is read, and read once while it stays here.
//!
//! What it keeps true:
//! - a page is given only to who asks for the pointer that it was verified against: address *and*
//!   checksum;
//! - a page goes before its block is written as another: who puts a page here holds the trees that
//!   name it (pinned, or as the one checkpoint), and no block of theirs is used again until then,
//!   so that nobody can bring the old page back;
//! - a page that does not verify never comes here;
//! - no more pages than there are places: a page takes the place that its address says, whoever is
//!   there.

use crate::addr::BlockAddr;
use crate::tree::{PageCopy, PagePtr};
use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// An odd number whose multiples spread over all places (2^64 / golden ratio).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bytes of a page here, its two counts of holders and its place.
const PLACE_BYTES: usize = size_of::<PageCopy>() + 3 * size_of::<usize>();

/// Pages in DRAM.
#[derive(Debug)]
pub(crate) struct PageCache {
    places: Box<[ArcSwapOption<PageCopy>]>,
}

impl PageCache {
    /// Room for pages that take up to `bytes` of memory, and for `pages_max` at most.
    pub fn new(bytes: u64, pages_max: u64) -> PageCache {
        let places = (bytes / PLACE_BYTES as u64).min(pages_max);
        PageCache { places: (0..places).map(|_| ArcSwapOption::empty()).collect() }
    }

    /// The place of the page at `addr`; none if there is room for no page at all.
    #[inline]
    fn place(&self, addr: BlockAddr) -> Option<&ArcSwapOption<PageCopy>> {
        let spread = u128::from(addr.bits().wrapping_mul(SPREAD));
        self.places.get(((spread * self.places.len() as u128) >> 64) as usize)
    }

    /// The page that `ptr` names, if it is here.
    #[inline]
    pub fn get(&self, ptr: &PagePtr) -> Option<Arc<PageCopy>> {
        let page = self.place(ptr.addr)?.load();
        page.as_ref().filter(|page| page.ptr == *ptr).cloned()
    }

    /// Keeps a page that was just verified.
    pub fn put(&self, page: &Arc<PageCopy>) {
        if let Some(place) = self.place(page.ptr.addr) {
            place.store(Some(page.clone()));
        }
    }

    /// The block at `addr` is about to be another page.
    pub fn forget(&self, addr: BlockAddr) {
        if let Some(place) = self.place(addr)
            && place.load().as_ref().is_some_and(|page| page.ptr.addr == addr)
        {
            place.store(None);
        }
    }

    /// Bytes of memory in pages that are here, by slice.
    pub fn bytes(&self, slices: usize) -> Vec<u64> {
        let mut bytes = vec![0; slices];
        for place in &self.places {
            let page = place.load();
            let slice =
                page.as_ref().and_then(|it| bytes.get_mut(usize::from(it.ptr.addr.slice())));
            if let Some(bytes) = slice {
                *bytes += PLACE_BYTES as u64;
            }
        }
        bytes
    }

    /// All pages that are here.
    #[cfg(test)]
    pub fn pages(&self) -> Vec<Arc<PageCopy>> {
        self.places.iter().filter_map(ArcSwapOption::load_full).collect()
    }
}

#[cfg(test)]
#[path = "page_cache_tests.rs"]
mod tests;
