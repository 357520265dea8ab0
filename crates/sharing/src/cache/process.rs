//! What the threads of a process do.

use super::fault::Fault;
use super::state::{
    Asker, Bounds, NOTHING, PAGES, PROCESSES, Phase, Process, RangeUse, Reader, Record, State,
    Told, Writer,
};
use crate::few::Few;
use crate::story::{Content, Flaw};

/// A step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProcessStep {
    /// Begins a write, and changes the number of one page after the other.
    Mark,
    /// Stores a record in the lane, with a fence behind it.
    Store,
    /// Looks whether it still has its lease: then the write has happened, and returns.
    Look,
    /// Hears what became of its write, which returns.
    Hear,
    /// Sees that the lease is gone.
    Notice,
    /// Looks whether a page is as it was told; loads it, if it was.
    Load,
    /// Looks at a page again.
    LookAgain,
    /// Looks whether the service owns the pool still: then the read is over.
    LookForService,
    /// Notes the numbers, and asks.
    Ask,
    /// Keeps what it was told; the read is over.
    Keep,
    /// Hears that its service is dead, and attaches to the next.
    Attach,
}

impl Process {
    fn is_as_told(&self, page: usize, told: Told, bounds: &Bounds) -> bool {
        let is_number = self.numbers[page] == told.number || bounds.has(Fault::NoNumbers);
        self.counts[page] == told.count && is_number
    }
}

impl State {
    pub(super) fn process_steps(&self, number: usize, bounds: &Bounds) -> Vec<ProcessStep> {
        use ProcessStep::{
            Ask, Attach, Hear, Keep, Load, Look, LookAgain, LookForService, Mark, Notice, Store,
        };
        let process = &self.processes[number];
        let mut steps = Vec::new();
        let is_up = self.phase != Phase::Down && !self.is_unsaid;
        let is_served = is_up && process.is_attached;
        match process.writer {
            Writer::Idle if process.lease != 0 => {
                steps.extend((process.begun < bounds.writes[number]).then_some(Mark));
                steps.extend((process.word != process.lease).then_some(Notice));
            }
            Writer::Idle => {}
            Writer::Marking(_, marked) if marked < PAGES => steps.push(Mark),
            Writer::Marking(..) => steps.push(Store),
            Writer::Stored(_) if self.marks_late(number, bounds) => steps.push(Mark),
            Writer::Stored(_) => steps.push(Look),
            Writer::Unsure(_) => {
                let may_fold = self.range == RangeUse::Free;
                steps.extend((is_served && may_fold).then_some(Hear));
            }
        }
        match process.reader {
            Reader::Idle => {
                let may = process.reads < bounds.reads[number] && process.told != [None; PAGES];
                steps.extend(may.then_some(Load));
            }
            Reader::Loading { .. } => steps.push(Load),
            Reader::LookingAgain { looked, .. } if looked < PAGES => steps.push(LookAgain),
            Reader::LookingAgain { .. } => steps.push(LookForService),
        }
        match process.asker {
            Asker::Idle => {
                steps.extend((is_served && process.asks < bounds.asks[number]).then_some(Ask));
            }
            Asker::Answered { .. } => steps.push(Keep),
            Asker::Asked { .. } | Asker::Served { .. } => {}
        }
        let is_at = matches!(process.asker, Asker::Answered { .. });
        // what is kept is of the memory of the service that told it
        steps.extend((is_up && !process.is_attached && !is_at).then_some(Attach));
        steps
    }

    /// The number of a page is changed only now.
    fn marks_late(&self, number: usize, bounds: &Bounds) -> bool {
        bounds.has(Fault::NumbersLate) && self.processes[number].under_way != [true; PAGES]
    }

    pub(super) fn take_process(&mut self, number: usize, step: ProcessStep, bounds: &Bounds) {
        let process = &mut self.processes[number];
        match step {
            ProcessStep::Mark => self.mark(number, bounds),
            ProcessStep::Store => {
                let Writer::Marking(content, _) = process.writer else { return };
                process.lane.push(Record { content, generation: process.lease });
                process.writer = Writer::Stored(content);
            }
            ProcessStep::Look => {
                let Writer::Stored(content) = process.writer else { return };
                match process.word == process.lease {
                    true => self.write_returns(number, content),
                    false => (process.writer, process.lease) = (Writer::Unsure(content), 0),
                }
            }
            ProcessStep::Hear => {
                let Writer::Unsure(content) = process.writer else { return };
                self.fold(number);
                if self.story.history.contains(&content) {
                    return self.write_returns(number, content);
                }
                self.story.refuses(content);
                self.ends(number);
            }
            ProcessStep::Notice => process.lease = 0,
            ProcessStep::Load => self.load(number, bounds),
            ProcessStep::LookAgain => self.look_again(number, bounds),
            ProcessStep::LookForService => {
                let Reader::LookingAgain { floor, loaded, .. } = process.reader else { return };
                process.reader = Reader::Idle;
                if process.is_ruled || bounds.has(Fault::NoReign) {
                    self.read_returns(floor, loaded);
                }
            }
            ProcessStep::Ask => {
                process.asks += 1;
                let is_quiet = process.under_way == [false; PAGES];
                let notes = is_quiet || bounds.has(Fault::KeepsUnderWay);
                let numbers = notes.then_some(process.numbers);
                process.asker = Asker::Asked { floor: self.story.floor, numbers };
            }
            ProcessStep::Keep => self.keep(number, bounds),
            ProcessStep::Attach => {
                process.told = [None; PAGES];
                // what it reads of the last one's memory ends with a look at the last one's word
                process.reader = Reader::Idle;
                (process.counts, process.bytes) = ([0; PAGES], [NOTHING; PAGES]);
                (process.is_ruled, process.is_attached) = (true, true);
            }
        }
    }

    fn mark(&mut self, number: usize, bounds: &Bounds) {
        let process = &mut self.processes[number];
        let (content, marked) = match process.writer {
            Writer::Marking(content, marked) => (content, marked),
            Writer::Stored(_) => {
                let page = usize::from(process.under_way[0]);
                (process.under_way[page], process.numbers[page]) =
                    (true, process.numbers[page] + 1);
                return;
            }
            _ => {
                let content = process.begun * PROCESSES as u8 + number as u8 + 1;
                process.begun += 1;
                self.story.begins(content);
                (content, 0)
            }
        };
        let process = &mut self.processes[number];
        if bounds.has(Fault::NoNumbers) || bounds.has(Fault::NumbersLate) {
            process.writer = Writer::Marking(content, PAGES);
            return;
        }
        process.under_way[marked] = true;
        process.numbers[marked] += 1;
        process.writer = Writer::Marking(content, marked + 1);
    }

    fn ends(&mut self, number: usize) {
        let process = &mut self.processes[number];
        process.under_way = [false; PAGES];
        process.writer = Writer::Idle;
    }

    fn write_returns(&mut self, number: usize, content: Content) {
        self.ends(number);
        self.story.write_returns(content, &self.happened());
    }

    fn read_returns(&mut self, floor: u8, loaded: [Content; PAGES]) {
        if loaded[0] != loaded[1] {
            self.story.wrong = Some(Flaw::Torn);
        }
        self.story.read_returns(floor, loaded[0], &self.happened());
    }

    fn load(&mut self, number: usize, bounds: &Bounds) {
        let process = &mut self.processes[number];
        let (floor, mut told, mut loaded) = match process.reader {
            Reader::Loading { floor, told, loaded } => (floor, told, loaded),
            _ => {
                process.reads += 1;
                (self.story.floor, Few::default(), Few::default())
            }
        };
        let page = loaded.len();
        if told.len() == page {
            process.reader = match process.told[page] {
                Some(kept) if process.is_as_told(page, kept, bounds) => {
                    told.push(kept);
                    Reader::Loading { floor, told, loaded }
                }
                // it asks
                _ => Reader::Idle,
            };
            return;
        }
        loaded.push(process.bytes[page]);
        process.reader = match loaded[..] {
            [one, other] => {
                let looked = match bounds.has(Fault::NoSecondLook) {
                    true => PAGES,
                    // the first one was looked at when it was loaded
                    false => usize::from(bounds.has(Fault::LooksPageByPage)),
                };
                Reader::LookingAgain { floor, told, loaded: [one, other], looked }
            }
            _ => Reader::Loading { floor, told, loaded },
        };
    }

    fn look_again(&mut self, number: usize, bounds: &Bounds) {
        let process = &mut self.processes[number];
        let Reader::LookingAgain { floor, told, loaded, looked } = process.reader else { return };
        process.reader = match process.is_as_told(looked, told[looked], bounds) {
            true => Reader::LookingAgain { floor, told, loaded, looked: looked + 1 },
            false => Reader::Idle,
        };
    }

    fn keep(&mut self, number: usize, bounds: &Bounds) {
        let process = &mut self.processes[number];
        let Asker::Answered { floor, numbers, content, counts } = process.asker else { return };
        process.asker = Asker::Idle;
        let numbers = match bounds.has(Fault::NotesLate) {
            true => Some(process.numbers),
            false => numbers,
        };
        if let (Some(numbers), Some(counts)) = (numbers, counts) {
            let told = |page: usize| Some(Told { count: counts[page], number: numbers[page] });
            process.told = std::array::from_fn(told);
        }
        self.read_returns(floor, [content; PAGES]);
    }
}
