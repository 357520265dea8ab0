//! What the service does.

use crate::fault::Fault;
use crate::state::{Bounds, Doing, HOLDERS, Service, State};

/// A step of the service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServiceStep {
    /// Writes down that this one has the lease, and under which generation.
    Grant(usize),
    /// Opens the generation in his word, and tells him.
    Tell,
    /// Asks for the lease back: another one wants it.
    Recall,
    /// Closes the word of a holder who gave the lease back, or is dead, or has not answered in
    /// time; all that he does from then on he does in vain.
    Close,
    /// Folds what is in his lane under his generation, and how far, in one record of its own log.
    Fold,
    /// Writes down that nobody has the lease.
    Free,
    /// Dies.
    Die,
    /// Comes again: whoever has the lease, by what is written down, is to lose it.
    Start,
}

impl State {
    pub(crate) fn service_steps(&self, bounds: &Bounds) -> Vec<ServiceStep> {
        use ServiceStep::{Close, Die, Fold, Free, Grant, Recall, Start, Tell};
        let waits = |number: usize| self.holders[number].doing == Doing::Waiting;
        let mut steps: Vec<ServiceStep> = match self.service {
            Service::Down => return vec![Start],
            Service::Free => (0..HOLDERS).filter(|it| waits(*it)).map(Grant).collect(),
            Service::Granting(_) => vec![Tell],
            Service::Held(holder) => {
                let is_wanted = (0..HOLDERS).any(|it| it != holder && waits(it));
                let is_dead = self.holders[holder].doing == Doing::Dead;
                let mut steps = vec![Fold];
                steps.extend((is_wanted || is_dead).then_some(Recall));
                steps
            }
            // how long it waits before is its own choice
            Service::Recalled(_) if bounds.has(Fault::FreesBeforeFolding) => vec![Close, Free],
            Service::Recalled(_) => vec![Close],
            Service::Closed(_) => vec![Fold],
            Service::Folded(_) => vec![Free],
        };
        steps.extend((self.crashes < bounds.crashes).then_some(Die));
        steps
    }

    pub(crate) fn take_service(&mut self, step: ServiceStep, bounds: &Bounds) {
        match (step, self.service.clone()) {
            (ServiceStep::Grant(holder), _) => {
                self.generations[holder] += 1;
                if !bounds.has(Fault::TellsBeforeWriting) {
                    self.granted = Some((holder, self.generations[holder]));
                }
                self.service = Service::Granting(holder);
            }
            (ServiceStep::Tell, Service::Granting(holder)) => self.tell(holder),
            (ServiceStep::Recall, Service::Held(holder)) => {
                self.service = Service::Recalled(holder);
            }
            (ServiceStep::Close, Service::Recalled(holder)) => {
                match bounds.has(Fault::ReadsBeforeClosing) {
                    true => self.fold(holder, bounds),
                    false => self.words[holder] = 0,
                }
                self.service = Service::Closed(holder);
            }
            (ServiceStep::Fold, Service::Closed(holder)) => {
                match bounds.has(Fault::ReadsBeforeClosing) {
                    true => self.words[holder] = 0,
                    false => self.fold(holder, bounds),
                }
                self.service = Service::Folded(holder);
            }
            // while he goes on: his lane is to have room
            (ServiceStep::Fold, Service::Held(holder)) => {
                self.written_down(holder);
                self.fold(holder, bounds);
            }
            (ServiceStep::Free, Service::Folded(holder) | Service::Recalled(holder)) => {
                self.words[holder] = 0;
                self.granted = None;
                self.service = Service::Free;
            }
            (ServiceStep::Die, _) => {
                self.service = Service::Down;
                self.crashes += 1;
                if bounds.has(Fault::ForgetsFolded) {
                    self.folded = [0; HOLDERS];
                }
            }
            (ServiceStep::Start, _) => self.service = self.started(),
            (step, service) => unreachable!("{step:?} in {service:?}"),
        }
    }

    fn started(&self) -> Service {
        self.granted.map_or(Service::Free, |(holder, _)| Service::Recalled(holder))
    }

    fn tell(&mut self, holder: usize) {
        let generation = self.generations[holder];
        self.words[holder] = generation;
        let of_others = self.acknowledged & !of(holder, self.before.len());
        let seen = self.history.iter().fold(0, |seen, write| seen | 1 << write);
        self.is_stale |= of_others & !seen != 0;
        self.service = Service::Held(holder);
        let holder = &mut self.holders[holder];
        if holder.doing == Doing::Waiting {
            (holder.doing, holder.generation) = (Doing::Holding, generation);
        }
    }

    /// A grant that was told and not written down is written down some time.
    fn written_down(&mut self, holder: usize) {
        self.granted = Some((holder, self.generations[holder]));
    }

    fn fold(&mut self, holder: usize, bounds: &Bounds) {
        let lane = &self.holders[holder].lane;
        let generation = self.granted.map_or(0, |(_, generation)| generation);
        let any = bounds.has(Fault::AnyGeneration);
        let new = lane[self.folded[holder]..]
            .iter()
            .filter(|record| any || record.generation == generation)
            .map(|record| record.write);
        self.history.extend(new);
        self.folded[holder] = lane.len();
    }
}

/// The writes of a process, of so many.
fn of(holder: usize, writes: usize) -> u16 {
    (holder..writes).step_by(HOLDERS).fold(0, |all, write| all | 1 << write)
}
