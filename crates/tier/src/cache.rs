//! The DRAM cache of one slice: blocks of the ranges of the tier that are the slice's.
//!
//! In parts with a lock each, held for a look or a change, never for a read of the device. In a
//! part, blocks are in a circle: a hand goes round and lets go of those that nobody looked at since
//! it came by last (an approximate LRU).
//!
//! A block that is being read has a place, too: so it is read once, whoever wants it meanwhile, and
//! if its place on the device is given away before it is there, it is thrown away.

use crate::page::Page;
use parking_lot::{Condvar, Mutex};
use pool::BlockAddr;
use std::collections::HashMap;
use std::sync::Arc;

const PARTS: usize = 16;

#[derive(Debug)]
enum Entry {
    /// Somebody reads it: the number of that read.
    Loading(u64),
    /// Where it is in the circle.
    There(usize),
}

#[derive(Debug)]
struct Frame {
    addr: BlockAddr,
    page: Arc<Page>,
    was_used: bool,
}

#[derive(Debug, Default)]
struct Part {
    entries: HashMap<BlockAddr, Entry>,
    circle: Vec<Frame>,
    hand: usize,
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
        let mixed = addr.bits().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.parts[(mixed >> 60) as usize % PARTS]
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
        if part.entries.contains_key(&addr) {
            return Found::Loading;
        }
        part.loads += 1;
        let number = part.loads;
        part.entries.insert(addr, Entry::Loading(number));
        Found::ToLoad(number)
    }

    /// Waits until nobody reads the block any more.
    pub fn wait(&self, addr: BlockAddr) {
        let (part, done) = self.part(addr);
        let mut part = part.lock();
        while matches!(part.entries.get(&addr), Some(Entry::Loading(_))) {
            done.wait(&mut part);
        }
    }

    /// A read is done: this is the block, or it could not be had. A page whose place was given away
    /// meanwhile is dead.
    pub fn loaded(&self, addr: BlockAddr, number: u64, page: Option<&Arc<Page>>) {
        let (part, done) = self.part(addr);
        let mut part = part.lock();
        let is_own = matches!(part.entries.get(&addr), Some(Entry::Loading(own)) if *own == number);
        match page {
            Some(page) if is_own => part.put(addr, page.clone(), self.pages_max),
            Some(page) => page.kill(),
            None if is_own => drop(part.entries.remove(&addr)),
            None => {}
        }
        drop(part);
        done.notify_all();
    }

    /// The place of the block is given to another.
    pub fn forget(&self, addr: BlockAddr) {
        let (part, done) = self.part(addr);
        let mut part = part.lock();
        if let Some(Entry::There(at)) = part.entries.remove(&addr) {
            part.circle[at].page.kill();
            part.take_out(at);
        }
        drop(part);
        done.notify_all();
    }

    /// Lets go of all pages that nobody has; gives how many.
    pub fn evict_all(&self) -> usize {
        self.parts.iter().map(|(part, _)| part.lock().evict_all()).sum()
    }

    /// Pages that are there.
    pub fn pages(&self) -> usize {
        self.parts.iter().map(|(part, _)| part.lock().circle.len()).sum()
    }
}

impl Part {
    fn get(&mut self, addr: BlockAddr) -> Option<Arc<Page>> {
        let Some(Entry::There(at)) = self.entries.get(&addr) else { return None };
        let frame = &mut self.circle[*at];
        frame.was_used = true;
        Some(frame.page.clone())
    }

    fn put(&mut self, addr: BlockAddr, page: Arc<Page>, pages_max: usize) {
        while self.circle.len() >= pages_max && self.evict_one() {}
        self.entries.insert(addr, Entry::There(self.circle.len()));
        self.circle.push(Frame { addr, page, was_used: false });
    }

    /// Lets go of one page; false: all of them are in use.
    fn evict_one(&mut self) -> bool {
        for _ in 0..2 * self.circle.len() {
            self.hand = (self.hand + 1) % self.circle.len();
            let frame = &mut self.circle[self.hand];
            // who has it may be asked whether its place was given away: only what is here can say
            if Arc::strong_count(&frame.page) > 1 {
                continue;
            }
            if !std::mem::take(&mut frame.was_used) {
                let addr = frame.addr;
                self.entries.remove(&addr);
                self.take_out(self.hand);
                return true;
            }
        }
        false
    }

    /// Lets go of all pages that nobody has; gives how many.
    fn evict_all(&mut self) -> usize {
        let (before, mut at) = (self.circle.len(), 0);
        while let Some(frame) = self.circle.get(at) {
            // see `evict_one`
            if Arc::strong_count(&frame.page) > 1 {
                at += 1;
                continue;
            }
            let addr = frame.addr;
            self.entries.remove(&addr);
            self.take_out(at);
        }
        before - self.circle.len()
    }

    /// Takes a page out of the circle; the last one takes its place.
    fn take_out(&mut self, at: usize) {
        self.circle.swap_remove(at);
        if let Some(moved) = self.circle.get(at) {
            self.entries.insert(moved.addr, Entry::There(at));
        }
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
