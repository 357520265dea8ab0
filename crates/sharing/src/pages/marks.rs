//! What the server notes of the pages of kernels: marks, bases, and notices that are owed.

use super::base::PageBase;
use super::bounds::Bounds;
use super::byte_values::{is_value_of, plain};
use super::fault::Fault;
use super::state::{
    Byte, Call, Change, Door, GivenPage, Image, KERNELS, PAGE_BYTES, PAGES, Read, Snapshot, State,
    Waits,
};

impl State {
    /// Marks the page as given to the kernel, which has no page of its own or gets this one.
    pub(super) fn give(&mut self, kernel: usize, page: usize, bounds: &Bounds) {
        let given = &mut self.given[kernel][page];
        (given.is_given, given.is_touched, given.cut_from) = (true, true, None);
        given.is_in_doubt |= given.is_noticed;
        if !bounds.has(Fault::ReadKeepsBase) {
            given.base = None;
        }
    }

    /// These bytes are about to be changed by the door: of every other kernel that has a page of
    /// them the base is kept, and it is owed a notice. Returns which notices those are.
    pub(super) fn keep_bases(
        &mut self,
        by: Door,
        bytes: std::ops::Range<usize>,
        bounds: &Bounds,
    ) -> Waits {
        let mut waits = Waits::default();
        for page in (0..PAGES).filter(|page| bytes.clone().any(|it| it / PAGE_BYTES == *page)) {
            let content = self.content(page);
            for kernel in (0..KERNELS).filter(|kernel| by != Door::Kernel(*kernel)) {
                let given = &mut self.given[kernel][page];
                if !given.is_given {
                    continue;
                }
                if given.base.is_none() || bounds.has(Fault::SecondChangeReplacesBase) {
                    given.base = Some(PageBase::of(content));
                }
                if bounds.has(Fault::NoBases) {
                    given.base = None;
                }
                (given.is_owed, given.is_touched) = (true, true);
                waits.next |= 1 << (kernel * PAGES + page);
            }
        }
        waits
    }

    /// Writes the bytes of a call of this door to the file.
    pub(super) fn change_file(&mut self, call: &mut Call) {
        let changed = call.change.changed(self.size);
        match call.change {
            Change::Cut(size) => {
                for byte in size.min(self.size)..self.size {
                    self.push(byte, 0);
                }
                self.size = size;
            }
            change => {
                change.bytes().for_each(|byte| self.push(byte, call.value));
                self.size = self.size.max(change.bytes().end);
            }
        }
        let versions = self.versions();
        changed.for_each(|byte| call.versions[byte] = versions[byte]);
    }

    fn push(&mut self, byte: usize, value: Byte) {
        if self.history[byte].last() != Some(&value) {
            self.history[byte].push(value);
        }
    }

    /// The file is about to be cut: what kernels have behind the end may be zeros by now.
    pub(super) fn note_cut(&mut self, size: usize, bounds: &Bounds) {
        let counts_zeros = !bounds.has(Fault::CutWithoutZeros);
        for (given, kernel) in self.given.iter_mut().zip(&self.kernels) {
            for byte in size..self.size.max(size) {
                let (page, at) = (byte / PAGE_BYTES, byte % PAGE_BYTES);
                given[page].cut(at, counts_zeros);
                if let Read::Beside | Read::ReadBeside(..) = kernel.pages[page].read {
                    let from = given[page].beside_cut_from.unwrap_or(u8::MAX);
                    given[page].beside_cut_from = Some(from.min(at as u8));
                }
            }
        }
    }

    /// A buffered write of the kernel is about to be made. Where a notice may have dropped the page
    /// that it filled, and the kernel have read the page again, both are kept. Returns whether it
    /// is so.
    pub(super) fn note_doubt(&mut self, kernel: usize, call: &Call, bounds: &Bounds) -> bool {
        let Some(page) = call.change.buffered_page() else { return false };
        let content = self.content(page);
        let given = &mut self.given[kernel][page];
        let is_in_doubt = match bounds.fault {
            Some(Fault::NoDoubt) => false,
            Some(Fault::DoubtByNumbers) => call.is_passed,
            _ => given.is_in_doubt,
        };
        if is_in_doubt {
            given.base.get_or_insert(PageBase::of(content));
            (given.is_owed, given.is_touched) = (true, true);
        }
        // a write-back may come before this is served, and again before the next server serves it
        let notes = bounds.fault != Some(Fault::WriteNotInBase);
        let notes = notes && (is_in_doubt || !bounds.has(Fault::WriteInBaseLate));
        if let Some(base) = given.base.as_mut().filter(|_| notes) {
            for byte in call.change.bytes() {
                base.other[byte % PAGE_BYTES] = call.value;
            }
        }
        is_in_doubt
    }

    /// A buffered write of the kernel was made. Its own page has the bytes, but in doubt.
    pub(super) fn note_own_write(&mut self, kernel: usize, call: &mut Call, bounds: &Bounds) {
        let Some(page) = call.change.buffered_page() else { return };
        let given = &mut self.given[kernel][page];
        if !call.is_in_doubt {
            if let Some(base) = &mut given.base
                && !bounds.has(Fault::WriteNotInBase)
            {
                for byte in call.change.bytes() {
                    let at = byte % PAGE_BYTES;
                    base.set(at, call.value);
                    // a kernel that hears of a cut may make zeros of what it has written
                    call.is_in_doubt |= at >= usize::from(base.zeros_from);
                }
            }
            let is_whole = matches!(call.change, Change::WriteWhole(_));
            if is_whole && !bounds.has(Fault::WholeWriteNotGiven) {
                (given.is_given, given.is_touched) = (true, true);
                given.is_owed |= given.base.is_some();
            }
        }
        self.end_doubt(kernel);
    }

    /// The notice to its own kernel that a buffered write waits for: where the page may lack what
    /// was written, a store of what was there before could not be told from that.
    pub(super) fn own_waits(&mut self, kernel: usize, call: &Call, bounds: &Bounds) -> u8 {
        let Some(page) = call.change.buffered_page().filter(|_| call.is_in_doubt) else { return 0 };
        let given = &mut self.given[kernel][page];
        let Some(base) = given.base.filter(|_| given.is_given) else { return 0 };
        let is_zeroed = |byte: usize| byte % PAGE_BYTES >= usize::from(base.zeros_from);
        let fault = match call.change.bytes().any(is_zeroed) {
            true => Fault::ZeroedWriteReturns,
            false => Fault::DoubtedWriteReturns,
        };
        (given.is_owed, given.is_touched) = (true, true);
        if bounds.has(fault) { 0 } else { 1 << (kernel * PAGES + page) }
    }

    /// No buffered write of the kernel that it began before is still to be served.
    pub(super) fn end_doubt(&mut self, kernel: usize) {
        let at_notice = self.kernels[kernel].invalidation.page();
        for (page, given) in self.given[kernel].iter_mut().enumerate() {
            given.is_in_doubt = false;
            given.is_noticed = at_notice == Some(page);
        }
    }

    /// The bytes of a write-back that the kernel changed itself.
    fn own_bytes(
        &self,
        kernel: usize,
        page: usize,
        snapshot: Snapshot,
        bounds: &Bounds,
    ) -> Vec<usize> {
        let content = self.content(page);
        let base = match self.given[kernel][page].base {
            Some(base) if !bounds.has(Fault::WritesWholePage) => base,
            _ => PageBase::of(content),
        };
        let is_own = |at: &usize| base.is_own(*at, snapshot.bytes[*at]);
        (0..usize::from(snapshot.length)).filter(is_own).collect()
    }

    /// Merges a write-back into the file. Returns which notices are owed by it.
    pub(super) fn store_page(
        &mut self,
        kernel: usize,
        page: usize,
        snapshot: Snapshot,
        bounds: &Bounds,
    ) -> Waits {
        let own = self.own_bytes(kernel, page, snapshot, bounds);
        let start = page * PAGE_BYTES;
        let mut waits = Waits::default();
        if !bounds.has(Fault::WriteBackNotCounted) {
            // keeping a base of an unchanged page would cost a notice
            let bytes = own.iter().filter(|at| start + **at < self.size);
            let first = bytes.clone().min().map_or(0, |at| start + at);
            let end = bytes.max().map_or(0, |at| start + at + 1);
            waits = self.keep_bases(Door::Kernel(kernel), first..end, bounds);
        }
        for at in own {
            let byte = start + at;
            if byte < self.size {
                self.write_back_byte(kernel, byte, snapshot.bytes[at]);
            } else if bounds.has(Fault::WritesBehindEnd) {
                self.write_back_byte(kernel, byte, snapshot.bytes[at]);
                self.wrong = Some(super::flaw::Flaw::GrewBack);
            } else if !self.history[byte].contains(&snapshot.bytes[at]) {
                // as if it had been written, and cut
                self.history[byte].push(snapshot.bytes[at]);
                self.history[byte].push(0);
            }
        }
        waits
    }

    /// A write-back was merged: its bytes are the base of the page now. Where the file was cut the
    /// kernel may still make zeros of them.
    pub(super) fn note_write_back(
        &mut self,
        kernel: usize,
        page: usize,
        snapshot: Snapshot,
        bounds: &Bounds,
    ) {
        let (size, content) = (self.size, self.content(page));
        let own = self.own_bytes(kernel, page, snapshot, bounds);
        let given: &mut GivenPage = &mut self.given[kernel][page];
        if !given.is_given {
            (given.is_given, given.is_touched) = (true, true);
        }
        let is_behind = |at: &usize| page * PAGE_BYTES + at >= size;
        if own.iter().any(is_behind) && !bounds.has(Fault::CutOffNotNotified) {
            // the kernel has bytes behind the end, and does not know where that is
            given.base.get_or_insert(PageBase::of(content));
            (given.is_owed, given.is_touched) = (true, true);
        }
        let counts_zeros = !bounds.has(Fault::CutWithoutZeros);
        for at in 0..usize::from(snapshot.length) {
            let skips = is_behind(&at) && bounds.has(Fault::CutOffNotInBase);
            if let Some(base) = given.base.as_mut().filter(|_| !skips) {
                base.set(at, snapshot.bytes[at]);
                if bounds.has(Fault::WriteBackEndsZeros) {
                    base.zeros_from = PAGE_BYTES as u8;
                }
            }
            // the kernel makes zeros of it when it hears of the end
            if is_behind(&at) {
                given.cut(at, counts_zeros);
            }
        }
    }

    /// Each byte that the kernel stored before this write-back is in the file, or was.
    pub(super) fn look_for_lost(&mut self, kernel: usize, page: usize, snapshot: Snapshot) {
        for at in 0..usize::from(snapshot.length) {
            let (byte, value) = (page * PAGE_BYTES + at, snapshot.bytes[at]);
            // what a call writes that is under way comes by that
            let is_call = self.kernels[kernel].call.is_some_and(|call| call.value == value);
            let is_own = is_value_of(value, kernel) && !is_call;
            // a comparison of bytes cannot tell a value that is there again
            let last = self.history[byte].last().copied().unwrap_or(0);
            let is_own = is_own && plain(value) != plain(last);
            if is_own && !self.history[byte].contains(&value) && self.wrong.is_none() {
                self.wrong = Some(super::flaw::Flaw::StoreLost(kernel, byte));
            }
        }
    }

    /// What a READ of the page gives.
    pub(super) fn read_page(&self, page: usize) -> Image {
        let content = self.content(page);
        std::array::from_fn(|at| if page * PAGE_BYTES + at < self.size { content[at] } else { 0 })
    }
}
