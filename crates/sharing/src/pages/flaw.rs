//! What must hold in every state.

use super::byte_values::is_value_of;
use super::state::{Byte, FILE_BYTES};
use super::state::{Door, Invalidation, KERNELS, PAGE_BYTES, PAGES, Read, State, WriteBack};

/// What is wrong with a state. Bytes are counted from the start of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flaw {
    /// A write-back of this kernel wrote to this byte what it had been before.
    TakenBack(usize, usize),
    /// A write-back of this kernel wrote to this byte what the kernel had neither stored nor
    /// written.
    NotItsOwn(usize, usize),
    /// A write-back of this kernel was answered, and a store to this byte is not in the file.
    StoreLost(usize, usize),
    /// A write-back made the file longer.
    GrewBack,
    /// This kernel's page shows a value of this byte that it never had.
    NeverThere(usize, usize),
    /// This kernel's page shows a value of this byte from before a change, and the change returned
    /// or its notice was answered.
    Behind(usize, usize),
    /// A base is kept of this kernel's page, which was not given, or of which no notice is owed.
    BaseLeaks(usize, usize),
    /// Nothing is under way, and a clean page of this kernel is not what the file holds.
    StaleForGood(usize, usize),
    /// Something is under way, and no step can take it further.
    Stuck,
}

impl State {
    /// The first thing that is wrong.
    pub fn flaw(&self) -> Option<Flaw> {
        if self.wrong.is_some() {
            return self.wrong;
        }
        let is_quiet = !self.is_under_way();
        for kernel in 0..KERNELS {
            let bytes = (0..FILE_BYTES).find_map(|byte| self.shown_flaw(kernel, byte, is_quiet));
            let leak = (0..PAGES).find(|page| self.is_leaking(kernel, *page));
            let leak = leak.map(|page| Flaw::BaseLeaks(kernel, page));
            if let Some(flaw) = bytes.or(leak) {
                return Some(flaw);
            }
        }
        None
    }

    /// What is wrong with a byte as this kernel's mappings show it.
    fn shown_flaw(&self, kernel: usize, byte: usize, is_quiet: bool) -> Option<Flaw> {
        let page = &self.kernels[kernel].pages[byte / PAGE_BYTES];
        if !page.is_cached || byte >= self.kernels[kernel].size {
            return None;
        }
        let shown = page.bytes[byte % PAGE_BYTES];
        let current = self.history[byte].last().copied().unwrap_or(0);
        match self.history[byte].iter().rposition(|value| *value == shown) {
            None if is_value_of(shown, kernel) => {}
            // stored behind the end, of which the kernel has not heard
            _ if is_value_of(shown, kernel) && byte >= self.size => {}
            None => return Some(Flaw::NeverThere(kernel, byte)),
            Some(at) if at + 1 < usize::from(self.floors[kernel][byte]) => {
                return Some(Flaw::Behind(kernel, byte));
            }
            Some(_) => {}
        }
        let is_stale = is_quiet && !page.is_dirty && byte < self.size && shown != current;
        is_stale.then_some(Flaw::StaleForGood(kernel, byte))
    }

    fn is_leaking(&self, kernel: usize, page: usize) -> bool {
        let given = &self.given[kernel][page];
        let is_at = self.kernels[kernel].invalidation.page() == Some(page);
        given.base.is_some() && !(given.is_given && (given.is_owed || is_at))
    }

    /// A request, a call or a notice is under way, or a notice is owed.
    pub fn is_under_way(&self) -> bool {
        let is_owed = self.given.iter().flatten().any(|given| given.is_owed);
        let is_busy = self.kernels.iter().any(|kernel| {
            let mut pages = kernel.pages.iter();
            kernel.call.is_some()
                || kernel.direct.is_some()
                || kernel.size_told.is_some()
                || kernel.invalidation != Invalidation::None
                || pages.any(|it| it.read != Read::None || it.write_back != WriteBack::None)
        });
        is_owed || is_busy || self.library.is_some()
    }

    /// A byte of the file gets this value by a write-back of the kernel.
    pub(super) fn write_back_byte(&mut self, kernel: usize, byte: usize, value: Byte) {
        if self.history[byte].last() == Some(&value) {
            return;
        }
        if self.history[byte].contains(&value) {
            self.wrong = Some(Flaw::TakenBack(kernel, byte));
        } else if !is_value_of(value, kernel) {
            self.wrong = Some(Flaw::NotItsOwn(kernel, byte));
        }
        self.history[byte].push(value);
    }

    /// A change returns: its own kernel sees it, and so do all kernels if it has waited for their
    /// notices.
    pub(super) fn change_returns(&mut self, door: Door, call: super::state::Call) {
        let super::state::Phase::Answered { is_seen } = call.phase else { return };
        for kernel in 0..KERNELS {
            let is_own = door == Door::Kernel(kernel);
            if (is_own && !call.is_in_doubt) || (!is_own && is_seen) {
                for byte in 0..FILE_BYTES {
                    let floor = &mut self.floors[kernel][byte];
                    *floor = (*floor).max(call.versions[byte]);
                }
            }
        }
    }
}
