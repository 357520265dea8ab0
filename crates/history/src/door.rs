//! The same acts at any door.

use crate::plan::{Abilities, History};
use crate::record::{Act, Answer, Record};
use crate::{Result, library, outside, regions};

/// A door as one caller uses it in one history.
#[derive(Debug)]
pub enum Door<'p> {
    /// The library, in the process that owns the pool or in one that is attached.
    Library(library::Library<'p>),
    /// Regions of it.
    Regions(regions::Mapped<'p>),
    /// The mount.
    Outside(outside::Outside),
}

impl Door<'_> {
    /// What it can do.
    pub fn abilities(&self) -> Abilities {
        Abilities {
            is_library: !matches!(self, Door::Outside(_)),
            transacts: matches!(self, Door::Regions(_)),
        }
    }

    /// Makes and writes down one act, or two where the door has no single call for it.
    pub fn act(&self, history: &History, record: &mut Record, act: &Act) -> Result<()> {
        match (self, act) {
            (Door::Outside(door), Act::Link { from, to }) => {
                let lookup = Act::Lookup { name: from.clone() };
                let mut found = None;
                let answer = record.call(&lookup, |_| match door.hold(from) {
                    Ok((held, ino)) => {
                        found = Some(held);
                        Answer { ino: Some(ino), ..Answer::default() }
                    }
                    Err(answer) => answer,
                })?;
                let (Some(held), Some(ino)) = (found, answer.ino) else { return Ok(()) };
                let act = Act::LinkInode { ino, to: to.clone() };
                record.call(&act, |_| door.link_held(&held, to)).map(drop)
            }
            _ => record.call(act, |number| self.answer(history, act, number)).map(drop),
        }
    }

    /// Makes it; `number` is what it writes.
    pub fn answer(&self, history: &History, act: &Act, number: u64) -> Answer {
        match self {
            Door::Library(door) => door.answer(history, act, number),
            Door::Regions(door) => door.answer(history, act, number),
            Door::Outside(door) => door.answer(history, act, number),
        }
    }
}
