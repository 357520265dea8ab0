//! Loading past a region: from pages that are absent and stay so.

use crate::PAGE_BYTES;
use crate::error::Result;
use crate::page_states::ABSENT;
use crate::region::Inner;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Pages that are this thread's, and absent again when it is done with them, whatever happens.
struct Claim<'r> {
    region: &'r Inner,
    pages: Range<usize>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.region.leave(self.pages.clone());
    }
}

impl Inner {
    /// Whether the bytes of these pages are better read than brought: the first of them is absent,
    /// was not asked for lately, and others would have to go.
    pub fn is_to_be_passed(&self, pages: &Range<usize>) -> bool {
        self.pages.get(pages.start) == ABSENT
            && self.shared.is_nearly_full(pages.len())
            && !self.shared.asked.ask(self.numbers_of(pages))
    }

    /// Numbers of pages in the address space.
    fn numbers_of(&self, pages: &Range<usize>) -> Range<usize> {
        let start = self.addresses().start / PAGE_BYTES;
        start + pages.start..start + pages.end
    }

    /// Loads from several pages; what is absent is read, and absent again. Nobody brings it
    /// meanwhile: who began before could show what is older than what is loaded here.
    pub fn load_past(&self, offset: usize, buffer: &mut [u8]) -> Result<()> {
        let pages_end = (offset + buffer.len()).div_ceil(PAGE_BYTES);
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done;
            let first = at / PAGE_BYTES;
            let taken = self.take(first, pages_end);
            let end = taken.end.max(first + 1);
            let stop = (end * PAGE_BYTES - offset).min(buffer.len());
            let part = &mut buffer[done..stop];
            done = stop;
            if taken.is_empty() {
                self.memory.load(at, part);
                continue;
            }
            let place = self.offset + at as u64;
            self.shared.counts.passed.fetch_add(taken.len() as u64, Ordering::Relaxed);
            let _claim = Claim { region: self, pages: taken };
            self.read_file(place, part, &mut || {})?;
        }
        Ok(())
    }
}
