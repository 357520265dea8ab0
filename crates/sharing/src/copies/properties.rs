//! What must be so in every state.

use super::state::{Content, State, WRITES};

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

/// The first thing that is wrong with a state.
///
/// That there is none says that reads and writes are linearizable: the order of the writes is that
/// in which they happened; each is behind all that had been seen when it began ([`Flaw::Order`]);
/// each read returns a write that has happened, at the latest when it returned, and none that is
/// before what had been seen when it began.
pub fn flaw(state: &State) -> Option<Flaw> {
    if state.wrong.is_some() {
        return state.wrong;
    }
    let happened = state.happened();
    for write in 0..WRITES as u8 {
        let content = write + 1;
        let count = happened.iter().filter(|it| **it == content).count();
        if state.acknowledged >> write & 1 == 1 && count == 0 {
            return Some(Flaw::Lost(content));
        }
        if count > 1 {
            return Some(Flaw::Twice(content));
        }
        if state.refused >> write & 1 == 1 && count > 0 {
            return Some(Flaw::Lie(content));
        }
    }
    None
}
