//! What the service does, and the next one.

use super::fault::Fault;
use super::state::{Bounds, PROCESSES, Phase, RangeUse, State, Writer};
use crate::story::Content;

/// A step of the service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServiceStep {
    /// Enters a lease for this one.
    Enter(usize),
    /// Takes the page of all away.
    TakeAway,
    /// Tells who is to have the lease.
    Grant,
    /// Closes the word of who has the lease.
    Close,
    /// Folds the lane of who had it.
    Fold,
    /// Takes the page of all away; nobody has the lease.
    Free,
    /// Begins to bring the page: nobody leases it meanwhile.
    Begin(usize),
    /// Has the range, reads, and stores the page at once.
    Bring,
    /// The door writes, with the range: it can be seen.
    DoorWrites,
    /// The door's write is in the copies, and returns.
    DoorStores,
    /// It returns.
    DoorReturns,
    /// Dies.
    Die,
    /// Another one owns the pool.
    Start,
}

impl State {
    pub(super) fn service_steps(&self, bounds: &Bounds) -> Vec<ServiceStep> {
        use ServiceStep::{
            Begin, Bring, Close, Die, DoorReturns, DoorStores, DoorWrites, Enter, Fold, Free,
            Grant, Start, TakeAway,
        };
        let mut steps = Vec::new();
        let is_free = self.range == RangeUse::Free;
        match self.phase {
            Phase::Down => return vec![Start],
            Phase::Free => {
                let wants = |number: &usize| {
                    let process = &self.processes[*number];
                    let has_more = process.begun < bounds.writes[*number];
                    // it asks with the lock of the copy, and knows of none that it has
                    let may_ask = process.lease == 0
                        && process.writer == Writer::Idle
                        && (!process.asks || bounds.has(Fault::BringsLocked));
                    has_more && may_ask && process.last < bounds.grants && process.is_attached
                };
                let may = is_free && self.brings.is_none();
                steps.extend((0..PROCESSES).filter(wants).filter(|_| may).map(Enter));
                let more = self.door_begun < bounds.door_writes;
                steps.extend((more && is_free).then_some(DoorWrites));
            }
            Phase::Entered(_) => {
                let grants = bounds.has(Fault::GrantsOverPages);
                steps.push(if grants { Grant } else { TakeAway });
            }
            Phase::Cleared(_) => steps.push(Grant),
            Phase::Held(_) => steps.push(Close),
            Phase::Closed(_) => steps.extend(is_free.then_some(Fold)),
            Phase::Folded(_) => steps.push(Free),
        }
        for (number, process) in self.processes.iter().enumerate() {
            // others' leases are ended before
            let may = self.leased_by_others(number).is_none() || bounds.has(Fault::BringsLeased);
            let begins = process.asks && process.is_attached && self.brings.is_none();
            steps.extend((begins && may && is_free).then_some(Begin(number)));
        }
        steps.extend((self.brings.is_some() && is_free).then_some(Bring));
        match self.range {
            RangeUse::Door if bounds.has(Fault::DoorReturnsEarly) => steps.push(DoorReturns),
            RangeUse::Door | RangeUse::DoorReturned => steps.push(DoorStores),
            RangeUse::Free => {}
        }
        steps.extend((self.crashes < bounds.crashes).then_some(Die));
        steps
    }

    /// Who has the lease, or is to get it, and is another one.
    fn leased_by_others(&self, number: usize) -> Option<usize> {
        let owner = match self.phase {
            Phase::Entered(owner)
            | Phase::Cleared(owner)
            | Phase::Held(owner)
            | Phase::Closed(owner)
            | Phase::Folded(owner) => owner,
            Phase::Free | Phase::Down => return None,
        };
        (owner != number).then_some(owner)
    }

    /// The door's write that began last.
    fn door_content(&self) -> Content {
        (2 * PROCESSES) as u8 + self.door_begun
    }

    /// The page is not there any more, for anybody but `keeps`.
    fn take_away(&mut self, keeps: Option<usize>) {
        for (number, process) in self.processes.iter_mut().enumerate() {
            if process.is_attached && keeps != Some(number) {
                process.page = None;
            }
        }
    }

    pub(super) fn take_service(&mut self, step: ServiceStep, bounds: &Bounds) {
        match (step, self.phase) {
            (ServiceStep::Enter(number), _) => self.phase = Phase::Entered(number),
            (ServiceStep::TakeAway, Phase::Entered(number)) => {
                self.take_away(None);
                self.phase = Phase::Cleared(number);
            }
            (ServiceStep::Grant, Phase::Entered(number) | Phase::Cleared(number)) => {
                let process = &mut self.processes[number];
                process.last += 1;
                (process.word, process.lease) = (process.last, process.last);
                (self.granted, self.phase) = (Some(number), Phase::Held(number));
            }
            (ServiceStep::Close, Phase::Held(number)) => {
                self.processes[number].word = 0;
                self.phase = Phase::Closed(number);
            }
            (ServiceStep::Fold, Phase::Closed(number)) => {
                self.fold(number, bounds);
                self.phase = Phase::Folded(number);
            }
            (ServiceStep::Free, Phase::Folded(number)) => {
                let keeps =
                    bounds.has(Fault::KeepsPageAtTheEnd) || bounds.has(Fault::NoStoreWhenTold);
                self.take_away(keeps.then_some(number));
                (self.granted, self.phase) = (None, Phase::Free);
            }
            (ServiceStep::Begin(number), _) => {
                if !bounds.has(Fault::BringsUnfolded) {
                    self.granted.into_iter().for_each(|owner| self.fold(owner, bounds));
                }
                self.brings = Some((number, self.bytes()));
            }
            (ServiceStep::Bring, _) => self.bring(bounds),
            (ServiceStep::DoorWrites, _) => {
                self.door_begun += 1;
                self.history.push(self.door_content());
                self.range = RangeUse::Door;
            }
            (ServiceStep::DoorStores, _) => {
                let content = self.door_content();
                for process in self.processes.iter_mut().filter(|it| it.is_attached) {
                    if let Some(page) = &mut process.page {
                        *page = content;
                    }
                }
                self.returns(content);
                self.range = RangeUse::Free;
            }
            (ServiceStep::DoorReturns, _) => {
                self.returns(self.door_content());
                self.range = RangeUse::DoorReturned;
            }
            (ServiceStep::Die, _) => self.die(),
            (ServiceStep::Start, _) => {
                self.phase = self.granted.map_or(Phase::Free, Phase::Held);
            }
            (step, phase) => unreachable!("{step:?} in {phase:?}"),
        }
    }

    fn bring(&mut self, bounds: &Bounds) {
        let Some((number, before)) = self.brings.take() else { return };
        let bytes = if bounds.has(Fault::BringsOld) { before } else { self.bytes() };
        let process = &mut self.processes[number];
        process.page.get_or_insert(bytes);
        process.asks = false;
    }

    fn die(&mut self) {
        self.crashes += 1;
        (self.phase, self.range, self.brings) = (Phase::Down, RangeUse::Free, None);
        for process in &mut self.processes {
            (process.is_attached, process.asks) = (false, false);
        }
    }
}
