//! Bringing pages: what faults, and its neighbours.

use crate::PAGE_BYTES;
use crate::page_states::{ABSENT, EVICTING, FILLING, INSTALLING, RESIDENT, STALE};
use crate::region::Inner;
use crate::regions::{Shared, is_rung};
use crate::userfault::wait_readable;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

/// Pages that a fault brings at first, and at most where one follows the other.
const PAGES_FIRST: usize = 8;
const PAGES_MAX: usize = 128;
/// How often the bytes of a page are read again that change all the time, before those who wait get
/// a page to themselves each time.
const LOOK_EVERY_MS: i32 = 1000;

/// Serves faults until `stop` rings.
pub fn serve(shared: &Shared, stop: RawFd) {
    let mut buffer = vec![0; PAGES_MAX * PAGE_BYTES];
    loop {
        wait_readable([shared.faults.descriptor(), stop], LOOK_EVERY_MS);
        while let Some(address) = shared.faults.next() {
            if let Some(region) = shared.find(address as usize) {
                let page = (address as usize - region.addresses().start) / PAGE_BYTES;
                region.bring(page, &mut buffer);
            }
        }
        if is_rung(stop) {
            return;
        }
    }
}

impl Inner {
    fn address(&self, page: usize) -> u64 {
        (self.addresses().start + page * PAGE_BYTES) as u64
    }

    /// Somebody waits for a page.
    fn bring(&self, page: usize, buffer: &mut [u8]) {
        loop {
            match self.pages.get(page) {
                ABSENT => {
                    if self.pages.change(page, ABSENT, FILLING) {
                        return self.fill(page, buffer);
                    }
                }
                EVICTING => std::thread::yield_now(),
                // another thread is at it, and wakes whoever waits
                FILLING | STALE | INSTALLING => return,
                _ => return self.shared.faults.wake(self.address(page), PAGE_BYTES),
            }
        }
    }

    /// Brings a page that is this thread's to bring, and as many behind it as seem wanted.
    fn fill(&self, first: usize, buffer: &mut [u8]) {
        let wanted = self.window(first);
        self.shared.make_room(wanted);
        let mut end = first + 1;
        while end < (first + wanted).min(self.pages.len())
            && self.pages.change(end, ABSENT, FILLING)
        {
            end += 1;
        }
        let mut left = first..end;
        while !left.is_empty() {
            left = self.fill_run(left, buffer);
        }
    }

    /// How many pages to bring: more, where this fault comes right behind the last ones.
    fn window(&self, page: usize) -> usize {
        // ordering: a guess, of two threads each may be right
        let expected = self.expected.load(Ordering::Relaxed);
        let (next, pages) = ((expected >> 16) as usize, (expected & 0xFFFF) as usize);
        let pages = match expected != u64::MAX && next == page {
            true => (pages * 2).clamp(PAGES_FIRST, PAGES_MAX),
            false => PAGES_FIRST,
        };
        self.expected.store(((page + pages) as u64) << 16 | pages as u64, Ordering::Relaxed);
        pages
    }

    /// Reads these pages and puts in place those that did not change meanwhile; gives the others.
    fn fill_run(&self, pages: Range<usize>, buffer: &mut [u8]) -> Range<usize> {
        let bytes = &mut buffer[..pages.len() * PAGE_BYTES];
        let offset = self.offset + (pages.start * PAGE_BYTES) as u64;
        if let Err(error) = self.shared.fs.read_unlocked(&self.file, offset, bytes) {
            return self.fail(pages, &error);
        }
        // in runs: from the first page on as long as they are whole
        let mut whole = pages.start;
        while whole < pages.end && self.pages.change(whole, FILLING, INSTALLING) {
            whole += 1;
        }
        let run = &bytes[..(whole - pages.start) * PAGE_BYTES];
        if !run.is_empty() {
            self.install(pages.start, run);
        }
        if whole < pages.end {
            // its bytes changed since they were read, and perhaps those of others behind it
            for page in whole..pages.end {
                self.pages.change(page, STALE, FILLING);
            }
        }
        whole..pages.end
    }

    fn install(&self, first: usize, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            match self.shared.faults.copy(self.address(first) + done as u64, &bytes[done..]) {
                Ok(0) => {
                    // it was there: nobody but this thread may have put it there
                    tracing::error!("a page of a region was there before it was brought");
                    done += PAGE_BYTES;
                }
                Ok(copied) => done += copied,
                Err(error) => {
                    // the region goes just now
                    tracing::debug!("a page of a region: {error}");
                    break;
                }
            }
        }
        let count = bytes.len() / PAGE_BYTES;
        self.shared.came(self, count);
        (first..first + count).for_each(|page| self.pages.set(page, RESIDENT));
    }

    /// The bytes cannot be read. Of several pages, each is tried by itself; whoever loads from one
    /// that cannot is ended by a signal: there is no other answer to a load.
    fn fail(&self, pages: Range<usize>, error: &fs::Error) -> Range<usize> {
        if pages.len() > 1 {
            for page in pages.start + 1..pages.end {
                self.pages.set(page, ABSENT);
            }
            return pages.start..pages.start + 1;
        }
        tracing::error!(
            "a page of a region cannot be read ({error}): file offset {}",
            self.offset + (pages.start * PAGE_BYTES) as u64
        );
        self.memory.forbid(pages.start * PAGE_BYTES);
        self.pages.set(pages.start, ABSENT);
        self.shared.faults.wake(self.address(pages.start), PAGE_BYTES);
        pages.end..pages.end
    }
}
