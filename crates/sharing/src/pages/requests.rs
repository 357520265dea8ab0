//! How the server serves requests: READs, write-backs, and calls that change the file.

use super::bounds::Bounds;
use super::fault::Fault;
use super::notices::notices_to;
use super::state::{Call, Change, Door, Phase, Read, State, Waits, WriteBack};

impl State {
    /// The page is marked and read while the range is held.
    pub(super) fn serve_read(&mut self, kernel: usize, page: usize, bounds: &Bounds) {
        let (bytes, size) = (self.read_page(page), self.size);
        let read = self.kernels[kernel].pages[page].read;
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
        call.phase = Phase::Waits(waits);
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
