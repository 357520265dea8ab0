//! What has happened to a range, and what was seen of it: how it is known that reads and writes of
//! it are linearizable.
//!
//! The order of the writes is that in which they happened. Each is behind all that had been seen
//! when it began; each read returns a write that has happened, at the latest when it returned, and
//! none that is before what had been seen when it began.

use crate::few::Few;

/// What the range holds: 0 at first, then the number of the write that it is of, from 1 on.
pub type Content = u8;

/// What is wrong with a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flaw {
    /// A write that returned has not happened.
    Lost(Content),
    /// A write happened twice.
    Twice(Content),
    /// A write happened before something that had been seen when it began.
    Order(Content),
    /// A write happened of which its process was told that it did not.
    Lie(Content),
    /// A read returned what never happened.
    NeverHappened(Content),
    /// A read returned pieces of two writes.
    Torn,
    /// A read returned less than what had been seen when it began: it went back in time.
    Back(Content),
}

/// Of so many writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Story<const WRITES: usize> {
    /// Durable: the writes, in the order in which everybody sees them.
    pub history: Few<Content, WRITES>,
    /// How much of it was seen: it is in what a call returned.
    pub floor: u8,
    /// Of each write that, when it began, as long as the history is shorter than that.
    before: [u8; WRITES],
    /// Writes that returned and have not come to the history, a bit each.
    acknowledged: u8,
    /// Writes of which their process was told that they did not happen.
    refused: u8,
    /// What was done wrong in a step.
    pub wrong: Option<Flaw>,
}

impl<const WRITES: usize> Default for Story<WRITES> {
    fn default() -> Story<WRITES> {
        Story {
            history: Few::default(),
            floor: 0,
            before: [0; WRITES],
            acknowledged: 0,
            refused: 0,
            wrong: None,
        }
    }
}

/// How much of `happened` one has seen who saw this.
pub fn version(happened: &[Content], content: Content) -> Option<u8> {
    match content {
        0 => Some(0),
        _ => happened.iter().position(|it| *it == content).map(|at| at as u8 + 1),
    }
}

impl<const WRITES: usize> Story<WRITES> {
    /// A write begins.
    pub fn begins(&mut self, content: Content) {
        let is_there = usize::from(self.floor) <= self.history.len();
        self.before[usize::from(content) - 1] = if is_there { 0 } else { self.floor };
    }

    /// A write comes into the history.
    pub fn push(&mut self, content: Content) {
        let write = usize::from(content) - 1;
        if self.before[write] != 0 {
            self.wrong = Some(Flaw::Order(content));
        }
        self.history.push(content);
        self.acknowledged &= !(1 << write);
        let is_there = |before: &&mut u8| usize::from(**before) <= self.history.len();
        self.before.iter_mut().filter(is_there).for_each(|before| *before = 0);
    }

    /// A process is told that its write did not happen.
    pub fn refuses(&mut self, content: Content) {
        self.refused |= 1 << (content - 1);
        self.before[usize::from(content) - 1] = 0;
    }

    /// A write returns; `happened` is the history and what is sure to come there.
    pub fn write_returns(&mut self, content: Content, happened: &[Content]) {
        if !self.history.contains(&content) {
            self.acknowledged |= 1 << (content - 1);
        }
        self.returns(content, happened);
    }

    /// A read returns this, which began when so much of the history had been seen.
    pub fn read_returns(&mut self, floor: u8, content: Content, happened: &[Content]) {
        if version(happened, content).is_some_and(|version| version < floor) {
            self.wrong = Some(Flaw::Back(content));
        }
        self.returns(content, happened);
    }

    /// A call returns that saw this.
    fn returns(&mut self, content: Content, happened: &[Content]) {
        match version(happened, content) {
            Some(version) => self.floor = self.floor.max(version),
            None => self.wrong = Some(Flaw::NeverHappened(content)),
        }
    }

    /// The bytes as the service has them.
    pub fn bytes(&self) -> Content {
        self.history.last().copied().unwrap_or(0)
    }

    /// The first thing that is wrong.
    pub fn flaw(&self, happened: &[Content]) -> Option<Flaw> {
        if self.wrong.is_some() {
            return self.wrong;
        }
        for write in 0..WRITES as u8 {
            let content = write + 1;
            let count = happened.iter().filter(|it| **it == content).count();
            if self.acknowledged >> write & 1 == 1 && count == 0 {
                return Some(Flaw::Lost(content));
            }
            if count > 1 {
                return Some(Flaw::Twice(content));
            }
            if self.refused >> write & 1 == 1 && count > 0 {
                return Some(Flaw::Lie(content));
            }
        }
        None
    }
}
