//! What the service does.

use super::bounds::{Bounds, HOLDERS, SLOTS};
use super::fault::Fault;
use super::properties::Flaw;
use super::state::{Doing, Holder, Lease, Old, Phase, State};
use crate::few::Few;

/// A step of the service. Where two numbers stand they are those of a process and of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServiceStep {
    /// Writes down that this one of those who wait has its leases, and under which generations.
    Grant(usize),
    /// Opens the words of the leases that are given, and tells their holder.
    Tell(usize),
    /// Asks for a lease back: another one wants its range, or its holder is gone.
    Recall(usize, usize),
    /// Closes the word of a lease that was given back, or whose holder is dead, or has not answered
    /// in time; all that he does under it from then on he does in vain.
    Close(usize, usize),
    /// Folds a lane.
    Fold(usize),
    /// Copies what is new in a lane.
    Copy(usize),
    /// Folds what is copied.
    Commit,
    /// Writes down that nobody has this lease.
    Free(usize, usize),
    /// Gives the place of a process whose connection is gone to another one.
    Reap(usize),
    /// Answers a read.
    Answer,
    /// Dies.
    Die,
    /// Comes again: every lease that is written down is to be lost.
    Start,
}

impl State {
    pub(super) fn service_steps(&self, bounds: &Bounds) -> Vec<ServiceStep> {
        use ServiceStep::{Answer, Close, Commit, Die, Free, Grant, Reap, Recall, Start, Tell};
        if !self.is_up {
            return vec![Start];
        }
        let mut steps = Vec::new();
        let grants = (0..self.queue.len()).filter(|at| self.may_grant(*at, bounds));
        steps.extend(grants.map(Grant));
        for holder in 0..HOLDERS {
            let is_at = |phase: Phase| self.slots[holder].iter().any(|slot| slot.phase == phase);
            steps.extend(is_at(Phase::Granting).then_some(Tell(holder)));
            for slot in 0..SLOTS {
                let it = &self.slots[holder][slot];
                let is_connected = self.holders[holder].is_connected;
                let is_kept = self.holders[holder].leases[slot] == it.granted && is_connected;
                let waits = bounds.has(Fault::WaitsForGivingBack) && is_kept;
                let is_early = bounds.has(Fault::FreesBeforeFolding);
                match it.phase {
                    Phase::Held if !is_connected || self.is_wanted(it.granted.range) => {
                        steps.push(Recall(holder, slot));
                    }
                    // how long it waits before is its own choice
                    Phase::Recalled if !waits => steps.push(Close(holder, slot)),
                    Phase::Folded => steps.push(Free(holder, slot)),
                    Phase::Closed if is_early => steps.push(Free(holder, slot)),
                    _ => {}
                }
            }
            steps.extend(self.fold_steps(holder, bounds));
            steps.extend(self.may_reap(holder, bounds).then_some(Reap(holder)));
        }
        steps.extend(self.copied.map(|_| Commit));
        steps.extend(self.reading.filter(|_| self.copied.is_none()).map(|_| Answer));
        steps.extend((self.spent.crashes < bounds.crashes).then_some(Die));
        steps
    }

    fn fold_steps(&self, holder: usize, bounds: &Bounds) -> Option<ServiceStep> {
        let is_closed = self.slots[holder].iter().any(|slot| slot.phase == Phase::Closed);
        let is_of_use = is_closed || !self.read(holder, bounds).is_empty();
        (is_of_use && self.copied.is_none()).then_some(match bounds.is_slow {
            true => ServiceStep::Copy(holder),
            false => ServiceStep::Fold(holder),
        })
    }

    fn may_reap(&self, number: usize, bounds: &Bounds) -> bool {
        let holder = &self.holders[number];
        let has_use = usize::from(holder.begun) < bounds.writes[number].len();
        let is_done = self.slots[number].iter().all(|slot| slot.phase == Phase::Free);
        !holder.is_connected && has_use && is_done && self.copied.is_none()
    }

    pub(super) fn take_service(&mut self, step: ServiceStep, bounds: &Bounds) {
        match step {
            ServiceStep::Grant(at) => self.grant(at, bounds),
            ServiceStep::Tell(holder) => self.tell(holder, bounds),
            ServiceStep::Recall(holder, slot) => self.slots[holder][slot].phase = Phase::Recalled,
            ServiceStep::Close(holder, slot) => {
                let is_late = bounds.has(Fault::ReadsBeforeClosing);
                if is_late {
                    self.fold(holder, bounds);
                } else {
                    self.slots[holder][slot].word = 0;
                }
                if bounds.has(Fault::ClosesAll) {
                    self.slots[holder].iter_mut().for_each(|slot| slot.word = 0);
                }
                self.slots[holder][slot].phase = Phase::Closed;
            }
            ServiceStep::Fold(holder) if bounds.has(Fault::ReadsBeforeClosing) => {
                for slot in &mut self.slots[holder] {
                    if slot.phase == Phase::Closed {
                        (slot.word, slot.phase) = (0, Phase::Folded);
                    }
                }
            }
            ServiceStep::Fold(holder) => self.fold(holder, bounds),
            ServiceStep::Copy(holder) => self.copy(holder, bounds),
            ServiceStep::Commit => self.commit(bounds),
            ServiceStep::Free(holder, slot) => {
                let slot = &mut self.slots[holder][slot];
                (slot.granted, slot.is_written) = (Lease::default(), false);
                (slot.word, slot.phase) = (0, Phase::Free);
            }
            ServiceStep::Reap(holder) => self.reap(holder, bounds),
            ServiceStep::Answer => self.answer(bounds),
            ServiceStep::Die => {
                self.spent.crashes += 1;
                self.die(bounds);
            }
            ServiceStep::Start => self.start(bounds),
        }
    }

    fn grant(&mut self, at: usize, bounds: &Bounds) {
        let ask = self.queue.remove(at);
        let wish = ask.wish.iter().enumerate().filter(|(_, range)| **range != 0);
        for (slot, range) in wish {
            let slot = &mut self.slots[usize::from(ask.holder)][slot];
            slot.last += 1;
            slot.granted = Lease { generation: slot.last, range: *range };
            slot.is_written = !bounds.has(Fault::TellsBeforeWriting);
            slot.phase = Phase::Granting;
        }
    }

    fn tell(&mut self, number: usize, bounds: &Bounds) {
        let of_others = |write: &u8| super::of_write(*write).0 != number;
        for at in 0..SLOTS {
            let slot = &mut self.slots[number][at];
            if slot.phase != Phase::Granting {
                continue;
            }
            (slot.word, slot.phase) = (slot.granted.generation, Phase::Held);
            let lease = slot.granted;
            let mut before = (0..super::WRITES as u8).filter(of_others);
            let returned = State::touching(self.acknowledged, lease.range, bounds);
            if before.any(|it| returned >> it & 1 == 1 && !self.history.contains(&it)) {
                self.wrong = Some(Flaw::Stale);
            }
            let holder = &mut self.holders[number];
            if holder.doing != Doing::Dead && holder.is_connected {
                holder.leases[at] = lease;
            }
        }
    }

    fn answer(&mut self, bounds: &Bounds) {
        let Some(reading) = self.reading.take() else { return };
        for holder in 0..HOLDERS {
            let leased = self.slots[holder].iter().fold(0, |all, slot| all | slot.granted.range);
            if leased & reading.range != 0 && !bounds.has(Fault::ReadsUnfolded) {
                self.fold(holder, bounds);
            }
        }
        let mut before = (0..super::WRITES as u8).filter(|it| reading.before >> it & 1 == 1);
        if before.any(|write| !self.history.contains(&write)) {
            self.wrong = Some(Flaw::Stale);
        }
    }

    /// What it had in memory is gone.
    pub(super) fn die(&mut self, bounds: &Bounds) {
        self.is_up = false;
        self.queue = Few::default();
        self.copied = None;
        self.reading = None;
        for slot in self.slots.iter_mut().flatten() {
            if !slot.is_written || bounds.has(Fault::ForgetsLeases) {
                slot.granted = Lease::default();
            }
            slot.phase = Phase::Free;
        }
        if bounds.has(Fault::ForgetsFolded) {
            self.folded = [0; HOLDERS];
        }
    }

    fn start(&mut self, _bounds: &Bounds) {
        self.is_up = true;
        for slot in self.slots.iter_mut().flatten() {
            if slot.granted.generation != 0 {
                slot.phase = Phase::Recalled;
            }
        }
    }

    fn reap(&mut self, number: usize, bounds: &Bounds) {
        let holder = self.holders[number];
        let is_given_on = bounds.has(Fault::LaneGivenOn);
        let buffer = holder.buffer.filter(|_| is_given_on);
        let is_alive = holder.doing != Doing::Dead;
        self.old[number] = match holder.doing {
            Doing::Stored(request) if is_alive => {
                Some(Old { request, named: holder.named, buffer })
            }
            _ => None,
        };
        // the blocks of the lane may be those of the one before, with what it stored there
        self.holders[number] =
            Holder { lane: holder.lane, seed: holder.seed + 1, begun: holder.begun, ..Holder::NEW };
        self.folded[number] = 0;
        if bounds.has(Fault::GenerationsAnew) {
            self.slots[number].iter_mut().for_each(|slot| slot.last = 0);
        }
    }
}
