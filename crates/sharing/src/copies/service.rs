//! What the service does.

use super::fault::Fault;
use super::state::{Bounds, HOLE, PROCESSES, Phase, Reader, State};
use crate::few::Few;

/// A step of the service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServiceStep {
    /// Chooses who is to get the lease. From now on nobody else gets a copy.
    Choose,
    /// Makes a copy invalid, and takes its bytes away: because another one is to get the lease, or
    /// for its memory.
    TakeAway(usize),
    /// Takes the bytes of a copy away, before it is invalid.
    TakeBytes(usize),
    /// Writes down that the chosen one has the lease, opens its word, and tells it.
    Grant,
    /// Closes the word: another one wants the lease, or a copy.
    Close,
    /// Folds the lane of who had the lease, and writes down that nobody has it.
    Free,
    /// Fills a copy, and makes it valid; or says that there can be none now.
    Fill(usize),
    /// Answers a read.
    Answer(usize),
    /// Dies.
    Die,
    /// Comes again.
    Start,
}

impl State {
    pub(super) fn service_steps(&self, bounds: &Bounds) -> Vec<ServiceStep> {
        use ServiceStep::{
            Answer, Choose, Close, Die, Fill, Free, Grant, Start, TakeAway, TakeBytes,
        };
        let mut steps = match self.phase {
            Phase::Down => return vec![Start],
            Phase::Free if self.queue.is_empty() => vec![],
            Phase::Free => vec![Choose],
            Phase::Clearing(owner) if self.is_clear(owner, bounds) => vec![Grant],
            Phase::Clearing(_) => vec![],
            Phase::Held(_) => vec![Close],
            Phase::Closed(_) => vec![Free],
        };
        for number in 0..PROCESSES {
            let process = &self.processes[number];
            let is_first = bounds.has(Fault::TakesBytesFirst) && process.copy != [HOLE; 2];
            if process.is_valid() {
                steps.push(if is_first { TakeBytes(number) } else { TakeAway(number) });
            }
            steps.extend(process.is_filling.then_some(Fill(number)));
            let is_asking = matches!(process.reader, Reader::Asking { .. });
            steps.extend(is_asking.then_some(Answer(number)));
        }
        steps.extend((self.crashes < bounds.crashes).then_some(Die));
        steps
    }

    /// Nobody has a copy but who is to get the lease.
    fn is_clear(&self, owner: usize, bounds: &Bounds) -> bool {
        let is_known = |number: usize| self.unknown >> number & 1 == 0;
        let mut others = (0..PROCESSES).filter(|number| *number != owner && is_known(*number));
        let is_clear = others.all(|number| !self.processes[number].is_valid());
        is_clear || bounds.has(Fault::GrantsOverCopies)
    }

    pub(super) fn take_service(&mut self, step: ServiceStep, bounds: &Bounds) {
        match (step, self.phase) {
            (ServiceStep::Choose, _) => {
                self.phase = Phase::Clearing(usize::from(self.queue.remove(0)));
            }
            (ServiceStep::TakeAway(number), _) => self.take_away(number, bounds),
            (ServiceStep::TakeBytes(number), _) => self.processes[number].copy = [HOLE; 2],
            (ServiceStep::Grant, Phase::Clearing(owner)) => {
                let process = &mut self.processes[owner];
                process.last += 1;
                process.word = process.last;
                process.lease = if process.is_alive { process.last } else { 0 };
                (self.granted, self.phase) = (Some(owner), Phase::Held(owner));
            }
            (ServiceStep::Close, Phase::Held(owner)) => {
                self.processes[owner].word = 0;
                self.phase = Phase::Closed(owner);
            }
            (ServiceStep::Free, Phase::Closed(owner)) => {
                self.fold(owner);
                (self.granted, self.phase) = (None, Phase::Free);
            }
            (ServiceStep::Fill(number), _) => self.fill(number, bounds),
            (ServiceStep::Answer(number), _) => {
                let Reader::Asking { floor } = self.processes[number].reader else { return };
                self.granted.into_iter().for_each(|owner| self.fold(owner));
                self.processes[number].reader = Reader::Idle;
                self.processes[number].reads += 1;
                self.read_returns(floor, self.story.bytes());
            }
            (ServiceStep::Die, _) => self.die(),
            (ServiceStep::Start, _) => {
                self.phase = self.granted.map_or(Phase::Free, Phase::Held);
            }
            (step, phase) => unreachable!("{step:?} in {phase:?}"),
        }
        // what it does not know of it learns of when it is gone or filled anew
        let is_there = |number: &usize| self.processes[*number].is_valid();
        self.unknown &= (0..PROCESSES).filter(is_there).fold(0, |all, it| all | 1 << it);
        if step == ServiceStep::Die && bounds.has(Fault::ForgetsCopies) {
            let valid = (0..PROCESSES).filter(|number| self.processes[*number].is_valid());
            self.unknown = valid.fold(0, |all, number| all | 1 << number);
        }
    }

    fn take_away(&mut self, number: usize, bounds: &Bounds) {
        let process = &mut self.processes[number];
        process.validity = if bounds.has(Fault::NoCount) { 0 } else { process.validity + 1 };
        process.copy = [HOLE; 2];
    }

    /// Who is to get the lease or has it, and who else has nothing to wait for.
    fn may_fill(&self, number: usize, bounds: &Bounds) -> bool {
        match self.phase {
            Phase::Down => false,
            Phase::Free => true,
            Phase::Clearing(owner) | Phase::Held(owner) | Phase::Closed(owner) => {
                owner == number || bounds.has(Fault::FillsLeased)
            }
        }
    }

    fn fill(&mut self, number: usize, bounds: &Bounds) {
        if self.may_fill(number, bounds) {
            if !bounds.has(Fault::FillsUnfolded) {
                self.granted.into_iter().for_each(|owner| self.fold(owner));
            }
            let bytes = self.story.bytes();
            let process = &mut self.processes[number];
            if bounds.has(Fault::ValidBeforeBytes) && !process.is_valid() {
                process.validity += 1;
                return;
            }
            process.copy = [bytes; 2];
            process.validity += u8::from(!process.is_valid());
            process.fills += 1;
        }
        self.processes[number].is_filling = false;
    }

    fn die(&mut self) {
        self.phase = Phase::Down;
        self.queue = Few::default();
        self.crashes += 1;
        for process in &mut self.processes {
            // they see that the connection is gone: nobody fills or answers any more
            process.is_filling = false;
            if matches!(process.reader, Reader::Asking { .. }) {
                process.reader = Reader::Idle;
            }
        }
    }
}
