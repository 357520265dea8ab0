//! What state each page of a region is in. It says who may put bytes there.
//!
//! ```text
//!            fault                 read        install
//! ABSENT ----------> FILLING ----------------> INSTALLING --> RESIDENT --> EVICTING --> ABSENT
//!                       |  ^
//!     its bytes changed v  | read again
//!                      STALE
//! ```
//!
//! Who writes to the file has published, and holds the range: of a page that is FILLING he only
//! says that it is STALE; where it is RESIDENT he makes it WRITING, stores, and makes it RESIDENT
//! again; while it is INSTALLING or EVICTING he waits, which takes a moment and no lock. Whoever
//! moves a page on from FILLING, INSTALLING, WRITING or EVICTING is the one that brought it there.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

pub const ABSENT: u8 = 0;
pub const FILLING: u8 = 1;
pub const STALE: u8 = 2;
pub const INSTALLING: u8 = 3;
pub const RESIDENT: u8 = 4;
/// As RESIDENT; nobody has loaded from it since it was last looked at, as far as is known.
pub const COLD: u8 = 5;
pub const EVICTING: u8 = 6;
pub const WRITING: u8 = 7;

const CHUNK_PAGES: usize = 4096;
const GROUP_CHUNKS: usize = 1024;

type Chunk = Box<[AtomicU8]>;
type Group = Box<[OnceLock<Chunk>]>;

/// The states of a region's pages: made for 16 MiB at a time, where a page is touched.
#[derive(Debug)]
pub struct PageStates {
    groups: Box<[OnceLock<Group>]>,
    pages: usize,
}

impl PageStates {
    /// All absent.
    pub fn new(pages: usize) -> PageStates {
        let groups = pages.div_ceil(CHUNK_PAGES * GROUP_CHUNKS);
        PageStates { groups: (0..groups).map(|_| OnceLock::new()).collect(), pages }
    }

    /// Pages in all.
    pub fn len(&self) -> usize {
        self.pages
    }

    fn known(&self, page: usize) -> Option<&AtomicU8> {
        let (chunk, at) = (page / CHUNK_PAGES, page % CHUNK_PAGES);
        let group = self.groups.get(chunk / GROUP_CHUNKS)?.get()?;
        group[chunk % GROUP_CHUNKS].get()?.get(at)
    }

    fn made(&self, page: usize) -> &AtomicU8 {
        assert!(page < self.pages, "a page of the region");
        let (chunk, at) = (page / CHUNK_PAGES, page % CHUNK_PAGES);
        let group = self.groups[chunk / GROUP_CHUNKS]
            .get_or_init(|| (0..GROUP_CHUNKS).map(|_| OnceLock::new()).collect());
        let chunk = group[chunk % GROUP_CHUNKS]
            .get_or_init(|| (0..CHUNK_PAGES).map(|_| AtomicU8::new(ABSENT)).collect());
        &chunk[at]
    }

    /// The state of a page.
    pub fn get(&self, page: usize) -> u8 {
        // ordering: Acquire, so that who finds it RESIDENT finds its bytes, too
        self.known(page).map_or(ABSENT, |state| state.load(Ordering::Acquire))
    }

    /// Moves a page on, if it is in state `from`.
    pub fn change(&self, page: usize, from: u8, to: u8) -> bool {
        // ordering: AcqRel: what was done to the page before is seen by who goes on with it; and
        // SeqCst against the publication of a write: either the filler reads the new bytes, or the
        // writer sees that it is filling
        let (yes, no) = (Ordering::SeqCst, Ordering::SeqCst);
        self.made(page).compare_exchange(from, to, yes, no).is_ok()
    }

    /// Sets the state of a page that is this thread's to move on.
    pub fn set(&self, page: usize, to: u8) {
        // ordering: Release hands on what was done to the page
        self.made(page).store(to, Ordering::Release);
    }

    /// The first page from `page` on whose state is kept; those before it are absent.
    pub fn next_known(&self, mut page: usize) -> Option<usize> {
        while page < self.pages {
            let chunk = page / CHUNK_PAGES;
            match self.groups[chunk / GROUP_CHUNKS].get() {
                None => page = (chunk / GROUP_CHUNKS + 1) * GROUP_CHUNKS * CHUNK_PAGES,
                Some(group) if group[chunk % GROUP_CHUNKS].get().is_some() => return Some(page),
                Some(_) => page = (chunk + 1) * CHUNK_PAGES,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_kept_where_they_were_set() {
        let states = PageStates::new(1 << 34);
        for page in [0, 1, 4095, 4096, 1 << 22, (1 << 34) - 1] {
            assert_eq!(states.get(page), ABSENT);
            assert!(states.change(page, ABSENT, FILLING));
            assert!(!states.change(page, ABSENT, FILLING));
            assert_eq!(states.get(page), FILLING);
        }
        assert_eq!(states.next_known(0), Some(0));
        assert_eq!(states.next_known(8192), Some(1 << 22));
        assert_eq!(states.next_known((1 << 22) + 4096), Some((1 << 34) - 4096));
    }
}
