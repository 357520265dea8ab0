//! The DRAM cache of one slice: blocks of the ranges of the tier that are the slice's.
//!
//! In parts with a lock each, held for a look or a change, never for a read of the device. In a
//! part, pages are in a circle (`circle.rs`).
//!
//! A block that is being read has a place, too: so it is read once, whoever wants it meanwhile, and
//! if its place on the device is given away before it is there, it is thrown away.

use crate::circle::{Circle, part_of};
use crate::page::Page;
use parking_lot::{Condvar, Mutex};
use pool::BlockAddr;
use std::collections::HashMap;
use std::sync::Arc;

const PARTS: usize = 16;

#[derive(Debug, Default)]
struct Part {
    /// Blocks that somebody reads: the number of that read.
    loading: HashMap<BlockAddr, u64>,
    pages: Circle<Arc<Page>>,
    loads: u64,
}

/// What a look into the cache finds.
pub enum Found {
    /// The block.
    There(Arc<Page>),
    /// Nothing; the caller is to read it, and then to say so under this number.
    ToLoad(u64),
    /// Somebody else reads it.
    Loading,
}

/// A cache.
#[derive(Debug)]
pub struct Cache {
    parts: Box<[(Mutex<Part>, Condvar)]>,
    pages_max: usize,
}

impl Cache {
    /// An empty one that has room for so many pages.
    pub fn new(pages_max: usize) -> Cache {
        let parts = (0..PARTS).map(|_| Default::default()).collect();
        Cache { parts, pages_max: (pages_max / PARTS).max(1) }
    }

    fn part(&self, addr: BlockAddr) -> &(Mutex<Part>, Condvar) {
        &self.parts[part_of(addr, PARTS)]
    }

    /// The block, if it is there.
    pub fn get(&self, addr: BlockAddr) -> Option<Arc<Page>> {
        self.part(addr).0.lock().get(addr)
    }

    /// The block, or who is to read it.
    pub fn look(&self, addr: BlockAddr) -> Found {
        let mut part = self.part(addr).0.lock();
        if let Some(page) = part.get(addr) {
            return Found::There(page);
        }
        if part.loading.contains_key(&addr) {
            return Found::Loading;
        }
        part.loads += 1;
        let number = part.loads;
        part.loading.insert(addr, number);
        Found::ToLoad(number)
    }

    /// Waits until nobody reads the block any more.
    pub fn wait(&self, addr: BlockAddr) {
        let (part, done) = self.part(addr);
        let mut part = part.lock();
        while part.loading.contains_key(&addr) {
            done.wait(&mut part);
        }
    }

    /// A read is done: this is the block, or it could not be had. A page whose place was given away
    /// meanwhile is dead.
    pub fn loaded(&self, addr: BlockAddr, number: u64, page: Option<&Arc<Page>>) {
        let (part, done) = self.part(addr);
        let mut part = part.lock();
        let is_own = part.loading.get(&addr) == Some(&number);
        if is_own {
            part.loading.remove(&addr);
        }
        match page {
            Some(page) if is_own => part.put(addr, page.clone(), self.pages_max),
            Some(page) => page.kill(),
            None => {}
        }
        drop(part);
        done.notify_all();
    }

    /// The place of the block is given to another.
    pub fn forget(&self, addr: BlockAddr) {
        let (part, done) = self.part(addr);
        let mut part = part.lock();
        part.loading.remove(&addr);
        if let Some(page) = part.pages.take(addr) {
            page.kill();
        }
        drop(part);
        done.notify_all();
    }

    /// Lets go of all pages that nobody has; gives how many.
    pub fn evict_all(&self) -> usize {
        self.parts.iter().map(|(part, _)| part.lock().pages.evict_all(is_unused)).sum()
    }

    /// Whether there is hardly room for one page more.
    pub fn is_full(&self) -> bool {
        self.pages() * 8 > self.pages_max * PARTS * 7
    }

    /// Pages that it has room for.
    pub fn pages_max(&self) -> usize {
        self.pages_max * PARTS
    }

    /// Pages that are there.
    pub fn pages(&self) -> usize {
        self.parts.iter().map(|(part, _)| part.lock().pages.len()).sum()
    }
}

impl Part {
    fn get(&mut self, addr: BlockAddr) -> Option<Arc<Page>> {
        self.pages.get(addr).map(|page| page.clone())
    }

    fn put(&mut self, addr: BlockAddr, page: Arc<Page>, pages_max: usize) {
        while self.pages.len() >= pages_max && self.pages.evict_one(is_unused).is_some() {}
        self.pages.put(addr, page);
    }
}

/// Whether nobody has the page: who has it may ask whether its place was given away, and only what
/// is in the cache can say.
fn is_unused(page: &Arc<Page>) -> bool {
    Arc::strong_count(page) == 1
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
