//! Copies whose memory is this process's: those that a service on a network speaks of.
//!
//! It says what becomes of them, by the stream over which it answers, in the order in which files
//! change ([`OfCopy`]). Whoever reads the stream does that at once, before he goes on to what came
//! behind it. So when an answer is there, all is in the copies that had come about before it. They
//! are one connection's: with the next one there are others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use parking_lot::Mutex;
use wire::OfCopy;

use crate::{Error, Result};

const PAGE: u64 = 4096;

/// The copies of one connection.
#[derive(Debug, Default)]
pub struct Kept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    all: HashMap<u64, Copy>,
    /// Most pages that are there.
    pages_max: usize,
    present: usize,
    stamp: u64,
    /// Pages in the order in which they came, by copy, page and stamp; some are gone already.
    queue: VecDeque<(u64, u64, u64)>,
}

#[derive(Debug)]
struct Copy {
    memory: File,
    /// Pages.
    count: u64,
    /// Those that are there, with their stamps.
    pages: BTreeMap<u64, u64>,
}

impl Kept {
    /// Memory for a copy of so many bytes, of which no page is there. All copies together have
    /// `memory_bytes` at most: pages that came first go first.
    pub fn make(&self, copy: u64, bytes: u64, memory_bytes: u64) -> Result<OwnedFd> {
        let count = bytes.div_ceil(PAGE);
        let made = shm::page_by_page("nearside-copy", count * PAGE);
        let (memory, shown) = made.map_err(Error::of_memory)?;
        let mut state = self.0.lock();
        state.pages_max = usize::try_from(memory_bytes / PAGE).unwrap_or(usize::MAX);
        state.all.insert(copy, Copy { memory, count, pages: BTreeMap::new() });
        Ok(shown)
    }

    /// Nobody loads from it any more.
    pub fn remove(&self, copy: u64) {
        let mut state = self.0.lock();
        if let Some(gone) = state.all.remove(&copy) {
            state.present -= gone.pages.len();
        }
    }

    /// The service says this. False: it makes no sense.
    pub fn hear(&self, message: &[u8], data: &[u8]) -> bool {
        let Ok(said) = wire::decode::<OfCopy>(message) else { return false };
        let state = &mut *self.0.lock();
        match said {
            OfCopy::Pages { copy, page } => state.put(copy, page, data),
            OfCopy::Written { copy, at } => state.written(copy, at, data),
            OfCopy::Gone { copy, page, pages } => {
                state.gone(copy, page..page.saturating_add(pages));
                true
            }
        }
    }
}

impl State {
    fn put(&mut self, copy: u64, first: u64, data: &[u8]) -> bool {
        // what has ended here the service may speak of for a moment
        let Some(one) = self.all.get_mut(&copy) else { return true };
        let count = data.len() as u64 / PAGE;
        let is_inside = first.checked_add(count).is_some_and(|end| end <= one.count);
        if !is_inside || !(data.len() as u64).is_multiple_of(PAGE) {
            return false;
        }
        for (page, bytes) in (first..).zip(data.chunks_exact(PAGE as usize)) {
            // one that is there has these bytes
            if one.pages.contains_key(&page) {
                continue;
            }
            if let Err(error) = one.memory.write_all_at(bytes, page * PAGE) {
                tracing::error!("a page of a region cannot be kept: {error}");
                punch(&one.memory, page..page + 1);
                continue;
            }
            self.stamp += 1;
            self.present += 1;
            one.pages.insert(page, self.stamp);
            self.queue.push_back((copy, page, self.stamp));
        }
        self.make_room();
        true
    }

    fn written(&mut self, copy: u64, at: u64, data: &[u8]) -> bool {
        let Some(one) = self.all.get_mut(&copy) else { return true };
        let Some(end) = at.checked_add(data.len() as u64).filter(|end| *end <= one.count * PAGE)
        else {
            return false;
        };
        let pages = at / PAGE..end.div_ceil(PAGE);
        let there: Vec<u64> = one.pages.range(pages).map(|(page, _)| *page).collect();
        for page in there {
            let (low, high) = (at.max(page * PAGE), end.min((page + 1) * PAGE));
            let part = &data[(low - at) as usize..(high - at) as usize];
            if one.memory.write_all_at(part, low).is_err() {
                one.pages.remove(&page);
                self.present -= 1;
                punch(&one.memory, page..page + 1);
            }
        }
        true
    }

    fn gone(&mut self, copy: u64, pages: Range<u64>) {
        let Some(one) = self.all.get_mut(&copy) else { return };
        let mut there = one.pages.range(pages).map(|(page, _)| *page).peekable();
        let mut runs: Vec<Range<u64>> = Vec::new();
        while let Some(first) = there.next() {
            let mut end = first + 1;
            while there.next_if_eq(&end).is_some() {
                end += 1;
            }
            runs.push(first..end);
        }
        drop(there);
        for run in runs {
            self.present -= (run.end - run.start) as usize;
            run.clone().for_each(|page| _ = one.pages.remove(&page));
            punch(&one.memory, run);
        }
    }

    /// Pages that came first go, while there are too many.
    fn make_room(&mut self) {
        let is_long = |state: &State| {
            // of what went by itself it forgets what came long ago
            state.queue.len() > state.pages_max.saturating_mul(2).saturating_add(1024)
        };
        while self.present > self.pages_max || is_long(self) {
            let Some((copy, page, stamp)) = self.queue.pop_front() else { return };
            let Some(one) = self.all.get_mut(&copy) else { continue };
            if one.pages.get(&page) == Some(&stamp) {
                one.pages.remove(&page);
                self.present -= 1;
                punch(&one.memory, page..page + 1);
            }
        }
    }
}

fn punch(memory: &File, pages: Range<u64>) {
    let bytes = (pages.end - pages.start) * PAGE;
    if let Err(error) = shm::punch(memory, pages.start * PAGE, bytes) {
        // it would show what is no longer so
        panic!("a page of a region cannot be taken away: {error}");
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
