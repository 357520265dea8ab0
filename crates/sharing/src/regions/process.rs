//! What the threads of a process do.

use super::fault::Fault;
use super::state::{Bounds, Flaw, PROCESSES, Phase, RangeUse, Record, State, Writer};
use crate::story::version;

/// A step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProcessStep {
    /// Stores a record in the lane, with a fence behind it.
    Commit,
    /// Looks whether it still has its lease: then the commit has happened.
    Look,
    /// Hears what became of it.
    Hear,
    /// Stores into the copy what happened, if the page is there; the commit returns.
    Store,
    /// Sees that the lease is gone.
    Notice,
    /// Loads from the page.
    Load,
    /// The page is not there: asks for it.
    Ask,
    /// Hears that its service is dead: nothing of the copy is shown any more. Attaches to the next.
    Attach,
}

impl State {
    pub(super) fn process_steps(&self, number: usize, bounds: &Bounds) -> Vec<ProcessStep> {
        use ProcessStep::{Ask, Attach, Commit, Hear, Load, Look, Notice, Store};
        let process = &self.processes[number];
        let mut steps = Vec::new();
        let is_served = self.phase != Phase::Down && process.is_attached;
        let is_locked = process.asks && !bounds.has(Fault::BringsLocked);
        match process.writer {
            Writer::Idle if process.lease != 0 => {
                let more = process.begun < bounds.writes[number];
                steps.extend((more && !is_locked).then_some(Commit));
                steps.extend((process.word != process.lease).then_some(Notice));
            }
            Writer::Idle => {}
            Writer::Stored(_) => steps.push(Look),
            Writer::Unsure(_) => {
                let may_fold = self.range == RangeUse::Free;
                steps.extend((is_served && may_fold).then_some(Hear));
            }
            Writer::Happened(_) => steps.push(Store),
        }
        let more = process.loads < bounds.loads[number];
        // where its service is dead and it has not heard so, it loads on
        let is_shown = process.page.is_some();
        steps.extend((more && is_shown).then_some(Load));
        let waits = matches!(self.phase, Phase::Entered(of) | Phase::Cleared(of) if of == number);
        let is_free = process.writer == Writer::Idle && !waits;
        let is_idle = is_free || bounds.has(Fault::BringsLocked);
        let asks = more && !is_shown && !process.asks && is_idle && is_served;
        steps.extend(asks.then_some(Ask));
        steps.extend((self.phase != Phase::Down && !process.is_attached).then_some(Attach));
        steps
    }

    pub(super) fn take_process(&mut self, number: usize, step: ProcessStep, bounds: &Bounds) {
        let process = &mut self.processes[number];
        match step {
            ProcessStep::Commit => {
                let content = process.begun * PROCESSES as u8 + number as u8 + 1;
                process.begun += 1;
                process.lane.push(Record { content, generation: process.lease });
                process.writer = Writer::Stored(content);
                if bounds.has(Fault::StoresBeforeLook) && process.page.is_some() {
                    process.page = Some(content);
                }
            }
            ProcessStep::Look => {
                let Writer::Stored(content) = process.writer else { return };
                if process.word != process.lease {
                    (process.writer, process.lease) = (Writer::Unsure(content), 0);
                    return;
                }
                process.writer = Writer::Happened(content);
                if bounds.has(Fault::ReturnsBeforeStoring) {
                    self.returns(content);
                }
            }
            ProcessStep::Hear => {
                let Writer::Unsure(content) = process.writer else { return };
                self.fold(number, bounds);
                let has_happened = self.history.contains(&content);
                let process = &mut self.processes[number];
                process.writer = Writer::Idle;
                if has_happened && bounds.has(Fault::NoStoreWhenTold) {
                    self.returns(content);
                } else if has_happened {
                    process.writer = Writer::Happened(content);
                }
            }
            ProcessStep::Store => {
                let Writer::Happened(content) = process.writer else { return };
                process.writer = Writer::Idle;
                // a page that is not there, or goes meanwhile, is not stored into
                if process.page.is_some() {
                    process.page = Some(content);
                }
                self.returns(content);
            }
            ProcessStep::Notice => process.lease = 0,
            ProcessStep::Load => self.load(number),
            ProcessStep::Ask => process.asks = true,
            ProcessStep::Attach => {
                if !bounds.has(Fault::ShowsOn) {
                    process.page = None;
                }
                process.is_attached = true;
            }
        }
    }

    fn load(&mut self, number: usize) {
        let happened = self.happened();
        let (returned, process) = (self.returned, &mut self.processes[number]);
        process.loads += 1;
        let Some(content) = process.page else { return };
        // a process that has not heard that its service died may load what was so before: what is
        // said in docs/regions.md
        let is_behind = !process.is_attached;
        self.wrong = match version(&happened, content) {
            None => Some(Flaw::NeverHappened(content)),
            Some(version) if version < returned && !is_behind => Some(Flaw::Old(content)),
            Some(version) if version < process.seen => Some(Flaw::Back(content)),
            Some(version) => {
                process.seen = version;
                None
            }
        };
    }
}
