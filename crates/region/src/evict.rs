//! Taking pages away where regions have more than they may: an approximate LRU.
//!
//! The kernel does not say when a page was loaded from, but whether it is in the process's page
//! tables. So a hand goes round the pages: of one that it meets it takes the entry out of the
//! tables, and the page is COLD; if the entry is back when the hand comes by again, the page is in
//! use, else it goes.

use crate::PAGE_BYTES;
use crate::page_states::{ABSENT, COLD, EVICTING, RESIDENT};
use crate::region::Inner;
use crate::regions::Shared;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

/// Pages that are looked at together: 2 MiB.
const PAGES: usize = 512;
/// More pages than asked for go at one time: one in so many of all.
const EXTRA_SHARE: usize = 64;
/// Of a page's entry: it is in the tables.
const PRESENT: u64 = 1 << 63;

/// What becomes of a page that the hand met.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    /// Its entry goes.
    Cools,
    Goes,
}

/// Takes pages away until so many can come, or all have been looked at often enough.
pub fn make_room(shared: &Shared, pages: usize) {
    let mut number = shared.evicting.lock();
    let extra = pages + shared.pages_max / EXTRA_SHARE;
    // twice round each region: once to see who is cold, once to take it away
    let mut rounds = 0;
    let mut steps = 0;
    while rounds < 3 {
        let wanted = shared.too_many(extra);
        let Some(region) = shared.nth(*number).filter(|_| wanted > 0) else { return };
        steps += 1;
        if !region.step(shared, wanted) {
            *number += 1;
            rounds += usize::from(
                shared
                    .nth(*number)
                    .is_some_and(|next| next.addresses().start <= region.addresses().start),
            );
        }
        if steps > 1 << 20 {
            return;
        }
    }
}

impl Inner {
    /// Looks at the next pages, until so many have gone; false: it has come round.
    fn step(&self, shared: &Shared, mut wanted: usize) -> bool {
        let Some(first) = self.pages.next_known(self.hand.load(Relaxed)) else {
            self.hand.store(0, Relaxed);
            return false;
        };
        let end = (first + PAGES).min(self.pages.len());
        let used = self.in_tables(shared, first, end);
        let mut fates = Vec::with_capacity(end - first);
        for page in first..end {
            if wanted == 0 {
                break;
            }
            let fate = self.fate(page, used.get(page - first).copied());
            wanted -= usize::from(fate == Fate::Goes);
            fates.push(fate);
        }
        let mut next = first;
        for run in fates.chunk_by(|one, other| one == other) {
            let pages = next..next + run.len();
            next = pages.end;
            match run[0] {
                Fate::Stays => {}
                Fate::Cools => self.forget(pages),
                Fate::Goes => self.evict(pages),
            }
        }
        self.hand.store(next, Relaxed);
        true
    }

    /// What becomes of a page, whose state says so from now on.
    fn fate(&self, page: usize, is_used: Option<bool>) -> Fate {
        match self.pages.get(page) {
            // where the tables cannot be read, all that were met twice go
            COLD if is_used != Some(true) && self.pages.change(page, COLD, EVICTING) => Fate::Goes,
            COLD => {
                self.pages.change(page, COLD, RESIDENT);
                Fate::Stays
            }
            RESIDENT if self.pages.change(page, RESIDENT, COLD) => Fate::Cools,
            _ => Fate::Stays,
        }
    }

    /// Takes the entries of pages out of the tables.
    fn forget(&self, pages: Range<usize>) {
        let (at, bytes) = (pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES);
        if let Err(error) = self.memory.forget_loads(at, bytes) {
            tracing::debug!("pages of a region: {error}");
        }
    }

    /// Takes pages away that are EVICTING.
    fn evict(&self, pages: Range<usize>) {
        let (at, bytes) = (pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES);
        let state = match self.memory.drop_pages(at, bytes) {
            Ok(()) => {
                self.shared.gone(self, pages.len());
                self.shared.counts.evicted.fetch_add(pages.len() as u64, Relaxed);
                ABSENT
            }
            Err(error) => {
                tracing::debug!("pages of a region: {error}");
                RESIDENT
            }
        };
        pages.for_each(|page| self.pages.set(page, state));
    }

    /// Of each page whether it is in the tables; nothing, where that cannot be said.
    fn in_tables(&self, shared: &Shared, first: usize, end: usize) -> Vec<bool> {
        let Some(pagemap) = &shared.pagemap else { return Vec::new() };
        let mut entries = vec![0; (end - first) * 8];
        let at = (self.addresses().start / PAGE_BYTES + first) as u64 * 8;
        match pagemap.read_exact_at(&mut entries, at) {
            Ok(()) => {
                let words = entries.as_chunks::<8>().0;
                words.iter().map(|word| u64::from_ne_bytes(*word) & PRESENT != 0).collect()
            }
            Err(_) => Vec::new(),
        }
    }
}
