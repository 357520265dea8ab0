//! The DRAM cache of one slice: blocks of the ranges of the tier that are the slice's.
//!
//! In parts with a lock each, held for a look or a change, never for a read of the device. In a
//! part, pages are in a circle (`circle.rs`). Their memory is the cache's own (`frames.rs`), as
//! much as it may have; a sixteenth of it is kept free, by a thread (`evictor.rs`) where there is
//! one. Who finds none free makes room himself.
//!
//! A page that somebody has is not let go. So calls that have all pages at once get more from the
//! heap: they cannot wait for each other, for each keeps what it has until it is done. The cache
//! knows those pages, too, or nobody could tell who has one that its place was given away; who
//! fetched one lets the cache forget it as soon as he is done.
//!
//! A block that is being read has a place, too: so it is read once, whoever wants it meanwhile, and
//! if its place on the device is given away before it is there, it is thrown away.

use crate::circle::{Circle, part_of};
use crate::evictor::Bell;
use crate::frames::{Frame, Frames};
use crate::hasher::AddrMap;
use crate::page::Page;
use locks::futex::EventCount;
use parking_lot::Mutex;
use pool::BlockAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const PARTS: usize = 16;
/// Of so many frames one is kept free; if only half of those are, more are made so.
const KEPT_FREE: usize = 16;
/// Pages that are let go of in one turn with a part's lock: others look there.
const TURN_PAGES: usize = 64;

#[derive(Debug, Default)]
struct Part {
    /// Blocks that somebody reads: the number of that read.
    loading: AddrMap<BlockAddr, u64>,
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
    parts: Box<[(Mutex<Part>, EventCount)]>,
    frames: Arc<Frames>,
    bell: Bell,
    /// The part in which a caller makes room next.
    hand: AtomicUsize,
    /// Pages that callers let go of, to have room.
    evicted_by_callers: AtomicU64,
}

impl Cache {
    /// An empty one that has room for so many pages, on this node if it is known.
    pub fn new(pages_max: usize, node: Option<u32>) -> Cache {
        let parts = (0..PARTS).map(|_| Default::default()).collect();
        let frames = Frames::new((pages_max / PARTS).max(1) * PARTS, node);
        let (bell, hand) = (Bell::default(), AtomicUsize::new(0));
        Cache { parts, frames, bell, hand, evicted_by_callers: AtomicU64::new(0) }
    }

    /// Wakes the evictor.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Whether the kernel was told on which node the pages are to lie.
    pub fn is_bound(&self) -> bool {
        self.frames.is_bound()
    }

    /// Pages of a part that the evictor leaves there.
    fn share(&self) -> usize {
        let most = self.frames.count() / PARTS;
        most - most / KEPT_FREE
    }

    /// Frames that the evictor keeps free.
    fn kept_free(&self) -> usize {
        self.frames.count() - self.share() * PARTS
    }

    /// Memory for a block that the caller is to read; `None`: all of it is in use.
    pub fn frame(&self) -> Option<Frame> {
        let few = self.kept_free() / 2;
        loop {
            let (frame, free) = self.frames.take();
            if free < few {
                self.bell.ring();
            }
            if frame.is_some() || !self.evict_one() {
                return frame;
            }
        }
    }

    /// Lets go of one page, of a part that has more than its share if there is such a one; false:
    /// somebody has each.
    fn evict_one(&self) -> bool {
        // ordering: whichever part
        let first = self.hand.fetch_add(1, Ordering::Relaxed);
        for least in [self.share(), 0] {
            for at in 0..PARTS {
                let mut part = self.parts[first.wrapping_add(at) % PARTS].0.lock();
                if part.pages.len() > least && part.pages.evict_one(is_unused).is_some() {
                    self.evicted_by_callers.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
            }
        }
        false
    }

    /// Lets go of pages until as many frames are free as are to be, but for what somebody has: of
    /// parts that have more than their share, and no more of each than it has above that.
    pub fn make_room(&self) {
        let share = self.share();
        for (part, _) in &self.parts {
            loop {
                let wanted = self.kept_free().saturating_sub(self.frames.free()).min(TURN_PAGES);
                if wanted == 0 || part.lock().evict_to(share, wanted) < wanted {
                    break;
                }
            }
        }
    }

    /// Lets go of a page that has no frame of the cache's, unless somebody has it.
    pub fn let_go_of(&self, addr: BlockAddr) {
        let mut part = self.part(addr).0.lock();
        if part.pages.get(addr).is_some_and(|page| is_unused(page) && page.is_on_heap()) {
            part.pages.take(addr);
        }
    }

    fn part(&self, addr: BlockAddr) -> &(Mutex<Part>, EventCount) {
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
        done.wait_until(|| (!part.lock().loading.contains_key(&addr)).then_some(()));
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
            Some(page) if is_own => part.pages.put(addr, page.clone()),
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

    /// Lets go of all pages that nobody has, and of their memory; gives how many.
    pub fn evict_all(&self) -> usize {
        let evicted =
            self.parts.iter().map(|(part, _)| part.lock().pages.evict_all(is_unused)).sum();
        self.frames.release();
        evicted
    }

    /// Whether there is hardly room for one page more.
    pub fn is_full(&self) -> bool {
        self.pages() * 8 > self.pages_max() * 7
    }

    /// Pages that it has room for.
    pub fn pages_max(&self) -> usize {
        self.frames.count()
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

    /// Lets go of what is more than so many pages, `most` at most; gives how many it let go of.
    fn evict_to(&mut self, pages: usize, most: usize) -> usize {
        let mut evicted = 0;
        while evicted < most
            && self.pages.len() > pages
            && self.pages.evict_one(is_unused).is_some()
        {
            evicted += 1;
        }
        evicted
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
