//! Threads, and what each does next.

use placement::{Kind, Trail};

use crate::files::Part;
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::{Step, Workload};

/// A call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// What it does.
    pub kind: Kind,
    /// Bytes.
    pub bytes: u64,
    /// The file, and where in it; none: a log's end.
    pub file: Option<(u32, u64)>,
    /// It is the first one to its file: that is opened, or
    pub opens: bool,
    /// made.
    pub makes: bool,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Of which workload.
    pub set: usize,
    /// The node on which it runs, or waits for a CPU,
    pub node: u32,
    /// and where it ran first.
    pub home: u32,
    /// Since when it has a CPU.
    pub runs: Option<f64>,
    /// The call that it is at, or had,
    pub call: Call,
    /// whether it is the next one,
    pub is_due: bool,
    /// whether it is at it,
    pub is_at_call: bool,
    /// and since when.
    pub began: f64,
    /// What it copies itself, the next one last.
    pub own: Vec<Part>,
    /// Pieces for workers that are not asked so far.
    pub theirs: Vec<Part>,
    /// Pieces that workers have.
    pub left: u32,
    /// Turns that it has: the node, how many, and for how many bytes.
    pub turns: Vec<(u32, u32, u64)>,
    /// Its call's record is written, or on its way.
    pub has_record: bool,
    /// Where it has been.
    pub trail: Trail,
    /// Bytes of its log.
    pub logged: u64,
    /// For how long it is at other things before its next call, ns.
    pub thinks_ns: f64,
    /// Which one it is.
    number: u32,
    /// Of a recording: it has made a call.
    has_begun: bool,
    /// Its own file, and where in it the next call is.
    file: u32,
    round: u64,
    /// The step it is at, and the file and how far of one that takes more than one call.
    step: usize,
    at: Option<(u32, u64)>,
}

impl Thread {
    /// The one of this number among those of a workload.
    pub fn new(
        (set, workload): (usize, &Workload),
        number: u32,
        node: u32,
        random: &mut Random,
    ) -> Thread {
        let round = match workload.steps.first() {
            Some(Step::Round(_, bytes)) => random.draw() % (workload.file_bytes / bytes) * bytes,
            _ => 0,
        };
        let call = Call { kind: Kind::Read, bytes: 0, file: None, opens: false, makes: false };
        Thread {
            set,
            node,
            home: node,
            runs: None,
            call,
            is_due: false,
            is_at_call: false,
            began: 0.0,
            own: Vec::new(),
            theirs: Vec::new(),
            left: 0,
            turns: Vec::new(),
            has_record: false,
            trail: Trail::default(),
            logged: 0,
            thinks_ns: workload.thinks_ns,
            number,
            has_begun: false,
            file: number % workload.all_files(),
            round,
            step: 0,
            at: None,
        }
    }

    /// The next call becomes what it is at.
    pub fn next(&mut self, workload: &Workload, random: &mut Random) {
        if let Some(trace) = &workload.trace {
            return self.next_traced(trace);
        }
        let length = workload.file_bytes;
        let own = (workload.files == 0).then_some(self.file);
        let mut any_file =
            || own.unwrap_or_else(|| (random.draw() % u64::from(workload.all_files())) as u32);
        let step = workload.steps[self.step];
        let (kind, file, opens, is_over) = match step {
            Step::Round(kind, bytes) => {
                let at = self.round;
                let next = at + bytes;
                self.round = if next + bytes > length { 0 } else { next };
                (kind, Some((self.file, at)), false, true)
            }
            Step::Somewhere(kind, bytes) => {
                let file = any_file();
                let at = random.draw() % (length / bytes) * bytes;
                (kind, Some((file, at)), false, true)
            }
            Step::Whole(_, bytes) | Step::Make(bytes) => {
                let (opens, (file, at)) = match self.at {
                    Some(at) => (false, at),
                    None => (true, (any_file(), 0)),
                };
                let is_over = at + bytes >= length;
                self.at = (!is_over).then_some((file, at + bytes));
                let kind = if let Step::Whole(kind, _) = step { kind } else { Kind::Write };
                (kind, Some((file, at)), opens, is_over)
            }
            Step::Append(bytes) => {
                self.logged += bytes;
                (Kind::Write, None, true, true)
            }
        };
        let bytes = file.map_or(step.bytes(), |(_, at)| step.bytes().min(length - at));
        let makes = opens && matches!(step, Step::Make(_));
        self.call = Call { kind, bytes, file, opens, makes };
        if is_over {
            self.step = (self.step + 1) % workload.steps.len();
        }
    }

    /// The next one that was recorded; when the recording is over it begins again.
    fn next_traced(&mut self, trace: &Trace) {
        let Some(its) = trace.threads.get(self.number as usize) else { return };
        let Some(call) = its.calls.get(self.step) else { return };
        let (kind, bytes, file) = (call.kind, call.bytes, Some((call.file, call.at)));
        self.call = Call { kind, bytes, file, opens: false, makes: false };
        let rested = if self.step == 0 && self.has_begun { its.rests_ns } else { 0.0 };
        self.thinks_ns = rested + call.thinks_ns;
        self.has_begun = true;
        self.step = (self.step + 1) % its.calls.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_done_in_their_order_and_a_file_to_its_end() {
        let steps = vec![Step::Whole(Kind::Read, 400), Step::Append(16), Step::Make(1000)];
        let files =
            Workload { steps, files: 9, file_bytes: 1000, ..Workload::fio(Kind::Read, 1, 2) };
        let mut random = Random::new(1);
        let mut thread = Thread::new((0, &files), 0, 0, &mut random);
        let mut calls = Vec::new();
        for _ in 0..6 {
            thread.next(&files, &mut random);
            calls.push(thread.call);
        }
        let bytes: Vec<_> = calls.iter().map(|call| call.bytes).collect();
        assert_eq!(bytes, [400, 400, 200, 16, 1000, 400]);
        assert_eq!(calls[2].file, calls[0].file.map(|(file, _)| (file, 800)));
        assert_eq!((calls[3].file, calls[3].kind, thread.logged), (None, Kind::Write, 16));
        let opens: Vec<_> = calls.iter().map(|call| (call.opens, call.makes)).collect();
        let (no, opened, made) = ((false, false), (true, false), (true, true));
        assert_eq!(opens, [opened, no, no, opened, made, opened]);
    }
}
