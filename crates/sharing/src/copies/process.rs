//! What the threads of a process do.

use super::fault::Fault;
use super::state::{Bounds, HOLE, PROCESSES, Phase, Reader, Record, State, Writer};
use crate::few::Few;
use crate::story::{Content, Flaw};

/// A step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProcessStep {
    /// Asks for the lease.
    Ask,
    /// Takes the lock of the copy, and stores a record in the lane, with a fence behind it.
    Store,
    /// Looks whether it still has its lease: then the write has happened.
    Look,
    /// Hears what became of its write.
    Hear,
    /// Stores half of what it wrote into its copy; with the second half it gives the lock back, and
    /// the call returns.
    Put,
    /// Sees that the lease is gone.
    Notice,
    /// Takes the lock of its copy, and asks the service to fill it.
    WantCopy,
    /// Begins a read with its copy: it is valid, and no thread is at a write.
    ReadCopy,
    /// Loads half of it.
    Load,
    /// Looks again. Is everything as it was, the read is over; else it begins anew.
    LookAgain,
    /// Begins a read by asking the service.
    ReadService,
    /// Is killed.
    Die,
}

impl State {
    pub(super) fn process_steps(&self, number: usize, bounds: &Bounds) -> Vec<ProcessStep> {
        use ProcessStep::{Ask, Die, Hear, Look, Notice, Put, Store};
        let process = &self.processes[number];
        let mut steps = Vec::new();
        if !process.is_alive {
            return steps;
        }
        let is_up = self.phase != Phase::Down;
        let more = process.begun < bounds.writes[number];
        match process.writer {
            Writer::Idle if process.lease == 0 => {
                let waits = self.queue.contains(&(number as u8));
                let may_ask = !waits && self.phase != Phase::Clearing(number);
                let may_ask = may_ask && process.last < bounds.grants && more && is_up;
                steps.extend(may_ask.then_some(Ask));
            }
            Writer::Idle => {
                let is_free = !process.is_filling || bounds.has(Fault::FillsLocked);
                steps.extend((more && is_free).then_some(Store));
                steps.extend((process.word != process.lease).then_some(Notice));
            }
            Writer::Stored(_) => steps.push(Look),
            Writer::Unsure(_) => steps.extend(is_up.then_some(Hear)),
            Writer::Happened(_) | Writer::Half(_) => steps.push(Put),
        }
        self.reader_steps(number, bounds, &mut steps);
        steps.extend((self.kills < bounds.kills).then_some(Die));
        steps
    }

    fn reader_steps(&self, number: usize, bounds: &Bounds, steps: &mut Vec<ProcessStep>) {
        use ProcessStep::{Load, LookAgain, ReadCopy, ReadService, WantCopy};
        let process = &self.processes[number];
        let is_locked = process.is_locked(bounds);
        let is_up = self.phase != Phase::Down;
        let may_lock = !is_locked || bounds.has(Fault::FillsLocked);
        let has_none = !process.is_valid() && !process.is_filling;
        let may_fill = may_lock && has_none && process.fills < bounds.fills[number];
        steps.extend((may_fill && is_up).then_some(WantCopy));
        match process.reader {
            Reader::Idle if process.reads < bounds.reads[number] => {
                let may_look = !is_locked || bounds.has(Fault::NoLock);
                steps.extend((process.is_valid() && may_look).then_some(ReadCopy));
                steps.extend(is_up.then_some(ReadService));
            }
            Reader::Copying { halves, .. } if halves.len() < 2 => steps.push(Load),
            Reader::Copying { .. } => steps.push(LookAgain),
            Reader::Idle | Reader::Asking { .. } => {}
        }
    }

    pub(super) fn take_process(&mut self, number: usize, step: ProcessStep, bounds: &Bounds) {
        let process = &mut self.processes[number];
        match step {
            ProcessStep::Ask => self.queue.push(number as u8),
            ProcessStep::Store => {
                let write = process.begun * PROCESSES as u8 + number as u8;
                process.begun += 1;
                process.lane.push(Record { content: write + 1, generation: process.lease });
                process.writer = Writer::Stored(write + 1);
                self.story.begins(write + 1);
                if bounds.has(Fault::PutsBeforeLook) {
                    process.copy = [write + 1; 2];
                }
            }
            ProcessStep::Look => self.look(number, bounds),
            ProcessStep::Hear => self.hear(number, bounds),
            ProcessStep::Put => match process.writer {
                Writer::Happened(content) => {
                    process.copy[0] = content;
                    process.writer = Writer::Half(content);
                }
                Writer::Half(content) => {
                    process.copy[1] = content;
                    self.write_returns(content);
                    self.processes[number].writer = Writer::Idle;
                }
                _ => {}
            },
            ProcessStep::Notice => process.lease = 0,
            ProcessStep::WantCopy => process.is_filling = true,
            ProcessStep::ReadCopy => {
                process.reader = Reader::Copying {
                    floor: self.story.floor,
                    validity: process.validity,
                    begun: process.begun,
                    halves: Few::default(),
                };
            }
            ProcessStep::Load => {
                if let Reader::Copying { halves, .. } = &mut process.reader {
                    halves.push(process.copy[halves.len()]);
                }
            }
            ProcessStep::LookAgain => self.look_again(number, bounds),
            ProcessStep::ReadService => {
                process.reader = Reader::Asking { floor: self.story.floor };
            }
            ProcessStep::Die => {
                process.is_alive = false;
                (process.writer, process.reader) = (Writer::Idle, Reader::Idle);
                process.is_filling = false;
                (process.lease, process.validity, process.copy) = (0, 0, [HOLE; 2]);
                self.queue.retain(|it| usize::from(*it) != number);
                self.kills += 1;
            }
        }
    }

    fn look(&mut self, number: usize, bounds: &Bounds) {
        let process = &mut self.processes[number];
        let Writer::Stored(content) = process.writer else { return };
        process.writer = Writer::Happened(content);
        if process.word != process.lease {
            (process.writer, process.lease) = (Writer::Unsure(content), 0);
        } else if bounds.has(Fault::ReturnsBeforePutting) {
            self.write_returns(content);
        }
    }

    fn hear(&mut self, number: usize, bounds: &Bounds) {
        let Writer::Unsure(content) = self.processes[number].writer else { return };
        self.fold(number);
        let has_happened = self.story.history.contains(&content);
        if !has_happened {
            self.story.refuses(content);
        } else if bounds.has(Fault::NoPutWhenTold) {
            self.write_returns(content);
        }
        let puts = has_happened && !bounds.has(Fault::NoPutWhenTold);
        self.processes[number].writer = match puts {
            true => Writer::Happened(content),
            false => Writer::Idle,
        };
    }

    fn write_returns(&mut self, content: Content) {
        self.story.write_returns(content, &self.happened());
    }

    fn look_again(&mut self, number: usize, bounds: &Bounds) {
        let process = &mut self.processes[number];
        let Reader::Copying { floor, validity, begun, halves } = process.reader else { return };
        process.reader = Reader::Idle;
        let is_as_it_was = process.validity == validity || bounds.has(Fault::NoSecondLook);
        let is_unlocked = process.begun == begun || bounds.has(Fault::NoLock);
        if is_as_it_was && is_unlocked {
            process.reads += 1;
            if halves[0] != halves[1] {
                self.story.wrong = Some(Flaw::Torn);
            }
            self.read_returns(floor, halves[0]);
        }
    }

    /// A read returns this, which began when so much of the history had been seen.
    pub(super) fn read_returns(&mut self, floor: u8, content: Content) {
        self.story.read_returns(floor, content, &self.happened());
    }
}
