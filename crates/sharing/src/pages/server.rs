//! What the server does: it serves requests, sends notices, and lets the library change the file.

use super::bounds::Bounds;
use super::fault::Fault;
use super::flaw::Flaw;
use super::state::{
    Call, Change, Door, FILE_BYTES, Invalidation, KERNELS, PAGE_BYTES, PAGES, Phase, Read, State,
    Waits, WriteBack, value_of,
};

/// A step of the server, or of the library in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerStep {
    /// Serves a READ of this page of this kernel.
    Read(usize, usize),
    /// Serves a write-back.
    WriteBack(usize, usize),
    /// Makes the change that this door's call asks for.
    Change(Door),
    /// Makes the change of a direct write.
    Direct(usize),
    /// Answers a call of this door, which has waited for notices.
    Answer(Door),
    /// Answers a direct write.
    AnswerDirect(usize),
    /// Sends a notice of this page to this kernel.
    Notify(usize, usize),
    /// The notice is answered.
    HearNotice(usize),
    /// The library begins a change.
    Begin(Change),
    /// Is killed; the next server begins.
    Kill,
}

impl State {
    pub(super) fn service_steps(&self, bounds: &Bounds) -> Vec<ServerStep> {
        use ServerStep::{Begin, Kill};
        if self.wrong.is_some() {
            return Vec::new();
        }
        let mut steps = self.steps_on(bounds);
        if self.library.is_none() {
            let writes = bounds.library_writes.places(self.library_writes);
            steps.extend(writes.map(|byte| Begin(Change::Direct(byte))));
            let cuts = bounds.library_cuts.places(self.library_cuts);
            steps.extend(cuts.map(|size| Begin(Change::Cut(size))));
        }
        steps.extend((self.kills < bounds.kills).then_some(Kill));
        steps
    }

    /// The call of a door that has the inode's lock, or the library's.
    fn call_of(&mut self, door: Door) -> &mut Option<Call> {
        match door {
            Door::Kernel(number) => &mut self.kernels[number].call,
            Door::Library => &mut self.library,
        }
    }

    fn calls(&self) -> impl Iterator<Item = (ServerStep, ServerStep, Call)> {
        use ServerStep::{Answer, AnswerDirect, Change, Direct};
        let of_kernel = |(number, kernel): (usize, &super::state::Kernel)| {
            let door = Door::Kernel(number);
            let call = kernel.call.map(|call| (Change(door), Answer(door), call));
            let direct = kernel.direct.map(|call| (Direct(number), AnswerDirect(number), call));
            [call, direct]
        };
        let library = (Change(Door::Library), Answer(Door::Library));
        let library = self.library.map(|call| (library.0, library.1, call));
        let kernels: Vec<_> = self.kernels.iter().enumerate().flat_map(of_kernel).collect();
        kernels.into_iter().chain([library]).flatten()
    }

    /// Steps that take something under way further.
    fn steps_on(&self, bounds: &Bounds) -> Vec<ServerStep> {
        use ServerStep::{HearNotice, Notify, Read as Reads, WriteBack as Writes};
        let mut steps = Vec::new();
        let pages = |kernel: usize| (0..PAGES).map(move |page| (kernel, page));
        let half = self.half_done().filter(|_| !bounds.has(Fault::WriteBackWaits));
        let may_serve = half.is_none() && self.may_serve(bounds);
        for (kernel, page) in (0..KERNELS).flat_map(pages) {
            let it = &self.kernels[kernel].pages[page];
            let given = &self.given[kernel][page];
            let at = self.kernels[kernel].invalidation;
            let is_clear = !given.is_owed && at.page() != Some(page);
            let is_read = match it.read {
                Read::Sent { .. } => is_clear || !bounds.has(Fault::ReadWaits),
                Read::Marked | Read::Loaded(_) => true,
                Read::None | Read::Answered(..) => false,
            };
            steps.extend((is_read && may_serve).then_some(Reads(kernel, page)));
            let is_stored = match it.write_back {
                WriteBack::Sent { .. } => may_serve,
                WriteBack::Half(_) if bounds.has(Fault::WriteBackWaits) => {
                    self.may_end_write_back(kernel, page)
                }
                _ => false,
            };
            steps.extend(is_stored.then_some(Writes(kernel, page)));
            let may_notify = given.is_owed && at == Invalidation::None;
            steps.extend(may_notify.then_some(Notify(kernel, page)));
            let is_heard = at == Invalidation::Done(page);
            steps.extend(is_heard.then_some(HearNotice(kernel)));
        }
        for (change, answer, call) in self.calls() {
            let is_sent = matches!(call.phase, Phase::Sent | Phase::SentAgain);
            steps.extend((is_sent && may_serve).then_some(change));
            let is_over = self.may_answer(answer, &call, bounds);
            steps.extend(is_over.then_some(answer));
        }
        steps.extend(half);
        steps
    }

    /// A fault: a write-back is not answered before others have dropped the page.
    fn may_end_write_back(&self, kernel: usize, page: usize) -> bool {
        let is_waiting = |other: usize| {
            let is_at = self.kernels[other].invalidation.page() == Some(page);
            other != kernel && (self.given[other][page].is_owed || is_at)
        };
        !(0..KERNELS).any(is_waiting)
    }

    /// The step that the holder of the range goes on with, which was only half done.
    fn half_done(&self) -> Option<ServerStep> {
        let mut calls = self
            .calls()
            .filter(|(.., call)| matches!(call.phase, Phase::Kept(_) | Phase::Changed(_)));
        let pages = |kernel: usize| (0..PAGES).map(move |page| (kernel, page));
        let mut pages = (0..KERNELS).flat_map(pages);
        let half = pages.find(|(kernel, page)| {
            matches!(self.kernels[*kernel].pages[*page].write_back, WriteBack::Half(_))
        });
        let half = half.map(|(kernel, page)| ServerStep::WriteBack(kernel, page));
        half.or(calls.next().map(|(change, ..)| change))
    }

    /// Nothing keeps requests from being served: by the rule, nothing ever does.
    fn may_serve(&self, bounds: &Bounds) -> bool {
        let is_noticing =
            self.kernels.iter().any(|kernel| kernel.invalidation != Invalidation::None);
        let is_waiting = self.calls().any(|(.., call)| matches!(call.phase, Phase::Waits(_)));
        !(is_noticing && bounds.has(Fault::ServerSendsNotices)
            || is_waiting && bounds.has(Fault::HoldsRangeWhileWaiting))
    }

    /// The call's notices are answered; or another call waits for a notice to its kernel, which
    /// may need a page that this call keeps locked, or a write-back that it keeps from being sent.
    fn may_answer(&self, answer: ServerStep, call: &Call, bounds: &Bounds) -> bool {
        let Phase::Waits(waits) = call.phase else { return false };
        if waits == Waits::default() || bounds.has(Fault::ReturnsEarly) {
            return true;
        }
        let ServerStep::Answer(Door::Kernel(kernel)) = answer else { return false };
        let fault = match call.change {
            Change::Cut(_) => Fault::CutWaits,
            _ => Fault::LockedWriteWaits,
        };
        let mut others = self.calls().filter(|(_, other, _)| *other != answer);
        let is_waited_for = others.any(|(.., other)| match other.phase {
            Phase::Waits(waits) => (waits.next | waits.sent) & notices_to(kernel) != 0,
            _ => false,
        });
        is_waited_for && !bounds.has(fault)
    }

    /// Says so when something is under way and nobody can go on with it.
    pub(super) fn look_for_end(&mut self, bounds: &Bounds) {
        let can_go_on = || self.can_kernels_go_on() || !self.steps_on(bounds).is_empty();
        if self.wrong.is_none() && self.is_under_way() && !can_go_on() {
            self.wrong = Some(Flaw::Stuck);
        }
    }

    pub(super) fn take_service(&mut self, step: ServerStep, bounds: &Bounds) {
        match step {
            ServerStep::Read(kernel, page) => self.serve_read(kernel, page, bounds),
            ServerStep::WriteBack(kernel, page) => self.serve_write_back(kernel, page, bounds),
            ServerStep::Change(door) => {
                let Some(call) = self.call_of(door).take() else { return };
                let call = self.serve_change(door, call, false, bounds);
                *self.call_of(door) = Some(call);
            }
            ServerStep::Direct(kernel) => {
                let Some(call) = self.kernels[kernel].direct.take() else { return };
                let call = self.serve_change(Door::Kernel(kernel), call, true, bounds);
                self.kernels[kernel].direct = Some(call);
            }
            ServerStep::Answer(door) => {
                let Some(call) = self.call_of(door) else { return };
                answer(call, bounds);
                if door == Door::Library
                    && let Some(call) = self.library.take()
                {
                    self.change_returns(door, call);
                }
            }
            ServerStep::AnswerDirect(kernel) => {
                self.kernels[kernel].direct.iter_mut().for_each(|call| answer(call, bounds));
            }
            ServerStep::Notify(kernel, page) => self.notify(kernel, page),
            ServerStep::HearNotice(kernel) => self.hear_notice(kernel, bounds),
            ServerStep::Begin(change) => self.library_begins(change),
            ServerStep::Kill => self.kill(bounds),
        }
        self.look_for_end(bounds);
    }

    fn library_begins(&mut self, change: Change) {
        let value = match change {
            Change::Cut(_) => {
                self.library_cuts += 1;
                0
            }
            _ => {
                self.library_writes += 1;
                value_of(Door::Library, self.library_writes - 1)
            }
        };
        self.library = Some(Call {
            change,
            value,
            phase: Phase::Sent,
            is_locking: false,
            is_passed: false,
            is_in_doubt: false,
            versions: [0; FILE_BYTES],
        });
    }

    /// The page is marked and read while the range is held.
    fn serve_read(&mut self, kernel: usize, page: usize, bounds: &Bounds) {
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
    fn serve_write_back(&mut self, kernel: usize, page: usize, bounds: &Bounds) {
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
    fn serve_change(
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
            call.phase = Phase::Waits(self.all_waits(door, bounds));
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
        let Phase::Changed(waits) = call.phase else { return call };
        if let Some(kernel) = own
            && by == door
        {
            self.note_own_write(kernel, &mut call, bounds);
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
        if let Some(kernel) = own {
            // its own notice may need what the call holds
            waits.next &= !notices_to(kernel);
            call.is_in_doubt = by != Door::Kernel(kernel) || self.note_doubt(kernel, call, bounds);
        }
        waits
    }

    /// Of a call that a killed server has made: the notices of all pages, but its own kernel's.
    fn all_waits(&self, door: Door, bounds: &Bounds) -> Waits {
        let pages = (0..KERNELS * PAGES).filter(|it| {
            let (kernel, page) = (it / PAGES, it % PAGES);
            door != Door::Kernel(kernel) && self.given[kernel][page].is_owed
        });
        let next = pages.fold(0, |all, it| all | 1 << it);
        let sent = (0..KERNELS).filter(|kernel| door != Door::Kernel(*kernel));
        let sent = sent.filter_map(|kernel| {
            let page = self.kernels[kernel].invalidation.page()?;
            Some(1 << (kernel * PAGES + page))
        });
        let sent = sent.fold(0, |all, it: u8| all | it);
        match bounds.has(Fault::ReturnsEarly) {
            true => Waits::default(),
            false => Waits { next, sent },
        }
    }

    fn notify(&mut self, kernel: usize, page: usize) {
        self.each_waits(|waits| {
            let bit = 1 << (kernel * PAGES + page);
            waits.sent |= waits.next & bit;
            waits.next &= !bit;
        });
        let given = &mut self.given[kernel][page];
        (given.is_owed, given.is_touched, given.is_noticed) = (false, false, true);
        self.kernels[kernel].invalidation = Invalidation::Waiting(page);
        let versions = self.versions();
        self.noted[kernel] = std::array::from_fn(|at| versions[page * PAGE_BYTES + at]);
    }

    fn hear_notice(&mut self, kernel: usize, bounds: &Bounds) {
        let Some(page) = self.kernels[kernel].invalidation.page() else { return };
        self.kernels[kernel].invalidation = Invalidation::None;
        self.each_waits(|waits| waits.sent &= !(1 << (kernel * PAGES + page)));
        let given = &mut self.given[kernel][page];
        if !given.is_touched || bounds.has(Fault::OldNoticeEndsBase) {
            (given.is_given, given.base, given.is_in_doubt) = (false, None, false);
        }
        for at in 0..PAGE_BYTES {
            let floor = &mut self.floors[kernel][page * PAGE_BYTES + at];
            *floor = (*floor).max(self.noted[kernel][at]);
        }
        self.noted[kernel] = [0; PAGE_BYTES];
    }

    /// Of each call that waits the notices that it waits for.
    fn each_waits(&mut self, change: impl Fn(&mut Waits)) {
        let kernels = self.kernels.iter_mut();
        let calls = kernels.flat_map(|kernel| [&mut kernel.call, &mut kernel.direct]);
        for call in calls.chain([&mut self.library]).flatten() {
            if let Phase::Waits(waits) | Phase::Kept(waits) | Phase::Changed(waits) =
                &mut call.phase
            {
                change(waits);
            }
        }
    }

    /// The next server knows the bases, which lie in memory that outlives the server. It takes all
    /// pages as given and owes a notice of each.
    fn kill(&mut self, bounds: &Bounds) {
        self.kills += 1;
        self.library = None;
        // those that no kernel can have are left out: there would be notices of them, and no more
        let can_have = |kernel: usize, page: usize| {
            let may = &bounds.kernels[kernel];
            (may.reads.at | may.whole_writes.at) >> page & 1 == 1
        };
        for (kernel, page) in (0..KERNELS * PAGES).map(|it| (it / PAGES, it % PAGES)) {
            if !can_have(kernel, page) {
                continue;
            }
            let given = &mut self.given[kernel][page];
            if bounds.has(Fault::BasesLost) {
                given.base = None;
            }
            (given.is_given, given.is_touched) = (!bounds.has(Fault::MarksLost), true);
            given.is_owed = !bounds.has(Fault::NoticesLost);
            (given.is_noticed, given.is_in_doubt) = (true, true);
        }
        for (kernel, page) in (0..KERNELS * PAGES).map(|it| (it / PAGES, it % PAGES)) {
            let it = &mut self.kernels[kernel].pages[page];
            if let Read::Marked | Read::Loaded(_) = it.read {
                it.read = Read::Sent { is_behind_write: false };
            }
            let WriteBack::Half(snapshot) = it.write_back else { continue };
            let is_stored = !bounds.has(Fault::BaseBeforeStore);
            it.write_back = WriteBack::Sent { snapshot, is_stored };
            if !is_stored {
                self.note_write_back(kernel, page, snapshot, bounds);
            }
        }
        for kernel in 0..KERNELS {
            let own = Door::Kernel(kernel);
            let (call_waits, direct_waits) =
                (self.all_waits(own, bounds), self.all_waits(Door::Library, bounds));
            let it = &mut self.kernels[kernel];
            for (call, waits) in [(&mut it.call, call_waits), (&mut it.direct, direct_waits)] {
                let Some(call) = call else { continue };
                call.phase = match call.phase {
                    Phase::Waits(_) => Phase::Waits(waits),
                    Phase::Kept(_) => Phase::Sent,
                    Phase::Changed(_) => Phase::SentAgain,
                    phase => phase,
                };
            }
        }
    }
}

/// Of all notices those to this kernel.
fn notices_to(kernel: usize) -> u8 {
    ((1 << PAGES) - 1) << (kernel * PAGES)
}

/// The call is answered.
fn answer(call: &mut Call, bounds: &Bounds) {
    let Phase::Waits(waits) = call.phase else { return };
    let is_seen = waits == Waits::default() || bounds.has(Fault::ReturnsEarly);
    call.phase = Phase::Answered { is_seen };
}
