//! Which pages were asked for lately, and not brought.
//!
//! Where regions have about all the memory that they may take, to bring a page takes another one
//! away. Who loads from several pages at once need not have them brought: he can be given their
//! bytes. So pages that nobody asked for lately are not brought for him; those that somebody did
//! are, as they are likely to be asked for again. A walk over more than there is memory for then
//! takes nothing away that others use.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Pages that are remembered, at most: of regions with 16 GiB of memory all that have room.
const PAGES_MAX: usize = 1 << 22;

/// Pages by their numbers in the address space: of those with the same last bits the one that was
/// asked for last. That forgets them as others are asked for.
#[derive(Debug)]
pub struct Asked {
    /// The other bits of each, and one, so that 0 is none.
    pages: Box<[AtomicU32]>,
}

impl Asked {
    /// For regions of so many pages in memory: as many are remembered at least, so that neighbours
    /// that have room together do not make each other forgotten.
    pub fn new(pages_max: usize) -> Asked {
        let pages = pages_max.min(PAGES_MAX).next_power_of_two();
        Asked { pages: (0..pages).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Remembers these pages, and says whether the first of them was asked for lately.
    pub fn ask(&self, pages: Range<usize>) -> bool {
        let first = pages.start;
        let mut was_asked = false;
        for page in pages {
            let (place, tag) = (page % self.pages.len(), (page / self.pages.len()) as u32 + 1);
            // ordering: a guess; two pages with the same bits here are a wrong one, no more
            let before = self.pages[place].swap(tag, Ordering::Relaxed);
            was_asked |= page == first && before == tag;
        }
        was_asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_remembered_until_others_take_their_places() {
        let asked = Asked::new(32);
        assert!(!asked.ask(100..104));
        assert!(asked.ask(100..104));
        assert!(asked.ask(102..103), "each of them");
        assert!(!asked.ask(99..104), "the first one counts");
        // a walk over more than are remembered
        (200..232).step_by(4).for_each(|page| assert!(!asked.ask(page..page + 4)));
        assert!(!asked.ask(100..104));
    }

    #[test]
    fn what_has_room_together_is_remembered_together() {
        let asked = Asked::new(100);
        (1000..1100).step_by(4).for_each(|page| assert!(!asked.ask(page..page + 4)));
        (1000..1100).step_by(4).for_each(|page| assert!(asked.ask(page..page + 4)));
        // as much as there is
        assert_eq!(Asked::new(usize::MAX / 4096).pages.len(), PAGES_MAX);
    }
}
