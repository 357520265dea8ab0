//! What a kernel does with its cached pages.

use super::bounds::Bounds;
use super::byte_values::{again_of, is_value_of, value_of};
use super::state::{
    Byte, Call, Change, Door, Invalidation, Kernel, NO_PAGE, PAGE_BYTES, PAGES, Page, Phase, Read,
    Snapshot, State, WriteBack,
};

/// A step of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KernelStep {
    /// A page is loaded from that is not cached: the kernel locks it and sends a READ.
    Fault(usize),
    /// The answer to the READ comes into the cache.
    Insert(usize),
    /// A mapping stores to a byte.
    Store(usize),
    /// A mapping stores to a byte what that was before the kernel's own write, which has returned.
    StoreAgain(usize),
    /// Sends a write-back of a dirty page.
    WriteBack(usize),
    /// The answer to a write-back comes.
    EndWriteBack(usize),
    /// Drops a clean page to get its memory back.
    Evict(usize),
    /// Asks for the size of the file, and the server answers.
    AskSize,
    /// The answer comes: the kernel takes it for the size, unless it has heard of anything newer,
    /// and drops what lies behind it.
    HearSize,
    /// Begins a call that changes the file. A buffered write fills the cached page.
    Begin(Change),
    /// Sends the request of a buffered write.
    Send,
    /// The answer to the call comes. A buffered write returns.
    HearAnswer,
    /// A truncation drops what lies behind the new size, or writes dirty pages back, or drops all
    /// pages and returns.
    GoOnCutting,
    /// The answer to the direct write comes, which returns.
    EndDirect,
    /// A notice takes the page's lock, and drops the page or has it written back.
    Invalidate,
    /// A notice drops the page that was written back.
    DropLaundered,
}

impl Kernel {
    /// The page is locked by a READ, a buffered write or a notice.
    pub(super) fn is_locked(&self, page: usize) -> bool {
        let is_written = self
            .call
            .is_some_and(|call| call.is_locking && call.change.buffered_page() == Some(page));
        let is_laundered = self.invalidation == Invalidation::Laundering(page);
        self.pages[page].read != Read::None || is_written || is_laundered
    }

    /// Neither locked nor under write-back.
    fn is_free(&self, page: usize) -> bool {
        !self.is_locked(page) && self.pages[page].write_back == WriteBack::None
    }

    /// A truncation keeps write-backs from being sent.
    fn is_cutting(&self) -> bool {
        self.call.is_some_and(|call| {
            matches!(call.change, Change::Cut(_)) && !matches!(call.phase, Phase::Cutting { .. })
        })
    }

    /// No call is under way that may change the size: else the kernel takes none from answers.
    fn keeps_size(&self) -> bool {
        self.call.is_none_or(|call| {
            call.change.buffered_page().is_some() && call.change.bytes().end <= self.size
        })
    }

    /// What a write-back of the page carries.
    fn snapshot(&self, page: usize) -> Snapshot {
        let length = self.size.saturating_sub(page * PAGE_BYTES).min(PAGE_BYTES);
        Snapshot { bytes: self.pages[page].bytes, length: length as u8 }
    }

    fn write_back(&mut self, page: usize) {
        let snapshot = self.snapshot(page);
        self.pages[page].is_dirty = false;
        self.pages[page].write_back = match snapshot.length {
            0 => WriteBack::None,
            _ if self.is_cutting() => WriteBack::Queued(snapshot),
            _ => WriteBack::Sent { snapshot, is_stored: false },
        };
    }

    /// Takes away what lies behind the size.
    fn cut_pages(&mut self) {
        for page in 0..PAGES {
            let length = self.snapshot(page).length;
            match length {
                0 => self.pages[page] = NO_PAGE,
                1 if self.pages[page].is_cached => self.pages[page].bytes[1] = 0,
                _ => {}
            }
        }
    }

    /// The pages that have bytes behind the size.
    fn pages_behind(&self) -> std::ops::Range<usize> {
        (self.size / PAGE_BYTES)..PAGES
    }

    fn can_evict(&self, page: usize) -> bool {
        let is_written = self.call.is_some_and(|it| it.change.buffered_page() == Some(page));
        let Page { is_cached, is_dirty, .. } = self.pages[page];
        is_cached && !is_dirty && self.is_free(page) && !is_written
    }

    fn can_store(&self, byte: usize, bounds: &Bounds) -> bool {
        let page = &self.pages[byte / PAGE_BYTES];
        let may_store = page.write_back == WriteBack::None || bounds.stores_under_write_back;
        let is_locked = self.is_locked(byte / PAGE_BYTES);
        // a write-back may overtake a buffered write of the same byte: no server can tell
        let is_written = |call: Call| {
            call.change.buffered_page().is_some() && call.change.bytes().contains(&byte)
        };
        let is_written = self.call.is_some_and(is_written);
        page.is_cached && !is_locked && !is_written && may_store && byte < self.size
    }

    fn can_go_on_cutting(&self) -> bool {
        let Some(Call { phase: Phase::Cutting { is_cut }, .. }) = self.call else { return false };
        if !is_cut {
            return self.pages_behind().all(|page| self.is_free(page));
        }
        let dirty = (0..PAGES).find(|page| self.pages[*page].is_dirty);
        match dirty {
            Some(page) => self.is_free(page),
            None => (0..PAGES).all(|page| self.is_free(page)),
        }
    }

    fn go_on_cutting(&mut self) {
        let Some(call) = &mut self.call else { return };
        if call.phase == (Phase::Cutting { is_cut: false }) {
            call.phase = Phase::Cutting { is_cut: true };
            return self.cut_pages();
        }
        let dirty = (0..PAGES).find(|page| self.pages[*page].is_dirty);
        match dirty {
            Some(page) => self.write_back(page),
            None => {
                self.pages = [NO_PAGE; PAGES];
                self.call = None;
            }
        }
    }

    /// Steps that take something under way further.
    fn steps_on(&self) -> Vec<KernelStep> {
        use KernelStep::{
            DropLaundered, EndDirect, EndWriteBack, GoOnCutting, HearAnswer, HearSize, Insert,
            Invalidate, Send,
        };
        let mut steps = Vec::new();
        for (number, page) in self.pages.iter().enumerate() {
            steps.extend(matches!(page.read, Read::Answered(..)).then_some(Insert(number)));
            let is_answered = page.write_back == WriteBack::Answered;
            steps.extend(is_answered.then_some(EndWriteBack(number)));
        }
        match self.call {
            Some(Call { phase: Phase::Filled, change, .. }) => {
                let page = change.buffered_page().unwrap_or(0);
                let may_send = self.pages[page].write_back == WriteBack::None;
                steps.extend(may_send.then_some(Send));
            }
            Some(Call { phase: Phase::Answered { .. }, .. }) => steps.push(HearAnswer),
            _ => steps.extend(self.can_go_on_cutting().then_some(GoOnCutting)),
        }
        let is_ended = self.direct.is_some_and(|call| matches!(call.phase, Phase::Answered { .. }));
        steps.extend(is_ended.then_some(EndDirect));
        let hears_size = self.size_told.is_some() && (0..PAGES).all(|page| self.is_free(page));
        steps.extend(hears_size.then_some(HearSize));
        match self.invalidation {
            Invalidation::Waiting(page) if self.is_free(page) => steps.push(Invalidate),
            Invalidation::Laundering(page) if self.pages[page].write_back == WriteBack::None => {
                steps.push(DropLaundered);
            }
            _ => {}
        }
        steps
    }

    fn steps_begun(&self, number: usize, bounds: &Bounds) -> Vec<KernelStep> {
        use KernelStep::{Begin, Evict, Fault, Store, WriteBack as Writes};
        let (may, counts) = (&bounds.kernels[number], &self.counts);
        let is_absent = |page: &usize| {
            let is_there = self.pages[*page].is_cached || page * PAGE_BYTES >= self.size;
            !is_there && self.is_free(*page)
        };
        let mut steps: Vec<_> =
            may.reads.places(counts.reads).filter(is_absent).map(Fault).collect();
        let stores = may.stores.places(counts.stores);
        steps.extend(stores.filter(|byte| self.can_store(*byte, bounds)).map(Store));
        let dirty = |page: &usize| self.pages[*page].is_dirty && self.is_free(*page);
        steps.extend((0..PAGES).filter(dirty).map(Writes));
        let evictable = |page: &usize| counts.evictions < may.evictions && self.can_evict(*page);
        steps.extend((0..PAGES).filter(evictable).map(Evict));
        if self.call.is_none() {
            let is_unlocked =
                |change: &Change| change.buffered_page().is_none_or(|page| !self.is_locked(page));
            let writes = may.writes.places(counts.writes).map(Change::Write);
            let whole = may.whole_writes.places(counts.whole_writes).map(Change::WriteWhole);
            steps.extend(writes.chain(whole).filter(is_unlocked).map(Begin));
            let is_quiet = self.pages.iter().all(|page| page.write_back == WriteBack::None);
            let cuts = may.cuts.places(counts.cuts).filter(|_| is_quiet);
            steps.extend(cuts.map(|size| Begin(Change::Cut(size))));
        }
        if self.direct.is_none() {
            let directs = may.directs.places(counts.directs);
            steps.extend(directs.map(|byte| Begin(Change::Direct(byte))));
        }
        steps
    }
}

impl State {
    pub(super) fn process_steps(&self, number: usize, bounds: &Bounds) -> Vec<KernelStep> {
        if self.wrong.is_some() {
            return Vec::new();
        }
        let kernel = &self.kernels[number];
        let mut steps = kernel.steps_on();
        steps.extend(kernel.steps_begun(number, bounds));
        let has_asks = kernel.counts.size_asks < bounds.kernels[number].size_asks;
        let is_asking = has_asks && kernel.size_told.is_none() && kernel.size != self.size;
        steps.extend(is_asking.then_some(KernelStep::AskSize));
        let again = bounds.kernels[number].stores_again.places(kernel.counts.stores_again);
        let again = again.filter(|byte| {
            kernel.can_store(*byte, bounds) && self.before_own_write(number, *byte).is_some()
        });
        steps.extend(again.map(KernelStep::StoreAgain));
        steps
    }

    /// What this byte was before the kernel wrote it last, if that has returned and no other change
    /// is under way.
    fn before_own_write(&self, number: usize, byte: usize) -> Option<Byte> {
        let is_quiet = self.library.is_none()
            && self.kernels.iter().all(|it| it.call.is_none() && it.direct.is_none());
        let [.., before, own] = &*self.history[byte] else { return None };
        (is_quiet && is_value_of(*own, number)).then_some(*before)
    }

    /// Some kernel can go on with what is under way.
    pub(super) fn can_kernels_go_on(&self) -> bool {
        self.kernels.iter().any(|kernel| !kernel.steps_on().is_empty())
    }

    pub(super) fn take_process(&mut self, number: usize, step: KernelStep, bounds: &Bounds) {
        let kernel = &mut self.kernels[number];
        match step {
            KernelStep::Fault(page) => {
                kernel.counts.reads += 1;
                let is_behind_write = kernel.call.is_some_and(|call| {
                    call.phase == Phase::Sent && call.change.buffered_page() == Some(page)
                });
                kernel.pages[page].read = Read::Sent { is_behind_write };
            }
            KernelStep::Insert(page) => {
                let Read::Answered(bytes, size) = kernel.pages[page].read else { return };
                let (start, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
                if size < end && kernel.keeps_size() && bounds.short_reads_tell_size {
                    // a short READ says where the file ends
                    kernel.size = kernel.size.min(size.max(start));
                }
                // an answer that is older than the page would make zeros of what that has behind
                // the end: no server can tell
                kernel.size_told = None;
                kernel.pages[page] = Page { is_cached: true, bytes, ..NO_PAGE };
            }
            KernelStep::Store(byte) => {
                let counts = &kernel.counts;
                let value = value_of(Door::Kernel(number), counts.changes());
                kernel.counts.stores += 1;
                let page = &mut kernel.pages[byte / PAGE_BYTES];
                (page.bytes[byte % PAGE_BYTES], page.is_dirty) = (value, true);
            }
            KernelStep::StoreAgain(byte) => {
                let Some(value) = self.before_own_write(number, byte) else { return };
                let kernel = &mut self.kernels[number];
                kernel.counts.stores_again += 1;
                let page = &mut kernel.pages[byte / PAGE_BYTES];
                page.bytes[byte % PAGE_BYTES] = again_of(number, value);
                page.is_dirty = true;
            }
            KernelStep::WriteBack(page) => kernel.write_back(page),
            KernelStep::EndWriteBack(page) => kernel.pages[page].write_back = WriteBack::None,
            KernelStep::Evict(page) => {
                kernel.counts.evictions += 1;
                kernel.pages[page] = NO_PAGE;
            }
            KernelStep::AskSize => {
                kernel.counts.size_asks += 1;
                kernel.size_told = Some(self.size);
            }
            KernelStep::HearSize => self.hear_size(number),
            KernelStep::GoOnCutting => kernel.go_on_cutting(),
            KernelStep::Invalidate | KernelStep::DropLaundered => kernel.invalidate(),
            KernelStep::Begin(_)
            | KernelStep::Send
            | KernelStep::HearAnswer
            | KernelStep::EndDirect => self.take_call(number, step),
        }
        self.look_for_end(bounds);
    }
}

impl State {
    fn hear_size(&mut self, number: usize) {
        let kernel = &mut self.kernels[number];
        let Some(size) = kernel.size_told.take() else { return };
        // An answer that comes late, when the file has bytes there again or a write of the kernel
        // brings some, makes zeros of them in the page. No server can tell, unless it knows of the
        // cut: all else is left out here.
        let (page, at) = (size / PAGE_BYTES, (size % PAGE_BYTES) as u8);
        let writes = kernel.call.is_some_and(|call| call.change.bytes().end > size);
        let is_whole = kernel.call.is_some_and(|call| matches!(call.change, Change::WriteWhole(_)));
        let is_known = page >= PAGES
            || !kernel.pages[page].is_cached
            || self.given[number][page].cut_from.is_some_and(|cut| cut <= at);
        let is_late = (size < self.size || writes) && (!is_known || is_whole);
        if kernel.keeps_size() && !is_late {
            kernel.size = size;
            kernel.cut_pages();
        }
    }
}

impl Kernel {
    /// The notice takes the page's lock; the page is dropped when it is clean.
    fn invalidate(&mut self) {
        let Some(page) = self.invalidation.page() else { return };
        if self.pages[page].is_dirty {
            self.write_back(page);
            self.invalidation = Invalidation::Laundering(page);
            return;
        }
        self.pages[page] = NO_PAGE;
        self.invalidation = Invalidation::Done(page);
    }

    /// The answer to a truncation: the kernel sends the write-backs that waited for it.
    pub(super) fn learns_cut(&mut self, size: usize) {
        self.size = size;
        for page in 0..PAGES {
            if let WriteBack::Queued(queued) = self.pages[page].write_back {
                let length = self.snapshot(page).length.min(queued.length);
                let snapshot = Snapshot { length, ..queued };
                self.pages[page].write_back = match length {
                    0 => WriteBack::None,
                    _ => WriteBack::Sent { snapshot, is_stored: false },
                };
            }
        }
    }
}
