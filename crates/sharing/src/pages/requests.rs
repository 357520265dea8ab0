//! How the server serves requests: READs, write-backs, and calls that change the file.

use super::base::PageBase;
use super::bounds::Bounds;
use super::fault::Fault;
use super::notices::notices_to;
use super::state::{
    Call, Change, Door, KERNELS, PAGE_BYTES, PAGES, Phase, Read, State, Waits, WriteBack,
};

impl State {
    /// The page is marked and read while the range is held.
    pub(super) fn serve_read(&mut self, kernel: usize, page: usize, bounds: &Bounds) {
        let (bytes, size) = (self.read_page(page), self.size);
        let read = self.kernels[kernel].pages[page].read;
        if let Read::Beside | Read::ReadBeside(..) = read {
            return self.serve_read_beside(kernel, page, bounds);
        }
        if let (Read::Sent { is_behind_write: true }, Some(call)) =
            (read, &mut self.kernels[kernel].call)
        {
            call.is_passed |= call.phase == Phase::Sent;
        }
        self.kernels[kernel].pages[page].read = match read {
            Read::Loaded(bytes) => {
                self.give(kernel, page, bounds);
                Read::Answered(bytes, size)
            }
            Read::Marked => Read::Answered(bytes, size),
            _ if bounds.has(Fault::MarksLate) => Read::Loaded(bytes),
            _ => {
                self.give(kernel, page, bounds);
                let early = bounds.has(Fault::MarksEarly);
                if early { Read::Marked } else { Read::Answered(bytes, size) }
            }
        };
    }

    /// A READ where somebody has the range: what it reads may be of before a change, which waits
    /// for it and for the notice that is owed then.
    fn serve_read_beside(&mut self, kernel: usize, page: usize, bounds: &Bounds) {
        let read = self.kernels[kernel].pages[page].read;
        let Read::ReadBeside(bytes, size) = read else {
            let read = Read::ReadBeside(self.read_page(page), self.size);
            self.kernels[kernel].pages[page].read = read;
            return;
        };
        self.give(kernel, page, bounds);
        if !bounds.has(Fault::ReadBesideNotNotified) {
            let given = &mut self.given[kernel][page];
            given.base = Some(PageBase::of(bytes));
            given.is_owed = true;
        }
        let given = &mut self.given[kernel][page];
        if let Some(at) = given.beside_cut_from.take() {
            given.cut(usize::from(at), !bounds.has(Fault::ReadBesideKeepsCut));
        }
        let bit = 1 << (kernel * PAGES + page);
        self.each_waits(|waits| {
            waits.next |= waits.fills & bit;
            waits.fills &= !bit;
        });
        self.kernels[kernel].pages[page].read = Read::Answered(bytes, size);
    }

    /// What a change that was made waits for besides: READs beside it, and notices that are owed by
    /// those that ended meanwhile.
    fn waits_beside(&self, door: Door, call: &Call, bounds: &Bounds) -> Waits {
        let mut waits = Waits::default();
        if !bounds.reads_beside || bounds.has(Fault::ReadBesideNotWaitedFor) {
            return waits;
        }
        for (kernel, page) in (0..KERNELS * PAGES).map(|it| (it / PAGES, it % PAGES)) {
            let mut bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            let is_own = door == Door::Kernel(kernel);
            let looks = call.change.buffered_page().is_some()
                && !bounds.has(Fault::OwnReadBesideNotWaitedFor);
            if is_own && !looks || !bytes.any(|byte| call.versions[byte] > 0) {
                continue;
            }
            let bit = 1 << (kernel * PAGES + page);
            let it = &self.kernels[kernel];
            if let Read::Beside | Read::ReadBeside(..) = it.pages[page].read {
                waits.fills |= bit;
            }
            if is_own {
                continue;
            }
            if self.given[kernel][page].is_owed {
                waits.next |= bit;
            }
            if it.invalidation.page() == Some(page) {
                waits.sent |= bit;
            }
        }
        waits
    }

    /// A write-back is merged. Where the server may be killed, that is in two steps: the file
    /// first, then the base.
    pub(super) fn serve_write_back(&mut self, kernel: usize, page: usize, bounds: &Bounds) {
        let write_back = self.kernels[kernel].pages[page].write_back;
        let (snapshot, is_stored) = match write_back {
            WriteBack::Half(snapshot) => (snapshot, true),
            WriteBack::Sent { snapshot, is_stored } => (snapshot, is_stored),
            _ => return,
        };
        let is_again = matches!(write_back, WriteBack::Sent { is_stored: true, .. });
        let is_halved = bounds.kills > 0 || bounds.has(Fault::WriteBackWaits);
        let is_first = is_halved && !is_stored;
        let stores = match bounds.has(Fault::BaseBeforeStore) {
            true => matches!(write_back, WriteBack::Half(_)),
            false => !is_stored || is_again && bounds.has(Fault::StoredTwice),
        };
        if stores {
            self.store_page(kernel, page, snapshot, bounds);
        }
        if is_first {
            self.kernels[kernel].pages[page].write_back = WriteBack::Half(snapshot);
            return;
        }
        let skips = is_again && bounds.has(Fault::SentAgainNotInBase);
        if !skips && !bounds.has(Fault::BaseNotUpdated) {
            self.note_write_back(kernel, page, snapshot, bounds);
        }
        self.look_for_lost(kernel, page, snapshot);
        self.kernels[kernel].pages[page].write_back = WriteBack::Answered;
    }

    /// A change by a call. Bases are kept before it, and what its own kernel has for sure is put
    /// into the base behind it: where the server may be killed, in two steps.
    pub(super) fn serve_change(
        &mut self,
        door: Door,
        mut call: Call,
        is_direct: bool,
        bounds: &Bounds,
    ) -> Call {
        let counts = match call.change {
            Change::Cut(_) => !bounds.has(Fault::OwnCutNotCounted),
            _ if is_direct => !bounds.has(Fault::DirectNotCounted),
            _ => bounds.has(Fault::WriteCountsAsOthers),
        };
        // it changes the pages of its own kernel as it does those of others
        let by = if counts { Door::Library } else { door };
        let own = match door {
            Door::Kernel(kernel) if !is_direct => Some(kernel),
            _ => None,
        };
        let is_library = door == Door::Library;
        let late = bounds.has(Fault::ChangesBeforeBase);
        if call.phase == Phase::SentAgain {
            own.into_iter().for_each(|kernel| self.end_doubt(kernel));
            call.is_in_doubt = true;
            let mut waits = self.all_waits(door, bounds);
            if let Some(kernel) = own {
                waits.next |= self.own_waits(kernel, &call, bounds);
            }
            call.phase = Phase::Waits(waits);
            return call;
        }
        let stops = bounds.kills > 0 && !is_direct;
        let late = is_library && late && stops;
        if call.phase == Phase::Sent {
            call.phase = match late {
                true => {
                    self.change_file(&mut call);
                    Phase::Kept(Waits::default())
                }
                false => Phase::Kept(self.before_change(by, own, &mut call, bounds)),
            };
            if stops {
                return call;
            }
        }
        if let Phase::Kept(waits) = call.phase {
            call.phase = match late {
                true => Phase::Changed(self.before_change(by, own, &mut call, bounds)),
                false => {
                    self.change_file(&mut call);
                    Phase::Changed(waits)
                }
            };
            if stops && !is_library {
                return call;
            }
        }
        let Phase::Changed(mut waits) = call.phase else { return call };
        if let Some(kernel) = own
            && by == door
        {
            self.note_own_write(kernel, &mut call, bounds);
            waits.next |= self.own_waits(kernel, &call, bounds);
        }
        // a direct write's own kernel is one of the others
        let beside = self.waits_beside(if is_direct { Door::Library } else { door }, &call, bounds);
        call.phase = Phase::Waits(waits.and(beside));
        call
    }

    /// What is noted before a change is made.
    fn before_change(
        &mut self,
        by: Door,
        own: Option<usize>,
        call: &mut Call,
        bounds: &Bounds,
    ) -> Waits {
        let bytes = match call.change {
            Change::Cut(size) if bounds.has(Fault::CutKeepsNoBase) => size..size,
            change => change.changed(self.size),
        };
        let mut waits = self.keep_bases(by, bytes, bounds);
        if let Change::Cut(size) = call.change {
            self.note_cut(size, bounds);
        }
        if let (Some(kernel), Change::Cut(_)) = (own, call.change) {
            self.end_doubt(kernel);
        }
        if let Some(kernel) = own {
            // its own notice may need what the call holds
            waits.next &= !notices_to(kernel);
            call.is_in_doubt = by != Door::Kernel(kernel) || self.note_doubt(kernel, call, bounds);
        }
        waits
    }
}
