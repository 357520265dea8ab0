//! What the service does, and the next one.

use super::fault::Fault;
use super::state::{Asker, Bounds, PAGES, PROCESSES, Phase, RangeUse, State};
use crate::story::Content;

/// A step of the service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServiceStep {
    /// Enters a lease for this one.
    Enter(usize),
    /// Takes a page of all processes away, where a lease begins or ends.
    TakeAway,
    /// Tells who is to have the lease.
    Grant,
    /// Closes the word of who has the lease.
    Close,
    /// Folds the lane of who had it.
    Fold,
    /// Nobody has the lease.
    Free,
    /// Begins to serve a read: folds lanes, and looks whether pages can be put there.
    Serve(usize),
    /// Has the range, and reads.
    Read(usize),
    /// Puts pages there, step by step.
    Put,
    /// The door begins a write: it has the range.
    DoorBegins,
    /// The door tells of a page.
    DoorTells,
    /// The door's write can be seen.
    DoorPublishes,
    /// The door's write returns.
    DoorReturns,
    /// The door reads, without the range.
    DoorReads,
    /// Dies.
    Die,
    /// Another one owns the pool.
    Start,
    /// It says that it does.
    Say,
}

impl State {
    pub(super) fn service_steps(&self, bounds: &Bounds) -> Vec<ServiceStep> {
        use ServiceStep::{
            Close, Die, DoorBegins, Enter, Fold, Free, Grant, Put, Read, Say, Serve, Start,
            TakeAway,
        };
        let mut steps = Vec::new();
        if self.phase == Phase::Down {
            return vec![Start];
        }
        let is_free = self.range == RangeUse::Free;
        match self.phase {
            Phase::Free => {
                let wants = |number: &usize| {
                    let process = &self.processes[*number];
                    let has_more = process.begun < bounds.writes[*number];
                    let has_more = has_more && process.lease == 0;
                    has_more && process.last < bounds.grants && process.is_attached
                };
                // ranges that a read has closed, or the door, are not leased
                let may = is_free && self.serving.is_none() && !self.is_unsaid;
                let wanting = (0..PROCESSES).filter(wants).filter(|_| may);
                steps.extend(wanting.map(Enter));
                let more = self.door_begun < bounds.door_writes;
                steps.extend((more && is_free).then_some(DoorBegins));
            }
            Phase::Clearing(_, PAGES) => steps.push(Grant),
            Phase::Clearing(..) if bounds.has(Fault::GrantsOverPages) => steps.push(Grant),
            Phase::Held(_) => steps.push(Close),
            Phase::Closed(_) => steps.extend(is_free.then_some(Fold)),
            Phase::Ending(_, PAGES) => steps.push(Free),
            Phase::Clearing(..) | Phase::Ending(..) => {}
            Phase::Down => {}
        }
        let is_taking =
            matches!(self.phase, Phase::Clearing(_, n) | Phase::Ending(_, n) if n < PAGES);
        let is_putting = matches!(self.range, RangeUse::Putting { .. });
        steps.extend((is_taking && !is_putting).then_some(TakeAway));
        for (number, process) in self.processes.iter().enumerate() {
            match process.asker {
                Asker::Asked { .. } if is_free && self.serving.is_none() && !self.is_unsaid => {
                    steps.extend(process.is_attached.then_some(Serve(number)));
                }
                Asker::Served { .. } => steps.extend(is_free.then_some(Read(number))),
                _ => {}
            }
        }
        // what is in a lane is folded first, which needs the range
        let is_folded = |owner: usize| self.processes[owner].lane.is_empty();
        let may_read = is_free || self.granted.is_none_or(is_folded);
        let more = self.door_reads < bounds.door_reads;
        steps.extend((more && may_read).then_some(ServiceStep::DoorReads));
        match self.range {
            RangeUse::Putting { .. } => steps.push(Put),
            RangeUse::Door(_) | RangeUse::DoorPublished(_) => steps.push(self.door_step(bounds)),
            RangeUse::Free => {}
        }
        steps.extend((self.crashes < bounds.crashes).then_some(Die));
        steps.extend(self.is_unsaid.then_some(Say));
        steps
    }

    fn door_step(&self, bounds: &Bounds) -> ServiceStep {
        use ServiceStep::{DoorPublishes, DoorReturns, DoorTells};
        let late = bounds.has(Fault::TellsLate);
        match self.range {
            RangeUse::Door(PAGES) => DoorPublishes,
            RangeUse::Door(_) if late => DoorPublishes,
            RangeUse::Door(_) => DoorTells,
            RangeUse::DoorPublished(told) if late && told < PAGES => DoorTells,
            _ => DoorReturns,
        }
    }

    /// The door's write: the one that it has begun last.
    fn door_content(&self) -> Content {
        (2 * PROCESSES) as u8 + self.door_begun
    }

    /// A page is not there any more, for anybody.
    fn take_away(&mut self, page: usize, bounds: &Bounds) {
        for process in self.processes.iter_mut().filter(|process| process.is_attached) {
            if process.counts[page] % 2 == 1 {
                let no_count = bounds.has(Fault::NoCount);
                process.counts[page] = if no_count { 0 } else { process.counts[page] + 1 };
            }
        }
    }

    pub(super) fn take_service(&mut self, step: ServiceStep, bounds: &Bounds) {
        match (step, self.phase, self.range) {
            (ServiceStep::Enter(number), ..) => {
                self.phase = Phase::Clearing(number, 0);
            }
            (ServiceStep::TakeAway, Phase::Clearing(number, taken), _) => {
                self.take_away(taken, bounds);
                self.phase = Phase::Clearing(number, taken + 1);
            }
            (ServiceStep::TakeAway, Phase::Ending(number, taken), _) => {
                self.take_away(taken, bounds);
                self.phase = Phase::Ending(number, taken + 1);
            }
            (ServiceStep::Grant, Phase::Clearing(number, _), _) => {
                let process = &mut self.processes[number];
                process.last += 1;
                (process.word, process.lease) = (process.last, process.last);
                (self.granted, self.phase) = (Some(number), Phase::Held(number));
            }
            (ServiceStep::Close, Phase::Held(number), _) => {
                self.processes[number].word = 0;
                self.phase = Phase::Closed(number);
            }
            (ServiceStep::Fold, Phase::Closed(number), _) => {
                self.fold(number);
                self.phase = Phase::Ending(number, 0);
            }
            (ServiceStep::Free, ..) => (self.granted, self.phase) = (None, Phase::Free),
            (ServiceStep::Serve(number), ..) => self.serve(number, bounds),
            (ServiceStep::Read(number), ..) => {
                let Asker::Served { before, .. } = self.processes[number].asker else { return };
                let early = bounds.has(Fault::ReadsBeforeRange);
                let content = if early { before } else { self.story.bytes() };
                self.range = RangeUse::Putting { number, content, done: 0 };
            }
            (ServiceStep::Put, ..) => self.put(),
            (ServiceStep::DoorBegins, ..) => {
                self.door_begun += 1;
                self.story.begins(self.door_content());
                self.range = RangeUse::Door(0);
            }
            (ServiceStep::DoorTells, _, RangeUse::Door(told)) => {
                self.take_away(told, bounds);
                self.range = RangeUse::Door(told + 1);
            }
            (ServiceStep::DoorTells, _, RangeUse::DoorPublished(told)) => {
                self.take_away(told, bounds);
                self.range = RangeUse::DoorPublished(told + 1);
            }
            (ServiceStep::DoorPublishes, _, RangeUse::Door(told)) => {
                self.story.push(self.door_content());
                self.range = RangeUse::DoorPublished(told);
            }
            (ServiceStep::DoorReturns, ..) => {
                let happened = self.happened();
                self.story.write_returns(self.door_content(), &happened);
                self.range = RangeUse::Free;
            }
            (ServiceStep::DoorReads, ..) => {
                self.door_reads += 1;
                self.granted.into_iter().for_each(|owner| self.fold(owner));
                let (floor, happened) = (self.story.floor, self.happened());
                self.story.read_returns(floor, self.story.bytes(), &happened);
            }
            (ServiceStep::Die, ..) => self.die(),
            (ServiceStep::Start, ..) => self.start(bounds),
            (ServiceStep::Say, ..) => self.say(),
            (step, phase, range) => unreachable!("{step:?} in {phase:?}, {range:?}"),
        }
    }

    /// Lanes are folded; where another one has the lease, the answer is there at once.
    fn serve(&mut self, number: usize, bounds: &Bounds) {
        let Asker::Asked { floor, numbers } = self.processes[number].asker else { return };
        let owner = match self.phase {
            Phase::Clearing(owner, _)
            | Phase::Held(owner)
            | Phase::Closed(owner)
            | Phase::Ending(owner, _) => Some(owner),
            Phase::Free | Phase::Down => None,
        };
        let is_others = owner.is_some_and(|owner| owner != number);
        let puts = !is_others || bounds.has(Fault::PutsLeased);
        if !(puts && bounds.has(Fault::PutsUnfolded)) {
            self.granted.into_iter().for_each(|owner| self.fold(owner));
        }
        self.processes[number].asker = match puts {
            true => {
                self.serving = Some(number);
                Asker::Served { floor, numbers, before: self.story.bytes() }
            }
            false => {
                let content = self.story.bytes();
                Asker::Answered { floor, numbers, content, counts: None }
            }
        };
    }

    fn put(&mut self) {
        let RangeUse::Putting { number, content, done } = self.range else { return };
        let process = &mut self.processes[number];
        let (page, step) = (done / 3, done % 3);
        match step {
            0 if process.counts[page] % 2 == 1 => process.counts[page] += 1,
            0 => {}
            1 => process.bytes[page] = content,
            _ => process.counts[page] += 1,
        }
        if done + 1 < 3 * PAGES {
            self.range = RangeUse::Putting { number, content, done: done + 1 };
            return;
        }
        self.range = RangeUse::Free;
        self.serving = None;
        if let Asker::Served { floor, numbers, .. } = process.asker {
            let counts = Some(process.counts);
            process.asker = Asker::Answered { floor, numbers, content, counts };
        }
    }

    fn die(&mut self) {
        self.crashes += 1;
        (self.phase, self.range, self.serving) = (Phase::Down, RangeUse::Free, None);
        for process in &mut self.processes {
            process.is_attached = false;
            // it is asked again, of the next one
            if let Asker::Served { floor, numbers, .. } = process.asker {
                process.asker = Asker::Asked { floor, numbers };
            }
        }
    }

    fn start(&mut self, bounds: &Bounds) {
        self.phase = self.granted.map_or(Phase::Free, Phase::Held);
        self.is_unsaid = true;
        if !bounds.has(Fault::ReignsLate) {
            self.say();
        }
    }

    /// All memory that the last one gave away is not looked at any more.
    fn say(&mut self) {
        self.is_unsaid = false;
        self.processes.iter_mut().for_each(|process| process.is_ruled &= process.is_attached);
    }
}
