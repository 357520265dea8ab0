//! What the server does: it serves requests, sends notices, and lets the library change the file.

use super::bounds::Bounds;
use super::byte_values::value_of;
use super::fault::Fault;
use super::flaw::Flaw;
use super::notices::notices_to;
use super::state::{
    Call, Change, Door, FILE_BYTES, Invalidation, KERNELS, PAGES, Phase, Read, State, Waits,
    WriteBack,
};

/// A step of the server, or of the library in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerStep {
    /// Serves a READ of this page of this kernel.
    Read(usize, usize),
    /// Begins to serve it where somebody has the range.
    ReadBeside(usize, usize),
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
        let half = self.half_done(bounds);
        let may_serve = half.is_none() && self.may_serve(bounds);
        for (kernel, page) in (0..KERNELS).flat_map(pages) {
            let it = &self.kernels[kernel].pages[page];
            let given = &self.given[kernel][page];
            let at = self.kernels[kernel].invalidation;
            let is_clear = !given.is_owed && at.page() != Some(page);
            let is_read = match it.read {
                Read::Sent { .. } => is_clear || !bounds.has(Fault::ReadWaits),
                Read::Marked | Read::Loaded(_) => true,
                Read::None | Read::Answered(..) | Read::Beside | Read::ReadBeside(..) => false,
            };
            steps.extend((is_read && may_serve).then_some(Reads(kernel, page)));
            let is_beside = matches!(it.read, Read::Beside | Read::ReadBeside(..));
            steps.extend(is_beside.then_some(Reads(kernel, page)));
            let may_be_beside = bounds.reads_beside && matches!(it.read, Read::Sent { .. });
            steps.extend(may_be_beside.then_some(ServerStep::ReadBeside(kernel, page)));
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
    fn half_done(&self, bounds: &Bounds) -> Option<ServerStep> {
        if bounds.kills == 0 {
            return None;
        }
        let is_half = |(_, _, call): &(ServerStep, ServerStep, Call)| {
            matches!(call.phase, Phase::Kept(_) | Phase::Changed(_))
        };
        let half =
            (0..KERNELS * PAGES).map(|it| (it / PAGES, it % PAGES)).find(|(kernel, page)| {
                matches!(self.kernels[*kernel].pages[*page].write_back, WriteBack::Half(_))
            });
        let half = half.map(|(kernel, page)| ServerStep::WriteBack(kernel, page));
        half.or_else(|| self.calls().find(is_half).map(|(change, ..)| change))
    }

    /// Nothing keeps requests from being served: by the rule, nothing ever does.
    fn may_serve(&self, bounds: &Bounds) -> bool {
        match bounds.fault {
            Some(Fault::ServerSendsNotices) => {
                self.kernels.iter().all(|kernel| kernel.invalidation == Invalidation::None)
            }
            Some(Fault::HoldsRangeWhileWaiting) => {
                !self.calls().any(|(.., call)| matches!(call.phase, Phase::Waits(_)))
            }
            _ => true,
        }
    }

    /// The call's notices are answered; or another call waits for a notice to its kernel, which
    /// may need a page that this call keeps locked, or a write-back that it keeps from being sent.
    /// A notice to its own kernel it waits for too long where that needs such a page.
    fn may_answer(&self, answer: ServerStep, call: &Call, bounds: &Bounds) -> bool {
        let Phase::Waits(waits) = call.phase else { return false };
        if waits == Waits::default() || bounds.has(Fault::ReturnsEarly) {
            return true;
        }
        let ServerStep::Answer(Door::Kernel(kernel)) = answer else { return false };
        let all = waits.next | waits.sent | waits.fills;
        let is_locked = |page: usize| {
            let at = self.kernels[kernel].invalidation;
            call.is_locking
                && call.change.buffered_page() == Some(page)
                && at == Invalidation::Waiting(page)
        };
        if all & notices_to(kernel) != 0 && !(0..PAGES).any(is_locked) {
            return false;
        }
        if all & !notices_to(kernel) == 0 {
            return true;
        }
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

    /// Notes a state in which something is under way, and no step can take it further.
    pub(super) fn look_for_end(&mut self, bounds: &Bounds) {
        let can_go_on = || self.can_kernels_go_on() || !self.steps_on(bounds).is_empty();
        if self.wrong.is_none() && self.is_under_way() && !can_go_on() {
            self.wrong = Some(Flaw::Stuck);
        }
    }

    pub(super) fn take_service(&mut self, step: ServerStep, bounds: &Bounds) {
        match step {
            ServerStep::Read(kernel, page) => self.serve_read(kernel, page, bounds),
            ServerStep::ReadBeside(kernel, page) => {
                self.kernels[kernel].pages[page].read = Read::Beside;
            }
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
}

/// The call is answered.
fn answer(call: &mut Call, bounds: &Bounds) {
    let Phase::Waits(waits) = call.phase else { return };
    let is_seen = waits == Waits::default() || bounds.has(Fault::ReturnsEarly);
    call.phase = Phase::Answered { is_seen };
}
