//! Whether a region is read in order, and which pages are wanted then.
//!
//! Whoever faults where the last pages that were brought end goes on in order: he is brought a
//! window of pages, and each window is twice as long as the one before. One page of each but the
//! first, the mark, is read but not put in place. Who comes to the mark has read on, and while he
//! does so the next window is brought: he need not wait where this one ends.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of the first window.
const PAGES_FIRST: usize = 15;
/// Pages that he who waits for a window has read before he comes to its mark, at most.
const PAGES_TO_MARK: usize = 32;
/// Bits of a word that hold the length of a window.
const WINDOW_BITS: u32 = 16;

/// Where the reader of a region is. Several readers of one region make guesses worse, and nothing
/// else.
#[derive(Debug)]
pub struct Reading {
    /// Where the last window ends, and how many pages it had.
    last: AtomicU64,
    /// Its mark.
    mark: AtomicU64,
}

/// Pages that are to be brought.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    pub pages: Range<usize>,
    /// The one that is not put in place; `usize::MAX`: none of them.
    pub mark: usize,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading { last: AtomicU64::new(u64::MAX), mark: AtomicU64::new(u64::MAX) }
    }
}

impl Reading {
    /// Somebody waits for a page, and for so many as `least` says in all: what is to be brought,
    /// windows of `most` pages at most. It begins with the page, which is not the mark then, or
    /// somewhere behind it, if that one is to be brought by itself.
    pub fn next(&self, page: usize, least: usize, most: usize) -> Wanted {
        // ordering: a guess, of two threads each may be right
        let known = self.last.load(Ordering::Relaxed);
        let (end, before) = match known {
            u64::MAX => (usize::MAX, 0),
            known => ((known >> WINDOW_BITS) as usize, known as usize & ((1 << WINDOW_BITS) - 1)),
        };
        let window = (2 * before + 1).max(PAGES_FIRST).max(least).min(most);
        let is_mark = self.mark.load(Ordering::Relaxed) == page as u64;
        let (first, pages, mark) = if is_mark && end > page {
            (end, window, end)
        } else if end == page {
            // the first window may be all of a record: nothing is brought behind it in vain
            let mark = page + (window / 2).clamp(1, PAGES_TO_MARK);
            (page, window, if before > 1 { mark } else { usize::MAX })
        } else {
            (page, least, usize::MAX)
        };
        self.last.store(((first + pages) as u64) << WINDOW_BITS | pages as u64, Ordering::Relaxed);
        self.mark.store(mark as u64, Ordering::Relaxed);
        Wanted { pages: first..first + pages, mark }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(pages: Range<usize>, mark: usize) -> Wanted {
        Wanted { pages, mark }
    }

    #[test]
    fn who_reads_in_order_is_brought_the_next_window_before_this_one_ends() {
        let reading = Reading::default();
        assert_eq!(reading.next(100, 1, 200), wanted(100..101, usize::MAX));
        assert_eq!(reading.next(101, 1, 200), wanted(101..116, usize::MAX));
        assert_eq!(reading.next(116, 1, 200), wanted(116..147, 131));
        assert_eq!(reading.next(131, 1, 200), wanted(147..210, 147));
        assert_eq!(reading.next(147, 1, 200), wanted(210..337, 210));
        assert_eq!(reading.next(210, 1, 200), wanted(337..537, 337));
        // he did not meet the mark: it was there already
        assert_eq!(reading.next(537, 1, 200), wanted(537..737, 569));
    }

    #[test]
    fn who_jumps_is_brought_one_page() {
        let reading = Reading::default();
        for page in [7, 3, 900, 5] {
            assert_eq!(reading.next(page, 1, 200), wanted(page..page + 1, usize::MAX));
        }
        assert_eq!(reading.next(6, 1, 200), wanted(6..21, usize::MAX));
        assert_eq!(reading.next(21, 1, 200), wanted(21..52, 36));
        assert_eq!(reading.next(500, 1, 200), wanted(500..501, usize::MAX));
        assert_eq!(reading.next(36, 1, 200), wanted(36..37, usize::MAX), "an old mark is none");
    }

    #[test]
    fn who_waits_for_several_pages_is_brought_them_at_once() {
        let reading = Reading::default();
        assert_eq!(reading.next(100, 16, 200), wanted(100..116, usize::MAX));
        assert_eq!(reading.next(500, 16, 200), wanted(500..516, usize::MAX));
        // he reads in order
        assert_eq!(reading.next(516, 16, 200), wanted(516..549, 532));
        assert_eq!(reading.next(532, 16, 200), wanted(549..616, 549));
        assert_eq!(reading.next(616, 180, 200), wanted(616..796, 648));
    }

    #[test]
    fn windows_are_no_longer_than_they_may() {
        let reading = Reading::default();
        reading.next(0, 1, 8);
        assert_eq!(reading.next(1, 1, 8), wanted(1..9, usize::MAX));
        assert_eq!(reading.next(9, 1, 8), wanted(9..17, 13));
        assert_eq!(reading.next(13, 1, 8), wanted(17..25, 17));
        assert_eq!(reading.next(17, 1, 1), wanted(25..26, 25));
    }
}
