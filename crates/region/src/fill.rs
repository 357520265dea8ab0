//! Bringing pages: what faults, and its neighbours.

use crate::PAGE_BYTES;
use crate::page_states::{ABSENT, COLD, EVICTING, FILLING, INSTALLING, RESIDENT, STALE, WRITING};
use crate::region::Inner;
use crate::regions::{Shared, is_rung};
use crate::userfault::wait_readable;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

/// Pages that a fault brings at first, and at most where one follows the other.
const PAGES_FIRST: usize = 8;
const PAGES_MAX: usize = 128;
/// How long a thread waits for a fault before it looks whether it is to end.
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
    /// Somebody waits for a page.
    fn bring(&self, page: usize, buffer: &mut [u8]) {
        loop {
            let state = self.pages.get(page);
            match state {
                ABSENT => {
                    if self.pages.change(page, ABSENT, FILLING) {
                        return self.fill(page, buffer);
                    }
                }
                EVICTING => std::thread::yield_now(),
                RESIDENT | COLD | WRITING if self.memory.is_guarded() => {
                    // it is not taken away meanwhile
                    if state != WRITING && self.pages.change(page, state, WRITING) {
                        return self.show(page);
                    }
                    std::thread::yield_now();
                }
                // another thread is at it, and wakes whoever waits
                FILLING | STALE | INSTALLING => return,
                _ => return self.wake(page..page + 1),
            }
        }
    }

    /// Shows a page of guarded memory that is this thread's, and there.
    fn show(&self, page: usize) {
        let at = page * PAGE_BYTES;
        let shown = self.shared.show(&self.memory, at, PAGE_BYTES);
        self.pages.set(page, RESIDENT);
        match shown {
            Ok(()) => self.wake(page..page + 1),
            Err(error) => {
                tracing::error!("a page of a region cannot be put in place: {error}");
                self.shared.faults.refuse(&self.memory, at);
            }
        }
    }

    fn wake(&self, pages: Range<usize>) {
        let (at, bytes) = (pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES);
        self.shared.faults.wake(&self.memory, at, bytes);
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

    /// Puts pages in place that are INSTALLING. What cannot be put there is absent again, and who
    /// waits for it tries again: or is told by a signal, if that cannot work either.
    fn install(&self, first: usize, bytes: &[u8]) {
        let count = bytes.len() / PAGE_BYTES;
        let mut done = 0;
        while done < count {
            // counted before somebody can see them, and unmap the region for it
            self.shared.came(self, count - done);
            let rest = &bytes[done * PAGE_BYTES..];
            let at = (first + done) * PAGE_BYTES;
            let copied = self.shared.put(&self.memory, at, rest);
            let pages = copied.as_ref().map_or(0, |bytes| bytes / PAGE_BYTES);
            self.shared.gone(self, count - done - pages);
            (done..done + pages).for_each(|page| self.pages.set(first + page, RESIDENT));
            self.shared.faults.settled(&self.memory, at, pages * PAGE_BYTES);
            done += pages;
            if pages == 0 {
                // a page that cannot be loaded from, or no memory: that one is left
                tracing::error!("a page of a region cannot be put in place: {copied:?}");
                let page = first + done;
                // whatever is there is not what the file holds
                drop(self.memory.drop_pages(page * PAGE_BYTES, PAGE_BYTES));
                match self.memory.is_guarded() {
                    true => self.refuse(page),
                    false => self.give_up(page..page + 1),
                }
                done += 1;
            }
        }
    }

    /// These pages, which were this thread's, are absent again; who waits for them asks again.
    fn give_up(&self, pages: Range<usize>) {
        pages.clone().for_each(|page| self.pages.set(page, ABSENT));
        self.wake(pages);
    }

    /// The bytes cannot be read. Of several pages, each is tried by itself; whoever loads from one
    /// that cannot is ended by a signal: there is no other answer to a load.
    fn fail(&self, pages: Range<usize>, error: &fs::Error) -> Range<usize> {
        if pages.len() > 1 {
            self.give_up(pages.start + 1..pages.end);
            return pages.start..pages.start + 1;
        }
        tracing::error!(
            "a page of a region cannot be read ({error}): file offset {}",
            self.offset + (pages.start * PAGE_BYTES) as u64
        );
        self.refuse(pages.start);
        pages.end..pages.end
    }

    /// A page, which was this thread's, is absent again, and who waits for it is told by a signal.
    fn refuse(&self, page: usize) {
        self.pages.set(page, ABSENT);
        self.shared.faults.refuse(&self.memory, page * PAGE_BYTES);
    }
}
