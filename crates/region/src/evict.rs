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
use std::os::unix::fs::FileExt;

/// Pages that are looked at together: 2 MiB.
const PAGES: usize = 512;
/// More pages than asked for go at one time: one in so many of all.
const EXTRA_SHARE: usize = 64;
/// Of a page's entry: it is in the tables.
const PRESENT: u64 = 1 << 63;

/// Takes pages away until so many can come, or all have been looked at often enough.
pub fn make_room(shared: &Shared, pages: usize) {
    let mut number = shared.evicting.lock();
    let extra = pages + shared.pages_max / EXTRA_SHARE;
    // twice round each region: once to see who is cold, once to take it away
    let mut rounds = 0;
    let mut steps = 0;
    while shared.too_many(extra) > 0 && rounds < 3 {
        let Some(region) = shared.nth(*number) else { return };
        steps += 1;
        if !region.step(shared) {
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
    /// Looks at the next pages; false: it has come round.
    fn step(&self, shared: &Shared) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let Some(first) = self.pages.next_known(self.hand.load(Relaxed)) else {
            self.hand.store(0, Relaxed);
            return false;
        };
        let end = (first + PAGES).min(self.pages.len());
        let used = self.in_tables(shared, first, end);
        let mut run = first;
        for page in first..end {
            match self.pages.get(page) {
                COLD if !used.get(page - first).copied().unwrap_or(true) => {
                    self.evict(page);
                }
                COLD => drop(self.pages.change(page, COLD, RESIDENT)),
                RESIDENT => {
                    // its entry goes below
                    self.pages.change(page, RESIDENT, COLD);
                    continue;
                }
                _ => {}
            }
            self.forget(run..page);
            run = page + 1;
        }
        self.forget(run..end);
        self.hand.store(end, Relaxed);
        true
    }

    fn forget(&self, pages: std::ops::Range<usize>) {
        if !pages.is_empty()
            && let Err(error) =
                self.memory.forget_loads(pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES)
        {
            tracing::debug!("pages of a region: {error}");
        }
    }

    /// Takes a cold page away, if nobody was faster.
    fn evict(&self, page: usize) {
        if !self.pages.change(page, COLD, EVICTING) {
            return;
        }
        match self.memory.drop_pages(page * PAGE_BYTES, PAGE_BYTES) {
            Ok(()) => {
                self.shared.gone(self, 1);
                self.pages.set(page, ABSENT);
            }
            Err(error) => {
                tracing::debug!("a page of a region: {error}");
                self.pages.set(page, RESIDENT);
            }
        }
    }

    /// Of each page whether it is in the tables; nothing, where that cannot be said.
    fn in_tables(&self, shared: &Shared, first: usize, end: usize) -> Vec<bool> {
        let mut entries = vec![0; (end - first) * 8];
        let at = (self.addresses().start / PAGE_BYTES + first) as u64 * 8;
        match shared.pagemap.read_exact_at(&mut entries, at) {
            Ok(()) => {
                let words = entries.as_chunks::<8>().0;
                words.iter().map(|word| u64::from_ne_bytes(*word) & PRESENT != 0).collect()
            }
            // then all that were met twice go
            Err(_) => vec![false; end - first],
        }
    }
}
